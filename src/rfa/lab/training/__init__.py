"""What devices do: local training, in worker processes."""
