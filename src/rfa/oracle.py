"""The one question a server may ask: sums over devices of what each adds at a point v.

A device with update w_i and weight alpha_i, at distance r_i = |w_i - v|, adds

    push_i = alpha_i min(1, r_i / nu) (w_i - v) / r_i,     so that |push_i| <= alpha_i,
    mass_i = nu alpha_i / max(nu, r_i),                    in (0, alpha_i].

Everything that an algorithm behind a `SumOracle` learns are these sums. It holds no update, so it
cannot look at a device: whatever oracle is plugged in, privacy is visible in the types.

    >>> import numpy as np
    >>> ask = PlainOracle([np.array([3.0, 4.0]), np.array([0.0, 0.0])])
    >>> total = ask(np.zeros(2), 1.0)
    >>> total.push, total.mass
    (array([0.6, 0.8]), 1.2)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rfa._checks import check_number
from rfa.numerics.distances import Floats
from rfa.numerics.points import to_numpy
from rfa.numerics.smoothing import betas, smoothed_norms
from rfa.numerics.weighted import OnBad, read_cohort

Vector: TypeAlias = Floats
REACH = 2.0
"""How many times nu away a device still counts as near: where half of them do, nu is half of their
median distance."""


@dataclass(frozen=True)
class Sum:
    """What the devices of a cohort add up to at v, with radius nu.

    Attributes:
        push: the sum of the push_i, which is minus the gradient of the smoothed objective.
        mass: the sum of the mass_i, at most `weight`.
        weight: the sum of the alpha_i.
        near: how many devices are within REACH * nu of v.
        count: how many devices answered.
        squares: the sum of the squares of the mass_i.
        objective: the smoothed objective at v. It is unbounded, and one device alone could set
            it, so no secure oracle tells it; None there.
    """

    push: Vector
    mass: float
    weight: float
    near: int
    count: int
    squares: float
    objective: float | None = None

    def certificate(self, colluders: int = 0) -> float:
        """A proven bound on the share of any one device in the step that this sum makes.

        With weights of at most 1, no mass_i exceeds 1, nor the root of the sum of squares, so no
        share mass_i / mass exceeds the lesser of the two over the mass. Colluders can take their
        own parts out of the sum, each of which is bounded in the same way.
        """
        heaviest = min(1.0, math.sqrt(self.squares))
        left = self.mass - colluders * heaviest
        return min(1.0, heaviest / left) if left > 0 else 1.0


SumOracle: TypeAlias = Callable[[Vector, float], Sum]


class OracleStopped(Exception):  # noqa: N818
    """An oracle that gives no more sums in this round; the sums it gave before stand."""


def next_sum(ask: SumOracle, v: Vector, nu: float, *, first: bool) -> Sum | None:
    """The sum at v, or None if the oracle has stopped: what was found before stands.

    Raises:
        OracleStopped: if nothing was found before, because this is the first question.
    """
    try:
        return ask(v, nu)
    except OracleStopped:
        if first:
            raise
        return None


class PlainOracle:
    """Sums in plain floating point over updates in one process: fast, and nothing is private.

    It keeps a place for the sums, so only one thread at a time may ask.

    Attributes:
        dim: the number of coordinates d.
        dropped: the updates that were left out because they are not finite.
        shares: the share of each other update in the step that the last sum makes.
    """

    def __init__(self, updates: Any, weights: Any = None, *, on_bad: OnBad = "raise") -> None:
        """Take the updates of a cohort, in any form that `geometric_median` takes.

        Args:
            updates: m updates.
            weights: m weights alpha_i, used as they are; ones by default.
            on_bad: what to do about updates that are not finite: "raise" or "drop".
        """
        cohort = read_cohort(updates, weights, on_bad)
        ones = np.ones(cohort.total)
        given = ones if weights is None else to_numpy(weights, "weights").astype(np.float64)
        self._kernel = cohort.kernel
        self._alpha = given[cohort.rows]
        self.dim = cohort.cloud.dim
        self.dropped = cohort.dropped
        self.shares: Floats | None = None

    def __call__(self, v: Vector, nu: float) -> Sum:
        """The sums at v, a vector of `dim` coordinates."""
        _check_question(v, nu, self.dim)
        distances = self._kernel.centre(v)
        if not np.isfinite(distances).all():
            msg = f"v is too far away: the squared distances of {len(self._alpha)} updates overflow"
            raise ValueError(msg)
        beta = betas(self._alpha, distances, nu)
        self._kernel.combine(beta)
        self.shares = beta / beta.sum()
        return Sum(
            push=self._kernel.total(),
            mass=float(nu * beta.sum()),
            weight=float(self._alpha.sum()),
            near=int((distances <= REACH * nu).sum()),
            count=self._alpha.size,
            squares=float(nu * nu * (beta @ beta)),
            objective=float(self._alpha @ smoothed_norms(distances, nu)),
        )


class CountedOracle:
    """Another oracle, and how often it was asked: the communication that an algorithm costs."""

    def __init__(self, ask: SumOracle) -> None:
        self._ask = ask
        self.calls = 0

    def __call__(self, v: Vector, nu: float) -> Sum:
        """Pass the question on."""
        self.calls += 1
        return self._ask(v, nu)


def _check_question(v: Vector, nu: float, dim: int) -> None:
    if np.shape(v) != (dim,):
        msg = f"v must have shape ({dim},), not {np.shape(v)}"
        raise ValueError(msg)
    if not np.isfinite(v).all():
        msg = f"v must be finite: coordinate {int(np.flatnonzero(~np.isfinite(v))[0])} is not"
        raise ValueError(msg)
    check_number("nu", nu, positive=True)
