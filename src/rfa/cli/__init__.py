"""The command line: one lazy group, one file a command."""
