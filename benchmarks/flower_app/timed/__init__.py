"""Random numbers in place of training, and strategies that take turns."""
