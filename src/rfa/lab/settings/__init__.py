"""What decides a run."""
