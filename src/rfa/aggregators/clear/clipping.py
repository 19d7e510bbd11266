"""Means of clipped points, so that no point has a large influence.

Norm clipping (Sun et al. 2019), and centered clipping (Karimireddy et al. 2021) on visible updates;
`rfa.aggregators.clipping` has the private variants, which need only sums.

    >>> import numpy as np
    >>> updates = np.array([[3.0, 0.0], [0.0, 4.0], [1e8, 0.0]])
    >>> NormClipping(clip_norm=6)(updates).point.round(3)
    array([3.   , 1.333])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Floats
from rfa.aggregators.clear.base import Aggregate, InPlaceAggregator, average
from rfa.errors import InvalidValueError
from rfa.numerics.distances import weighted_quantile
from rfa.numerics.weighted import WeightedPoints


@final
@dataclass(frozen=True, kw_only=True)
class NormClipping(InPlaceAggregator):
    """The weighted mean of the points, each clipped to a norm; exactly one parameter is set.

    Attributes:
        clip_norm: the norm that no point exceeds after clipping.
        quantile: instead, the fraction of the weight that is not clipped, above 0 and up to 1. The
            norm is the smallest with at least this fraction of the weight at or below it.
    """

    clip_norm: float | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        """Check the norm or the quantile."""
        if (self.clip_norm is None) == (self.quantile is None):
            msg = (
                f"give one of clip_norm and quantile, not {self.clip_norm!r} and {self.quantile!r}"
            )
            raise InvalidValueError(msg)
        if self.clip_norm is not None:
            check_number("clip_norm", self.clip_norm, positive=True)
        if self.quantile is not None:
            check_number("quantile", self.quantile, positive=True)
            if self.quantile > 1:
                msg = f"quantile must be at most 1, not {self.quantile!r}"
                raise InvalidValueError(msg)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        norms, alpha = np.sqrt(weighted.geometry.squared_norms), weighted.alpha
        clip_norm = self.clip_norm or weighted_quantile(norms, alpha, self.quantile or 1)
        return average(weighted, alpha * clip_factors(norms, clip_norm))


@final
@dataclass(frozen=True, eq=False)
class CenteredClipping(InPlaceAggregator):
    """Steps from a start by the weighted mean of the clipped differences.

    A step goes from v to v + sum_i alpha_i (w_i - v) min(1, clip_norm / |w_i - v|). The weights in
    the result sum to less than one; the rest is the weight of the start.

    Attributes:
        clip_norm: the norm that no difference from v exceeds after clipping.
        steps: the number of steps L.
        start: a vector or model, such as the aggregate of the round before; zero by default.
    """

    clip_norm: float
    steps: int = 1
    start: Any = None

    def __post_init__(self) -> None:
        """Check the norm and the number of steps."""
        check_number("clip_norm", self.clip_norm, positive=True)
        check_count("steps", self.steps)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        geometry, weights = weighted.geometry, np.zeros(weighted.points.count)
        center = None if self.start is None else weighted.points.flatten(self.start, "start")
        if center is not None and not np.isfinite(center).all():
            msg = "start must be finite, and is not: correct it, or start at zero with start=None"
            raise InvalidValueError(msg)
        for _ in range(self.steps):
            squares = geometry.squared_norms
            distances = np.sqrt(squares) if center is None else geometry.center(center)
            step = weighted.alpha * clip_factors(distances, self.clip_norm)
            weights = (1 - step.sum()) * weights + step
            geometry.combine(step)
            center = geometry.average(slice(weighted.points.dim), np.float64)
        point = weighted.restore(geometry.average)
        return Aggregate(point, weighted.spread(weights), weighted.dropped)


def clip_factors(norms: Floats, clip_norm: float) -> Floats:
    """Return the factors that clip vectors of these norms."""
    return np.divide(clip_norm, norms, out=np.ones(norms.size), where=norms > clip_norm)
