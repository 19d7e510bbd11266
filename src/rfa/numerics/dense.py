"""The geometry of few numbers: a float64 matrix and plain differences."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from rfa._types import Array, Floats
from rfa.numerics.distances import Geometry
from rfa.numerics.points import Points

PAIRS = 1 << 10
"""The most points for which all pairs are compared."""


@final
class DenseGeometry(Geometry):
    """Points with few coordinates in all, as a float64 matrix, with plain differences."""

    eps = float(np.finfo(np.float64).eps)

    def __init__(self, points: Points, alpha: Floats) -> None:
        self._matrix = np.stack([points.point(row, np.float64) for row in range(points.count)])
        super().__init__(points, alpha)

    def _center_on(self, at: Array | int | None) -> Floats:
        start = self._matrix[at] if isinstance(at, int) else at
        self._center = np.zeros(self._points.dim) if start is None else start.astype(np.float64)
        self._average = np.zeros(self._points.dim)
        self._centered = self._matrix - self._center
        return np.vecdot(self._centered, self._centered)

    def combine(self, weights: Floats) -> None:
        """Set the average to center + sum_i weights_i (w_i - center), without distances."""
        self._average = weights @ self._centered

    def _squares_from_average(self, weights: Floats) -> Floats:
        self.combine(weights)
        apart = self._centered - self._average
        return np.vecdot(apart, apart)

    def lowest_point(self) -> int | None:
        """Return the point with the lowest objective, if that is cheap to compute."""
        if self._points.count > PAIRS:
            return None
        products = self._centered @ self._centered.T
        squares = self.squared_norms + self.squared_norms[:, None] - 2 * products
        return int((np.sqrt(np.maximum(squares, 0)) @ self._alpha).argmin())

    def average(self, where: slice, dtype: Any) -> Array:
        """Return the coordinates of the average."""
        return (self._center[where] + self._average[where]).astype(dtype)

    def offset(self) -> Floats:
        """Return the average minus the center: sum_i weights_i (w_i - center)."""
        return self._average
