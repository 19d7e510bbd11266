"""The root of what can be wrong with a receipt."""

from __future__ import annotations

from rfa.errors import RfaError


class ReceiptError(RfaError):
    """A receipt that does not hold, or is none; the message says why."""
