"""Checks that a device's input fits the round."""

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
"""The bytes of a digest that messages show."""


def check_brought(opening: OpenRound, contribution: Contribution) -> None:
    """Check that a round fits the input of the device.

    Raises:
        RefusalError, NotCanonicalError: if it does not; the message names the difference.
    """
    check_totals(opening)
    if opening.equal_weights and not contribution.equal_weights:
        # for any weight: a refusal that depends on it would reveal whether examples exceed the cap
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


def check_totals(opening: OpenRound) -> None:
    """Check that the statistics are known, and fit the other options of the round.

    Raises:
        NotCanonicalError: if they do not; no device joins such a round.
    """
    try:
        names = {row.name for row in rows_of(opening.statistics)}
    except ParameterError as error:
        raise NotCanonicalError(str(error)) from None
    if opening.equal_weights not in (0, 1) or (opening.equal_weights and "weight" in names):
        msg = f"equal_weights={opening.equal_weights} must be 0 or 1, and with 1 no weight is sent"
        raise NotCanonicalError(msg)
    if opening.max_share and "mass" not in names:
        msg = f"max_share={opening.max_share} needs the mass, which is not among {sorted(names)}"
        raise NotCanonicalError(msg)
    if opening.fast_fault:
        raise NotCanonicalError(opening.fast_fault)
    if fault := noise_fault(opening) or block_fault(opening):
        raise NotCanonicalError(fault)
