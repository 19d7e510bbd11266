"""Keys, masks, shares and the graph of masks."""
