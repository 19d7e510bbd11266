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
    """Run Algorithm 2: compute the geometric median by steps that are secure sums.

    A step is v + nu * push / mass. This is the paper's sum_i beta_i w_i / sum_i beta_i, written
    with sums that are bounded for any input of the devices, so they fit a ring.

    Args:
        oracle: the secure average oracle.
        start: the first iterate, v^(0).
        nu: the smoothing radius, positive.
        steps: the budget R. Each step is one call of the oracle.
        early_stop: stop sooner when a step improved the smoothed objective by no more than this
            fraction (the paper's appendix uses 1e-6). This needs an oracle that gives the
            objective, and secure ones do not.
        max_step: the longest step; None for any. Longer steps are shortened to it.

    Returns:
        The last iterate.

    Raises:
        ValueError: if an argument is out of range, or if no device has any mass at v.
        OracleStoppedError: if the oracle gives no sum at all. If it stops later, the algorithm ends
            early: every iterate is a robust aggregate.
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
    """Return T(v), the result of one Weiszfeld step from v, or the point on the way to it.

    *Formal guarantee*: v moves by at most `max_step`, whatever the sum holds. A shortened step
    shrinks every device's share of it, so certificates still hold.

    Raises:
        ValueError: if no device has any mass at v.
    """
    mass = mass_of(total)
    if not mass > 0:
        msg = f"the mass of {total.count} devices at v is {mass}: nothing to average"
        raise InvalidValueError(msg)
    return v + shortened(nu * total.push / mass, max_step)


def mass_of(total: Sum) -> float:
    """Return the mass of a sum; with noise, clipped to a plausible range.

    A step divides by the mass, and a mass below twice its noise may be only noise. So a smaller
    mass is raised to that value, but to no more than the mass if half of the devices are near, each
    with a mass of 1 / REACH, and never below 1. With noise every device weighs 1, so no mass is
    above their count.
    """
    mass = total.need("mass")
    if not total.noise:
        return mass
    doubtful = min(2 * MASS_FACTOR * total.noise, total.count / (2 * REACH))
    return min(max(mass, doubtful, 1.0), float(total.count))


def shortened(step: Vector, most: float | None) -> Vector:
    """Return a step in the same direction of at most this length; None for any length."""
    length = 0.0 if most is None else float(np.linalg.norm(step))
    return step if most is None or length <= most else step * (most / length)


def check_max_step(max_step: float | None) -> None:
    """Check that a longest step is positive, if there is one."""
    if max_step is not None:
        check_number("max_step", max_step, positive=True)


def one_step(oracle: SumOracle, dim: int, *, nu: float, max_step: float | None = None) -> Vector:
    """Run Algorithm 3: one step from zero, the current model, for one oracle call.

    Args:
        oracle: the secure average oracle.
        dim: the number of coordinates d.
        nu: the smoothing radius, positive.
        max_step: the longest step; None for any.

    Returns:
        The step, relative to the current model.
    """
    check_count("dim", dim)
    return weiszfeld(oracle, np.zeros(dim), nu=nu, steps=1, max_step=max_step)


def _objective(objective: float | None) -> float:
    if objective is None:
        msg = "early_stop needs an oracle that gives the objective, and a secure one does not"
        raise InvalidValueError(msg)
    return objective
