"""What a device brings into a round against what the round is about."""

from __future__ import annotations

from rfa.secagg.errors import OtherBasisError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.round import OpenRound

_SHOWN = 8
"""Bytes of a digest that are enough to tell it from others."""


def check_brought(opening: OpenRound, contribution: Contribution) -> None:
    """Refuse a round that is not about what the device brings.

    Raises:
        RefusalError: naming what.
    """
    if opening.basis != contribution.basis:
        told, own = (basis[:_SHOWN].hex() for basis in (opening.basis, contribution.basis))
        msg = (
            f"the round is about what was trained from {told}..., and this device started from "
            f"{own}...: the server must send the same to all devices"
        )
        raise OtherBasisError(msg)
