"""The seam: the one query that a server may make, and sums as its only answer.

A device with update w_i and weight alpha_i, at distance r_i = |w_i - v|, adds

    push_i = alpha_i min(1, r_i / nu) (w_i - v) / r_i,     so that |push_i| <= alpha_i,
    mass_i = nu alpha_i / max(nu, r_i),                    in (0, alpha_i].

With a radius for each block of coordinates (`rfa.radii`) it adds a push that is clipped block by
block, and says in which blocks it is within the radius.

An algorithm behind a `SumOracle` learns these sums and nothing else. It holds no update, so it
cannot look at a device: whatever oracle is plugged in, privacy is visible in the types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from rfa._types import Vector
from rfa.errors import InvalidValueError, OracleStoppedError
from rfa.radii import Radius, farthest

REACH = 2.0
"""How many times nu away a device still counts as near: where half of them do, nu is half of their
median distance."""
TOTALS = frozenset({"mass", "squares", "weight", "near"})
"""The totals of a sum that an aggregator may do without; those are not sent."""


@dataclass(frozen=True)
class Sum:
    """What the devices of a cohort add up to at v, with radius nu.

    A secure oracle tells the totals that were asked for (`SumAggregator.statistics`); the others
    are None.

    Attributes:
        push: the sum of the push_i, which is minus the gradient of the smoothed objective.
        mass: the sum of the mass_i, at most `weight`.
        weight: the sum of the alpha_i.
        near: how many devices are within REACH * nu of v. With noise it is no whole number, and can
            be below 0 or above `count`; the mass likewise.
        count: how many devices answered.
        squares: the sum of the squares of the mass_i.
        objective: the smoothed objective at v. It is unbounded, and one device alone could set
            it, so no secure oracle tells it; None there.
        noise: the standard deviation of the noise in each coordinate of the push; 0 for none.
        votes: for each block, where there is a radius for each, how many devices say that they are
            within it; about half of them toss a coin for it. None for one radius.
    """

    push: Vector
    mass: float | None
    weight: float | None
    near: float | None
    count: int
    squares: float | None
    objective: float | None = None
    noise: float = 0.0
    votes: Vector | None = None

    def certificate(self, num_colluders: int = 0) -> float:
        """A proven bound on the share of any one device in the step that this sum makes.

        With weights of at most 1, no mass_i exceeds 1, nor the root of the sum of squares, so no
        share mass_i / mass exceeds the lesser of the two over the mass. Colluders can take their
        own parts out of the sum, each of which is bounded in the same way. Without the mass the
        step is a mean, in which no share exceeds 1 over the weight.

        Raises:
            InvalidValueError: if the sum has noise: it proves nothing then.
        """
        if self.noise:
            msg = f"a sum with noise (of {self.noise:g} in each coordinate) proves no largest share"
            raise InvalidValueError(msg)
        heaviest, whole = 1.0, self.weight
        if self.mass is not None:
            whole = self.mass
            heaviest = 1.0 if self.squares is None else min(1.0, math.sqrt(self.squares))
        left = (whole or 0.0) - num_colluders * heaviest
        return min(1.0, heaviest / left) if left > 0 else 1.0

    def need(self, name: str) -> float:
        """A total by name.

        Raises:
            InvalidValueError: if it was not asked for.
        """
        value = getattr(self, name)
        if value is None:
            msg = f"the total {name} was not asked for, so no device sent it: let the aggregator's "
            raise InvalidValueError(msg + f"property `statistics` hold {name!r}")
        return value


SumOracle: TypeAlias = Callable[[Vector, Radius], Sum]


class RecordingOracle:
    """Another oracle, how often it was called and answered, and its last two sums.

    Attributes:
        calls: how often it was called: the communication that an algorithm costs.
        answers: how many of the calls gave a sum.
        last: the last sum.
        previous: the sum before it.
        point: what an aggregator of groups made of this group alone.
        nu: the radius of the last call, or the longest step of radii; 0 before the first.
    """

    def __init__(self, oracle: SumOracle) -> None:
        """Record an oracle."""
        self._oracle = oracle
        self.calls = self.answers = 0
        self.last: Sum | None = None
        self.previous: Sum | None = None
        self.point: Vector | None = None
        self.nu = 0.0

    def __call__(self, v: Vector, nu: Radius) -> Sum:
        """Pass the query on."""
        self.calls, self.nu = self.calls + 1, farthest(nu, len(v))
        total = self._oracle(v, nu)
        self.previous, self.last = self.last, total
        self.answers += 1
        return total


def stopped_oracle(reason: OracleStoppedError) -> SumOracle:
    """The oracle of a part of a cohort that gives no sum, and says why."""

    def oracle(_v: Vector, _nu: Radius) -> NoReturn:
        raise reason

    return oracle


def next_sum(oracle: SumOracle, v: Vector, nu: Radius, *, first: bool) -> Sum | None:
    """The sum at v, or None if the oracle has stopped: what was found before stands.

    Raises:
        OracleStoppedError: if nothing was found before, because this is the first query.
    """
    try:
        return oracle(v, nu)
    except OracleStoppedError:
        if first:
            raise
        return None
