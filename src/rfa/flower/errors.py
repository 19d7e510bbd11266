"""The root of what can go wrong on Flower."""

from __future__ import annotations

from rfa.errors import RfaError


class FlowerError(RfaError):
    """Something on Flower failed; the message says what to do."""


class TooFewNodesError(FlowerError):
    """There are too few nodes for any round; the message says how many there must be."""
