"""Terms, parameters and policies: the adversaries that a sum withstands."""
