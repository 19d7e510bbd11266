"""The numeric engine: points, distances and weighted sums over them."""
