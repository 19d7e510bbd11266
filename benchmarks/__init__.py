"""Measurements against peers in the same run, as ratios."""
