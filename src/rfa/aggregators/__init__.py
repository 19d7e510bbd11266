"""Aggregators as values: private ones on sums, clear ones on updates."""
