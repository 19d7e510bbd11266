"""The geometry of points in weight space: their distances from a weighted average of them.

Every iterate of Weiszfeld's algorithm is an average of the points, v = sum_i weights_i w_i. So the
algorithms in `median.py` carry m weights and need only the distance of v from each point.
`StreamingGeometry` computes it for points of any size in place, `DenseGeometry` for small ones with
plain differences.

Distances from inner products lose digits when the center of the points is much farther from v than
the points are. The origin works for updates. Otherwise, the geometry moves the center to the point
nearest to v and computes again, so distances are right to working precision wherever the points are
and however far the outliers are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from rfa._types import Array, Floats
from rfa.numerics.points import Points

NEAR = 3.0
"""How many times farther from the center than from v the points may be."""
MOVES = 4
"""The most moves of the center for one result; two are enough except at float32's limits."""
SLACK = 1e-12
"""Fractions of the total weight that differ by less than this are equal, because sums round."""
TINY = 1e-100
"""Keeps quotients of squared distances finite."""


class Geometry(ABC):
    """A weighted average of points, and the distances of the points from it."""

    eps: float
    """The working precision."""
    squared_norms: Floats
    """The squared distances of the points from the center."""
    typical_distance: float
    """The weighted median of the distances of the points from the center."""

    def __init__(self, points: Points, alpha: Floats) -> None:
        self._points = points
        self._alpha = alpha
        self._row: int | None = None
        self.center(None)

    def center(self, at: Array | int | None) -> Floats:
        """Center on a vector, a point, or the origin, and return the distances from it."""
        self._row = at if isinstance(at, int) else None
        with np.errstate(over="ignore", invalid="ignore"):  # told by norms that are not finite
            self.squared_norms = self._center_on(at)
        self.typical_distance = weighted_median(self.squared_norms, self._alpha) ** 0.5
        return np.sqrt(self.squared_norms)

    def distances(self, weights: Floats) -> Floats:
        """Set the average to sum_i weights_i w_i, and return the distances from it."""
        squares = self._squares_from_average(weights)
        for _ in range(MOVES):
            nearest = int(squares.argmin())
            if nearest == self._row or not self._is_far(weights, squares):
                break
            self.center(nearest)
            squares = self._squares_from_average(weights)
        return np.sqrt(squares)

    def _is_far(self, weights: Floats, squares: Floats) -> bool:
        """Return whether the center is so far from v that important distances lose digits."""
        shares = np.abs(weights)
        loss = self.squared_norms / (np.maximum(squares, TINY * self.squared_norms) + TINY)
        return bool(shares @ loss > NEAR**2 * shares.sum())

    def lowest_point(self) -> int | None:
        """Return the point with the lowest objective, if that is cheap to compute."""
        return None

    @abstractmethod
    def _center_on(self, at: Array | int | None) -> Floats:
        """Set the center, and return the squared distances from it."""

    @abstractmethod
    def _squares_from_average(self, weights: Floats) -> Floats:
        """Set the average, and return the squared distances from it."""

    @abstractmethod
    def combine(self, weights: Floats) -> None:
        """Set the average to center + sum_i weights_i (w_i - center), without distances."""

    @abstractmethod
    def average(self, where: slice, dtype: Any) -> Array:
        """Return the coordinates of the average."""

    @abstractmethod
    def offset(self) -> Floats:
        """Return the average minus the center: sum_i weights_i (w_i - center)."""


def weighted_quantile(values: Floats, weights: Floats, fraction: float) -> float:
    """Return the smallest value with at least this fraction of the weight at or below it."""
    order = values.argsort()
    below = weights[order].cumsum()
    return float(values[order[below.searchsorted((fraction - SLACK) * below[-1])]])


def weighted_median(values: Floats, weights: Floats) -> float:
    """Return the smallest value with at least half of the weight at or below it."""
    return weighted_quantile(values, weights, 1 / 2)
