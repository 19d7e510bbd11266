"""Aggregators that see single updates, and say so in their type."""
