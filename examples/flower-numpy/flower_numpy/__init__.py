"""Softmax regression in numpy on a federation with an attacker."""
