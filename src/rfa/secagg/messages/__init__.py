"""The messages of a round, their bytes and sizes."""
