"""What corrupted devices do."""
