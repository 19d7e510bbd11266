"""Whom a sum withstands: terms, parameters, policies."""
