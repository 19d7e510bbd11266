"""Aggregators that need sums alone, so that they run under secure aggregation.

Each holds oracles and nothing else. `rfa`, the mean and centered clipping ask one cohort; others
ask disjoint parts of it, each of which has an oracle of its own.

    >>> import numpy as np
    >>> from rfa import PlainOracle
    >>> near, far = np.random.default_rng(0).standard_normal((90, 5)), np.full((10, 5), 1e6)
    >>> ask = PlainOracle(np.vstack([near, far]))
    >>> float(np.linalg.norm(centered_clipping(ask, np.zeros(5), radius=2.0, steps=3))) < 1
    True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Vector
from rfa.aggregators.weiszfeld import image_of, weiszfeld
from rfa.errors import InvalidValueError, OracleStoppedError
from rfa.median import geometric_median
from rfa.oracle import SumOracle, next_sum


class Steps(Protocol):
    """Weiszfeld's algorithm in some form: `weiszfeld`, `accelerated`."""

    def __call__(self, ask: SumOracle, start: Vector, *, nu: float, steps: int) -> Vector:
        """The last iterate of so many steps."""
        ...


def secure_mean(ask: SumOracle, dim: int, *, radius: float) -> Vector:
    """The weighted mean of the updates, each cut to a radius: FedAvg where none is longer."""
    return centered_clipping(ask, np.zeros(dim), radius=radius, steps=1)


def centered_clipping(ask: SumOracle, start: Vector, *, radius: float, steps: int) -> Vector:
    """Centered clipping (Karimireddy et al. 2021): v plus the mean of what updates lie off v, cut.

    Args:
        ask: the secure average oracle.
        start: the first center.
        radius: to what length the differences are cut, positive.
        steps: how often; each is one call of the oracle.

    Raises:
        ValueError: if an argument has no meaning, or if no device has any weight.
        OracleStoppedError: if the oracle gives no sum at all.
    """
    check_number("radius", radius, positive=True)
    check_count("steps", steps)
    v = np.asarray(start, np.float64)
    for step in range(steps):
        total = next_sum(ask, v, radius, first=step == 0)
        if total is None:
            break
        if not total.weight > 0:
            msg = f"the weight of {total.count} devices is {total.weight}: nothing to average"
            raise InvalidValueError(msg)
        v = v + radius * total.push / total.weight
    return v


def rfa(  # noqa: PLR0913
    ask: SumOracle,
    dim: int,
    *,
    nu: float,
    budget: int,
    start: str,
    radius: float,
    steps: Steps = weiszfeld,
) -> Vector:
    """The aggregate of RFA (Algorithm 1) from at most `budget` sums.

    Args:
        ask: the secure average oracle.
        dim: the number of coordinates d.
        nu: the smoothing radius, positive.
        budget: the sums R, of which a start at the mean takes one.
        start: "current", the current model, or "mean".
        radius: to what length the mean cuts updates.
        steps: how steps are taken.
    """
    if start == "current":
        return steps(ask, np.zeros(dim), nu=nu, steps=budget)
    mean = secure_mean(ask, dim, radius=radius)
    return steps(ask, mean, nu=nu, steps=budget - 1)


def sub_cohorts(asks: Sequence[SumOracle], start: Vector, *, nu: float) -> Vector:
    """Weiszfeld steps, of which each asks another part of the cohort: every device answers once.

    The iterate is the average of the steps so far, weighted by their masses: steps over few devices
    scatter, and what they have in common is the median.

    Args:
        asks: an oracle for each part, in order.
        start: the first iterate.
        nu: the smoothing radius, positive.

    Raises:
        ValueError: if an argument has no meaning, or a part no mass.
        OracleStoppedError: if no part gives a sum. One that does not is left out.
    """
    check_number("nu", nu, positive=True)
    v, mass, stopped = np.asarray(start, np.float64), 0.0, OracleStoppedError("there are no parts")
    for ask in asks:
        try:
            total = ask(v, nu)
        except OracleStoppedError as error:
            stopped = error
            continue
        image = image_of(v, total, nu)
        mass += total.mass
        v = v + total.mass / mass * (image - v)
    if not mass:
        raise stopped
    return v


def center_of_groups(asks: Sequence[SumOracle], aggregate: Callable[[SumOracle], Vector]) -> Vector:
    """The geometric median of what an aggregator makes of each of some groups.

    A device that lies inside the ring spoils its group and no other, so fewer liars than half of
    the groups that answer move the center no farther than as many corrupted points would. With
    means in the groups this is bucketing (Karimireddy et al. 2022) under secure sums.

    Args:
        asks: an oracle for each group.
        aggregate: the aggregate of a group, from its oracle.

    Raises:
        OracleStoppedError: if no more than half of the groups give one that is finite.
    """
    found: list[Vector] = []
    stopped = OracleStoppedError("there are no groups")
    for ask in asks:
        try:
            point = aggregate(ask)
            if np.isfinite(point).all():
                found.append(point)
        except OracleStoppedError as error:
            stopped = error
    if 2 * len(found) <= len(asks):
        msg = f"only {len(found)} of {len(asks)} groups give a sum: {stopped}"
        raise OracleStoppedError(msg)
    return geometric_median(np.stack(found)).point
