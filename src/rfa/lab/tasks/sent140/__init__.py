"""Sent140: its reader, model and poison."""
