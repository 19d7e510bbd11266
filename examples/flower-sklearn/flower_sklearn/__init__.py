"""Logistic regression on nine very unequal sites, the smallest of which attacks."""
