"""How the documentation site is built: pages made from the code, links, formulas, pictures."""
