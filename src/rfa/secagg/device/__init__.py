"""The device's side of a secure sum."""
