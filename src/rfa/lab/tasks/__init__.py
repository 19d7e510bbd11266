"""The tasks: what is learned, each with its reader, model and poison."""
