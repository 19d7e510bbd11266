"""The smoothed Weiszfeld algorithm against an oracle: Algorithms 2 and 3 of the paper.

>>> import numpy as np
>>> from rfa.numerics.plain_oracle import PlainOracle
>>> updates = [np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1e6, 1e6])]
>>> v = weiszfeld(PlainOracle(updates), np.zeros(2), nu=0.5, steps=20)
>>> bool(np.linalg.norm(v) < 2)
True
"""

from __future__ import annotations

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Vector
from rfa.errors import InvalidValueError
from rfa.oracle import REACH, Sum, SumOracle, next_sum
from rfa.privacy.noisy_sum import MASS_FACTOR


def weiszfeld(  # noqa: PLR0913
    oracle: SumOracle,
    start: Vector,
    *,
    nu: float,
    steps: int,
    early_stop: float | None = None,
    max_step: float | None = None,
) -> Vector:
    """Algorithm 2: the geometric median as an iterative secure aggregate.

    A step is v + nu * push / mass, which is the paper's sum_i beta_i w_i / sum_i beta_i written
    with sums that are bounded whatever the devices send, so that they fit a ring.

    Args:
        oracle: the secure average oracle.
        start: the first iterate, v^(0).
        nu: the smoothing radius, positive.
        steps: the budget R. Each step is one call of the oracle.
        early_stop: stop sooner when a step improved the smoothed objective by no more than this
            fraction (the paper's appendix uses 1e-6). Only oracles that tell the objective can do
            it, and secure ones do not.
        max_step: the longest step; None for any. Longer ones are shortened to it.

    Raises:
        ValueError: if an argument has no meaning, or if no device has any mass at v.
        OracleStoppedError: if the oracle gives no sum at all. One that stops later ends the
            algorithm early: every iterate is a robust aggregate.
    """
    check_number("nu", nu, positive=True)
    check_count("steps", steps)
    if early_stop is not None:
        check_number("early_stop", early_stop)
    check_max_step(max_step)
    v, last = np.asarray(start, np.float64), None
    for step in range(steps):
        total = next_sum(oracle, v, nu, first=step == 0)
        if total is None:
            break
        if early_stop is not None:
            objective = _objective(total.objective)
            if last is not None and abs(last - objective) <= early_stop * last:
                break
            last = objective
        v = image_of(v, total, nu, max_step)
    return v


def image_of(v: Vector, total: Sum, nu: float, max_step: float | None = None) -> Vector:
    """T(v), what one Weiszfeld step makes of v, or the point on the way to it.

    *Formal guarantee*: whatever the sum holds, v moves by at most `max_step`. A step that is
    shortened shrinks every device's share of it, so that certificates still hold.

    Raises:
        ValueError: if no device has any mass at v.
    """
    mass = mass_of(total)
    if not mass > 0:
        msg = f"the mass of {total.count} devices at v is {mass}: nothing to average"
        raise InvalidValueError(msg)
    return v + shortened(nu * total.push / mass, max_step)


def mass_of(total: Sum) -> float:
    """The mass of a sum; one with noise is brought back to what it can be.

    A mass that is less than twice its noise may be nothing else, and a step is divided by it. So it
    counts as that much; but no more than where half of the devices are near, each of which has a
    mass of 1 / REACH, and never less than 1. Where there is noise every device weighs 1, so that no
    mass is above their count.
    """
    mass = total.need("mass")
    if not total.noise:
        return mass
    doubtful = min(2 * MASS_FACTOR * total.noise, total.count / (2 * REACH))
    return min(max(mass, doubtful, 1.0), float(total.count))


def shortened(step: Vector, most: float | None) -> Vector:
    """A step of at most this length in the same direction; None for any length."""
    length = 0.0 if most is None else float(np.linalg.norm(step))
    return step if most is None or length <= most else step * (most / length)


def check_max_step(max_step: float | None) -> None:
    """Check that a longest step is positive, if there is one."""
    if max_step is not None:
        check_number("max_step", max_step, positive=True)


def one_step(oracle: SumOracle, dim: int, *, nu: float, max_step: float | None = None) -> Vector:
    """Algorithm 3: one step from zero, the current model, at the price of one oracle call.

    Args:
        oracle: the secure average oracle.
        dim: the number of coordinates d.
        nu: the smoothing radius, positive.
        max_step: the longest step; None for any.
    """
    check_count("dim", dim)
    return weiszfeld(oracle, np.zeros(dim), nu=nu, steps=1, max_step=max_step)


def _objective(objective: float | None) -> float:
    if objective is None:
        msg = "early_stop needs an oracle that tells the objective, and a secure one does not"
        raise InvalidValueError(msg)
    return objective
