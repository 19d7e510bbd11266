"""A convolutional network with BatchNorm on a federation with an attacker."""
