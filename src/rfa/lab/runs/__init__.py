"""Running experiments: settings from files, results in a store, checkpoints, and the commands."""
