"""A server that solves the sums of one round for the updates and weights behind them.

The R sums about h honest updates are, with the masses as coefficients, R linear equations in h
vectors. The masses follow from the weights and the distances |w_i - v_r|; the distances follow from
the updates. So all unknowns are h weights and R h distances, and what is known are the totals of
weights, masses and squares and, once R >= h, every distance itself: more equations than unknowns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rfa.oracle import Sum
from rfa.secagg.fixed_point import Contribution

Rows = NDArray[np.float64]
_SHIFT = 1e-6
_SOLVED = 1e-12
_EXACT = 1e-20


@dataclass(frozen=True)
class Heard:
    """A sum that was opened: the point and radius that were asked, and the answer."""

    v: Rows
    nu: float
    total: Sum


@dataclass(frozen=True)
class Solved:
    """What a server found: weights, updates in the same order, and the square of what is left."""

    weights: Rows
    updates: Rows
    residual: float


class Equations:
    """The sums of a round without the parts of colluders, which these tell the server."""

    def __init__(self, heard: list[Heard], colluders: Iterable[Contribution]) -> None:
        known = list(colluders)
        self.nu = heard[0].nu
        self.honest = heard[0].total.count - len(known)
        self.weight = heard[0].total.need("weight") - sum(part.weight for part in known)
        self.points = np.array([one.v for one in heard])
        self.mass = np.array([one.total.need("mass") for one in heard])
        self.squares = np.array([one.total.need("squares") for one in heard])
        push = np.array([one.total.push for one in heard])
        for part in known:
            steps = part.update.astype(np.float64) - self.points
            mass = part.weight * np.minimum(1, self.nu / np.linalg.norm(steps, axis=1))
            push -= mass[:, None] / self.nu * steps
            self.mass -= mass
            self.squares -= mass**2
        self.images = self.nu * push + self.mass[:, None] * self.points
        both = np.vstack([self.images, self.points])
        self._gram = both @ both.T

    def masses(self, unknown: Rows) -> Rows:
        """The masses of all honest devices, a row a sum."""
        weights, distances = self.read(unknown)
        return weights * np.minimum(1, self.nu / distances)

    def read(self, unknown: Rows) -> tuple[Rows, Rows]:
        weights, distances = np.split(np.exp(unknown), [self.honest])
        return weights, distances.reshape(-1, self.honest)

    def residual(self, unknown: Rows) -> Rows:
        """By how much what is known is missed, in logarithms."""
        weights, distances = self.read(unknown)
        masses, count = self.masses(unknown), len(self.points)
        try:
            inverse = np.linalg.inv(masses)
        except np.linalg.LinAlgError:
            return np.full(1 + 2 * count + masses.size, np.inf)
        steps = np.zeros((count, self.honest, 2 * count))
        steps[:, :, :count] = inverse
        steps[range(count), :, range(count, 2 * count)] -= 1
        squares = np.einsum("rik,kl,ril->ri", steps, self._gram, steps)
        found = np.log(np.maximum(squares, 1e-12)) / 2
        totals = (
            [weights.sum() / self.weight],
            masses.sum(1) / self.mass,
            (masses**2).sum(1) / self.squares,
        )
        return np.concatenate([*map(np.log, totals), (found - np.log(distances)).ravel()])

    def guess(self, rng: np.random.Generator) -> Rows:
        """Where to begin: about equal weights, and distances like those of the mean mass."""
        rows, h = len(self.points), self.honest
        typical = np.log(np.median(self.nu * self.weight / self.mass))
        distances = typical + rng.normal(0, 0.4, h) + rng.normal(0, 0.1, (rows, h))
        weights = np.log(self.weight / h) + rng.normal(0, 0.5, h)
        return np.concatenate([weights, distances.ravel()])


def solve(heard: list[Heard], colluders: Iterable[Contribution], tries: int = 40) -> Solved:
    """The best of some starts, each improved by damped least squares."""
    equations, rng = Equations(heard, colluders), np.random.default_rng(1)
    best, least = np.empty(0), np.inf
    for _ in range(tries):
        unknown, left = _improve(equations, equations.guess(rng))
        if left < least:
            best, least = unknown, left
        if least < _SOLVED:
            break
    weights, _ = equations.read(best)
    updates = np.asarray(np.linalg.solve(equations.masses(best), equations.images), np.float64)
    return Solved(weights, updates, least)


def _improve(equations: Equations, unknown: Rows) -> tuple[Rows, float]:
    """Levenberg and Marquardt's steps, until they lead nowhere."""
    error, damping, size = equations.residual(unknown), 1e-2, len(unknown)
    for _ in range(100):
        if not np.isfinite(error).all() or damping > 1e4 or error @ error < _EXACT:
            break
        with np.errstate(invalid="ignore"):  # of two infinite ones, where masses have no inverse
            slopes = np.column_stack(
                [
                    (equations.residual(unknown + shift) - equations.residual(unknown - shift))
                    / 2
                    / _SHIFT
                    for shift in _SHIFT * np.eye(size)
                ]
            )
        if not np.isfinite(slopes).all():
            break
        system = np.vstack([slopes, np.sqrt(damping) * np.eye(size)])
        step = np.linalg.lstsq(system, np.concatenate([-error, np.zeros(size)]))[0]
        after = equations.residual(unknown + step)
        if after @ after < error @ error:
            unknown, error, damping = unknown + step, after, max(damping / 10, 1e-15)
        else:
            damping *= 5
    left = float(error @ error)
    return unknown, left if np.isfinite(left) else np.inf
