"""Weiszfeld's algorithm with fewer sums: one extrapolation, and a proof that it does no harm.

Each step of Algorithm 2 costs a secure sum. Near the median a step T is almost linear, so the
iterates of plain steps predict where v = T(v) holds (reduced-rank extrapolation: Anderson mixing
once at the end, not at every step). The last query is at that point, and a plain step follows.

The sum at the guess proves its worth. Let p be the last plain iterate, q the guess and g = -push
the gradient of the smoothed objective f at q, with L = mass / nu. By convexity f(p) >= f(q) - <g, q
- p>, and a step from q gains |g|^2 / 2L or more. So if

    <g, q - p> <= |g|^2 / 2L

the step ends no higher than p; otherwise p is the result. With R sums the result is never worse
than R - 1 plain steps. Where these are slow (at high corruption) it is worth about 1.5 R plain
steps. By convexity, no point between p and the end of the step is higher than p, so shortening the
way from p keeps the proof.

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
"""How far a guess stays short of the extrapolation, relative to the changes that it combines;
beyond the median nothing could be proven."""
RIDGE = 1e-12
"""Keeps the small system solvable if steps are almost equal, as a fraction of its trace."""
LEAST = 2
"""The number of pairs that an extrapolation needs."""


def accelerated(
    oracle: SumOracle, start: Vector, *, nu: float, steps: int, max_step: float | None = None
) -> Vector:
    """Run Algorithm 2 with its last sum at an extrapolation of the earlier iterates.

    With up to two steps it equals `weiszfeld`.

    Args:
        oracle: the secure average oracle.
        start: the first iterate, v^(0).
        nu: the smoothing radius, positive.
        steps: the budget R. Each step is one call of the oracle.
        max_step: the largest distance of an iterate, or the guess, from the one before; None for
            any.

    Returns:
        The last iterate.

    Raises:
        ValueError: if an argument is out of range, or if no device has any mass at v.
        OracleStoppedError: if the oracle gives no sum at all. If it stops later, the algorithm ends
            early.
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
    """Return about the point where the moves that led to v would vanish if they were linear."""
    products = np.array([[one @ other for other in moves] for one in moves])
    changes = np.diff(products, axis=0)
    square = np.diff(changes, axis=1)
    ridge = RIDGE * float(square.trace()) + np.finfo(np.float64).tiny
    system: Vector = square + ridge * np.eye(len(square))
    shares = cast("Vector", np.linalg.solve(system, changes[:, -1]))
    step = sum(share * move for share, move in zip(shares, moves[1:], strict=True))
    return v - (1 - SHORT / len(shares)) * step


def _is_proven(v: Vector, total: Sum, nu: float, plain: Vector) -> bool:
    """Return whether the step from v ends no higher than the plain iterate."""
    rise = -float(total.push @ (v - plain))
    mass = total.need("mass")
    return mass > 0 and rise <= nu * float(total.push @ total.push) / (2 * mass)
