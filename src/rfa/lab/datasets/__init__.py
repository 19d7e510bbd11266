"""Data sets of devices: where they come from, how they are read, split and kept."""
