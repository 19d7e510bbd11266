"""Devices that lie in a secure sum: their masked words encode no legal message.

The strongest liar knows all other inputs, so it can choose the total of its sum; one such liar can
do everything that several in the same sum can. A server can still check that a total is plausible,
and bound its step. So the lie is a total that passes the checks: the longest possible push, against
the honest mean, over a small mass.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from rfa._types import Floats, Floats32, Ints, Vector
from rfa.errors import InvalidValueError
from rfa.lab.attacks import limits
from rfa.lab.attacks.corruption import Corruption, SumCorruption, Totals, corrupts_sums
from rfa.lab.attacks.honest import unit
from rfa.lab.learners.learner import are_finite
from rfa.oracle import Sum

NAME = "ring-liar"


@corrupts_sums
def ring_liar(
    honest: Sum,
    mean: Floats,
    *,
    mass: Annotated[float, limits.positive_share] = 0.2,
    near: Annotated[float, limits.share] = 0.0,
) -> tuple[Vector, Totals]:
    """Lie in a secure sum: the longest push against the honest mean, over a small mass.

    `mass` and `near` are fractions of the devices.
    """
    count = honest.count
    return -count * unit(mean), plausible_totals(count, round(near * count), mass * count)


def plausible_totals(count: int, near: int, mass: float) -> Totals:
    """Return totals of devices of weight 1 that are as equal as this number of near ones allows."""
    held, others = (near, count - near) if 2 * mass < count else (count - near, near)
    rest = (mass - held / 2) / others if others else 0.0
    squares = (held / 4 + others * rest**2) * (1 + 1e-12)
    return {"mass": mass, "squares": squares, "weight": count, "near": near, "count": count}


def check_sums(corruption: Corruption | None, mode: str) -> None:
    """Check that there are secure sums whose arithmetic the lab can see, if there are liars.

    Raises:
        InvalidValueError: if there are not; the message says what to set.
    """
    if isinstance(corruption, SumCorruption) and mode != "unmasked":
        msg = f"{NAME} lies in secure sums, which the lab simulates without masks: "
        msg += f"give secure=unmasked, not {mode}"
        raise InvalidValueError(msg)


def honest_mean(updates: Floats32, weights: Floats, liars: Ints) -> Floats:
    """Return the weighted mean of the finite updates of honest devices; zero if there are none."""
    total, weight = np.zeros(updates.shape[1]), 0.0
    for row in np.setdiff1d(np.flatnonzero(are_finite(updates)), liars).tolist():
        total += weights[row] * updates[row]
        weight += float(weights[row])
    return total / weight if weight else total
