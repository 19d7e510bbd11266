"""The kernel for small clouds: a float64 matrix and plain differences."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from rfa._types import Array, Floats
from rfa.numerics.distances import Kernel
from rfa.numerics.points import Cloud

PAIRS = 1 << 10
"""Points at most for which all pairs are compared."""


@final
class Dense(Kernel):
    """A small cloud: a float64 matrix and plain differences."""

    eps = float(np.finfo(np.float64).eps)

    def __init__(self, cloud: Cloud, alpha: Floats) -> None:
        self._points = np.stack([cloud.point(row, np.float64) for row in range(cloud.rows)])
        super().__init__(cloud, alpha)

    def _center_on(self, at: Array | int | None) -> Floats:
        start = self._points[at] if isinstance(at, int) else at
        self._center = np.zeros(self._cloud.dim) if start is None else start.astype(np.float64)
        self._average = np.zeros(self._cloud.dim)
        self._centered = self._points - self._center
        return np.vecdot(self._centered, self._centered)

    def combine(self, weights: Floats) -> None:
        """Set the average to center + sum_i weights_i (w_i - center), and measure nothing."""
        self._average = weights @ self._centered

    def _squares(self, weights: Floats) -> Floats:
        self.combine(weights)
        apart = self._centered - self._average
        return np.vecdot(apart, apart)

    def lowest(self) -> int | None:
        """The point with the lowest objective, where that is cheap to tell."""
        if self._cloud.rows > PAIRS:
            return None
        products = self._centered @ self._centered.T
        squares = self.norms + self.norms[:, None] - 2 * products
        return int((np.sqrt(np.maximum(squares, 0)) @ self._alpha).argmin())

    def read(self, where: slice, dtype: Any) -> Array:
        """The coordinates of the average."""
        return (self._center[where] + self._average[where]).astype(dtype)

    def total(self) -> Floats:
        """What `combine` added to the center: sum_i weights_i (w_i - center)."""
        return self._average
