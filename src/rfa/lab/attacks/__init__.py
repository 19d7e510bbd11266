"""Attacks: the behavior of corrupted devices."""
