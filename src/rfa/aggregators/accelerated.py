"""Weiszfeld's algorithm with fewer sums: one extrapolation, and a proof that it does no harm.

Each step of Algorithm 2 costs a secure sum. Near the median a step T is almost linear, so that the
iterates of plain steps tell where v = T(v) would hold (reduced-rank extrapolation: Anderson mixing
once at the end, not at every step). The last sum is asked for there, and a plain step follows.

What the guess is worth is proven by its sum alone. Let p be the last plain iterate, q the guess
and g = -push the gradient of the smoothed objective f at q, with L = mass / nu. By convexity
f(p) >= f(q) - <g, q - p>, and a step from q gains |g|^2 / 2L or more. So where

    <g, q - p> <= |g|^2 / 2L

the step ends no higher than p, and else p is the answer. With R sums the answer is never worse than
R - 1 plain steps, and where these are slow (at high corruption) worth half as many again as R. No
point between p and the end of the step is higher than p either, by convexity, so that shortening
the way from p keeps the proof.

    >>> import numpy as np
    >>> from rfa import PlainOracle, geometric_median, weiszfeld
    >>> points = np.random.default_rng(0).standard_normal((100, 20))
    >>> points[:40] += 100
    >>> best = geometric_median(points, nu=0.1).point
    >>> def far(v): return float(np.linalg.norm(v - best))
    >>> start, how = np.zeros(20), {"nu": 0.1, "steps": 6}
    >>> ahead = far(accelerated(PlainOracle(points), start, **how))
    >>> ahead < far(weiszfeld(PlainOracle(points), start, **how)) / 5
    True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Vector
from rfa.aggregators.weiszfeld import check_max_step, image_of, shortened
from rfa.oracle import Sum, SumOracle, next_sum

SHORT = 0.05
"""How far a guess stays short of the extrapolation, over the changes that it is made of: beyond the
median nothing could be proven."""
RIDGE = 1e-12
"""Keeps the small system solvable where steps are almost alike, as a share of its trace."""
LEAST = 2
"""The pairs that an extrapolation needs."""


def accelerated(
    oracle: SumOracle, start: Vector, *, nu: float, steps: int, max_step: float | None = None
) -> Vector:
    """Algorithm 2, with its last sum at an extrapolation of the iterates before.

    Up to two steps are those of `weiszfeld`.

    Args:
        oracle: the secure average oracle.
        start: the first iterate, v^(0).
        nu: the smoothing radius, positive.
        steps: the budget R. Each step is one call of the oracle.
        max_step: how far an iterate, or the guess, may be from the one before; None for any way.

    Raises:
        ValueError: if an argument has no meaning, or if no device has any mass at v.
        OracleStoppedError: if the oracle gives no sum at all. One that stops later ends the
            algorithm early.
    """
    check_number("nu", nu, positive=True)
    check_count("steps", steps)
    check_max_step(max_step)
    v, moves = np.asarray(start, np.float64), list[Vector]()
    for step in range(steps):
        last = step == steps - 1 and step >= LEAST
        place = v + shortened(_extrapolate(v, moves) - v, max_step) if last else v
        total = next_sum(oracle, place, nu, first=step == 0)
        if total is None:
            break
        if not last or _is_proven(place, total, nu, v):
            moves.append(shortened(image_of(place, total, nu) - v, max_step))
            v = v + moves[-1]
    return v


def _extrapolate(v: Vector, moves: Sequence[Vector]) -> Vector:
    """Where the moves that led to v would vanish if they were linear, or a little before."""
    products = np.array([[one @ other for other in moves] for one in moves])
    changes = np.diff(products, axis=0)
    square = np.diff(changes, axis=1)
    ridge = RIDGE * float(square.trace()) + np.finfo(np.float64).tiny
    system: Vector = square + ridge * np.eye(len(square))
    shares = cast("Vector", np.linalg.solve(system, changes[:, -1]))
    step = sum(share * move for share, move in zip(shares, moves[1:], strict=True))
    return v - (1 - SHORT / len(shares)) * step


def _is_proven(v: Vector, total: Sum, nu: float, plain: Vector) -> bool:
    """Whether the step from v ends no higher than the plain iterate."""
    rise = -float(total.push @ (v - plain))
    mass = total.need("mass")
    return mass > 0 and rise <= nu * float(total.push @ total.push) / (2 * mass)
