"""The geometric median of clipped and mixed points.

Clipping and nearest-neighbor mixing before a robust aggregator (Allouah et al. 2023), as the
benchmark of ByzFL (Gonzalez et al. 2025) has them, here before Weiszfeld steps from zero.

    >>> import numpy as np
    >>> updates = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [1e8, 1e8]])
    >>> MixedMedian(corrupted=1, clip_norm=4, nu=0.1)(updates).point.round(3)
    array([1.219, 1.339])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Array, Floats
from rfa.aggregators.clear.base import ClearAggregator
from rfa.aggregators.clear.clipping import clip_factors
from rfa.aggregators.clear.corrupted import AssumesCorrupted
from rfa.aggregators.clear.mixing import InnerAggregate, NearestNeighborMixing
from rfa.median import geometric_median


@final
@dataclass(frozen=True)
class MixedMedian(AssumesCorrupted, ClearAggregator):
    """Weiszfeld steps toward the geometric median of points that are clipped, then mixed.

    Attributes:
        corrupted: the number f of the m points that may be corrupted, less than half of them.
        corrupted_fraction: instead, the fraction of the m points, rounded up to a count.
        clip_norm: the norm that no point exceeds before it is mixed; None for no clipping.
        nu: the smoothing radius of the steps; None for half the median distance of the points.
        budget: the number of Weiszfeld steps from zero.
    """

    clip_norm: float | None = None
    nu: float | None = None
    budget: int = 3

    def __post_init__(self) -> None:
        """Check each parameter."""
        super().__post_init__()
        if self.clip_norm is not None:
            check_number("clip_norm", self.clip_norm, positive=True)
        if self.nu is not None:
            check_number("nu", self.nu, positive=True)
        check_count("budget", self.budget)

    def aggregate(self, points: Array, weights: Floats) -> Array:
        """Clip the points, mix them, and take the steps."""
        if self.clip_norm is not None:
            with np.errstate(over="ignore"):
                norms = np.linalg.norm(points, axis=1).astype(np.float64)
            for row in np.flatnonzero(~np.isfinite(norms)).tolist():  # squares that are too large
                norms[row] = np.linalg.norm(points[row].astype(np.float64))
            factors = clip_factors(norms, self.clip_norm)
            points = points * factors[:, None].astype(points.dtype)
        mixing = NearestNeighborMixing(self.count_corrupted(len(points)), self._take_steps)
        return mixing(points, weights).point

    def _take_steps(self, points: Any, weights: Any = None, /) -> InnerAggregate:
        return geometric_median(points, weights, nu=self.nu, steps=self.budget, start="zero")
