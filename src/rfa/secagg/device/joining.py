"""What a device brings into a round against what the round is about."""

from __future__ import annotations

from rfa.secagg.blocks import block_fault
from rfa.secagg.errors import (
    NotCanonicalError,
    OtherBasisError,
    ParameterError,
    UnequalWeightError,
)
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.noise import noise_fault
from rfa.secagg.statistics import rows_of

_SHOWN = 8
"""Bytes of a digest that are enough to tell it from others."""


def check_brought(opening: OpenRound, contribution: Contribution) -> None:
    """Refuse a round that is not about what the device brings.

    Raises:
        RefusalError, NotCanonicalError: naming what.
    """
    _check_totals(opening)
    if opening.equal_weights and not contribution.equal_weights:
        # whatever the weight is: to refuse by it would tell whether examples exceed the cap
        msg = (
            "the round is of equal weights, and this device was to weigh by its examples: the "
            "server must ask for the same `weights` in its work and its rounds"
        )
        raise UnequalWeightError(msg)
    if opening.basis != contribution.basis:
        told, own = (basis[:_SHOWN].hex() for basis in (opening.basis, contribution.basis))
        msg = (
            f"the round is about what was trained from {told}..., and this device started from "
            f"{own}...: the server must send the same to all devices"
        )
        raise OtherBasisError(msg)


def _check_totals(opening: OpenRound) -> None:
    """Refuse statistics that are not known, and what does not go with the others, or with noise."""
    try:
        names = {row.name for row in rows_of(opening.statistics)}
    except ParameterError as error:
        raise NotCanonicalError(str(error)) from None
    if opening.equal_weights not in (0, 1) or (opening.equal_weights and "weight" in names):
        msg = f"equal_weights={opening.equal_weights} must be 0 or 1, and with 1 no weight travels"
        raise NotCanonicalError(msg)
    if opening.max_share and "mass" not in names:
        msg = f"max_share={opening.max_share} is of the mass, which is not among {sorted(names)}"
        raise NotCanonicalError(msg)
    if opening.fast_fault:
        raise NotCanonicalError(opening.fast_fault)
    if fault := noise_fault(opening) or block_fault(opening):
        raise NotCanonicalError(fault)
