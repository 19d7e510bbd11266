"""Local training of devices, in worker processes."""
