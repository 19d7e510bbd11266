"""Glyphs, drawn on the spot: no download."""
