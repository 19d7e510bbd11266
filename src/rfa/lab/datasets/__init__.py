"""Data sets of devices: sources, readers, partitions and the cache."""
