"""LoRA adapters of a Transformer on a federation with an attacker."""
