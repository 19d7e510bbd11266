"""Aggregators that keep similar points: FLAME and SignGuard.

FLAME (Nguyen et al. 2022) clusters by angles, SignGuard (Xu et al. 2022) by signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from rfa._checks import check_number
from rfa._types import Floats
from rfa.aggregators.clear.base import Aggregate, InPlaceAggregator, average, to_aggregate
from rfa.aggregators.clear.clipping import clip_factors
from rfa.aggregators.clear.randomized import Randomized
from rfa.errors import InvalidValueError
from rfa.numerics.clustering import (
    cosines,
    majority_cluster,
    mean_shift,
    pick_columns,
)
from rfa.numerics.weighted import WeightedPoints


@final
@dataclass(frozen=True)
class FLAME(Randomized, InPlaceAggregator):
    """The clipped mean, with noise, of a majority of points with similar directions.

    HDBSCAN by cosine distances, with a cluster of more than half of the points, decides which
    points are admitted. Admitted points are clipped to the median norm of all points. Each
    coordinate of their weighted mean gets Gaussian noise of `noise` times that norm. The paper
    clusters the models that devices send; here it is their updates. The weights in the result are
    those before the noise.

    Attributes:
        noise: the standard deviation of the noise divided by the median norm, lambda; the paper
            uses 0.001.
    """

    noise: float = 0.001

    def __post_init__(self) -> None:
        """Check the noise."""
        self.check_seed()
        check_number("noise", self.noise)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        m, norms = weighted.points.count, np.sqrt(weighted.geometry.squared_norms)
        admitted = majority_cluster(1 - cosines(weighted.points, norms), m // 2 + 1)
        clip_norm = float(np.median(norms))
        weights = _mean_weights(weighted.alpha, admitted) * clip_factors(norms, clip_norm)
        weighted.geometry.combine(weights)
        mean = weighted.geometry.average(slice(weighted.points.dim), np.float64)
        noise = self.rng().standard_normal(len(mean)) * (self.noise * clip_norm)
        return to_aggregate(weighted, mean + noise, weights)


@final
@dataclass(frozen=True)
class SignGuard(Randomized, InPlaceAggregator):
    """The clipped mean of points of usual length with similar signs.

    A point has a usual length if its norm is `low` to `high` times the median norm. Mean shift
    clusters the points by the fractions of positive, zero and negative signs in some random
    coordinates, and the largest cluster is kept. Points that pass both tests are clipped to the
    median norm. If none pass, the aggregate is zero.

    Attributes:
        low: the least norm divided by the median norm; the paper uses 0.1.
        high: the largest; the paper uses 3.
        fraction: the fraction of the coordinates whose signs are counted; the paper uses 0.1.
        quantile: the fraction of the points that decides the bandwidth of mean shift.
    """

    low: float = 0.1
    high: float = 3.0
    fraction: float = 0.1
    quantile: float = 0.5

    def __post_init__(self) -> None:
        """Check the bounds and the fractions."""
        self.check_seed()
        check_number("low", self.low)
        check_number("high", self.high, positive=True)
        if self.low > self.high:
            msg = f"low must be at most high, not {self.low!r} above {self.high!r}"
            raise InvalidValueError(msg)
        for name in ("fraction", "quantile"):
            check_number(name, getattr(self, name), positive=True)
            if getattr(self, name) > 1:
                msg = f"{name} must be at most 1, not {getattr(self, name)!r}"
                raise InvalidValueError(msg)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        norms, dim = np.sqrt(weighted.geometry.squared_norms), weighted.points.dim
        clip_norm = float(np.median(norms))
        usual = (norms >= self.low * clip_norm) & (norms <= self.high * clip_norm)
        columns = self.rng().choice(dim, max(1, round(self.fraction * dim)), replace=False)
        signs = np.sign(pick_columns(weighted.points, np.sort(columns)))
        features = np.stack([(signs == sign).mean(axis=1) for sign in (1, 0, -1)], axis=1)
        labels = mean_shift(features, self.quantile)
        kept = np.flatnonzero(usual & (labels == np.bincount(labels).argmax()))
        weights = _mean_weights(weighted.alpha, kept) * clip_factors(norms, clip_norm)
        return average(weighted, weights)


def _mean_weights(alpha: Floats, chosen: Any) -> Floats:
    """Return the weights of the mean of some points; zero everywhere, if there are none."""
    weights = np.zeros(len(alpha))
    weights[chosen] = alpha[chosen]
    return weights / (weights.sum() or 1)
