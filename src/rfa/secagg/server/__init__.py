"""The server's side of a secure sum."""
