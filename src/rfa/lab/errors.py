"""The root of what can go wrong in the lab."""

from __future__ import annotations

from rfa.errors import RfaError


class LabError(RfaError):
    """Something of the lab's failed; the message says what to do."""
