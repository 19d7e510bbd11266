"""EMNIST: its reader, models and poison."""
