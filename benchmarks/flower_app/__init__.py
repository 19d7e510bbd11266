"""A Flower app whose rounds are timed: benchmarks/flower_rounds.py runs it."""
