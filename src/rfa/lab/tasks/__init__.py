"""The tasks, each with its reader, model and poisons."""
