"""Robust and private training on handwritten characters."""
