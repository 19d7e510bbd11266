"""A small network in JAX on a federation with an attacker."""
