"""Shakespeare: its reader, model and poison."""
