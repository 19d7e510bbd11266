"""Aggregators that prefer points with near neighbors.

Krum and multi-Krum (Blanchard et al. 2017), and Bulyan (El Mhamdi et al. 2018).

    >>> import numpy as np
    >>> updates = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1e8, 1e8]])
    >>> Krum(corrupted=1, neighbors=2)(updates).point
    array([1., 1.])

Points are counted without their weights; averages and medians are weighted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from rfa._checks import check_count
from rfa.aggregators.clear.base import Aggregate, InPlaceAggregator, average, to_aggregate
from rfa.aggregators.clear.corrupted import AssumesCorrupted
from rfa.errors import InvalidValueError
from rfa.numerics.coordinatewise import column_mean_near_median
from rfa.numerics.pairwise import krum_choices, krum_neighbors, krum_scores, pair_squares
from rfa.numerics.weighted import WeightedPoints


@final
@dataclass(frozen=True)
class MultiKrum(AssumesCorrupted, InPlaceAggregator):
    """The weighted mean of the points with the nearest neighbors.

    The score of a point is the sum of its squared distances to its nearest neighbors; the points
    with the lowest scores are averaged.

    Attributes:
        corrupted: the number f of the m points that may be corrupted, less than half of them.
        corrupted_fraction: instead, the fraction of the m points, rounded up to a count.
        keep: the number of points that are averaged; m - f by default.
        neighbors: the number of neighbors in a score; m - f - 2 by default, and at least 1.
    """

    keep: int | None = None
    neighbors: int | None = None

    def __post_init__(self) -> None:
        """Check the counts of points."""
        super().__post_init__()
        _check_counts(keep=self.keep, neighbors=self.neighbors)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        m = weighted.points.count
        corrupted = self.count_corrupted(m)
        keep = m - corrupted if self.keep is None else self.keep
        return _multi_krum(weighted, corrupted, keep, self.neighbors)


@final
@dataclass(frozen=True)
class Krum(AssumesCorrupted, InPlaceAggregator):
    """The point with the lowest score: multi-Krum that keeps a single point.

    Attributes:
        corrupted: the number f of the m points that may be corrupted, less than half of them.
        corrupted_fraction: instead, the fraction of the m points, rounded up to a count.
        neighbors: the number of neighbors in a score; m - f - 2 by default, and at least 1.
    """

    neighbors: int | None = None

    def __post_init__(self) -> None:
        """Check the counts of points."""
        super().__post_init__()
        _check_counts(neighbors=self.neighbors)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        corrupted = self.count_corrupted(weighted.points.count)
        return _multi_krum(weighted, corrupted, 1, self.neighbors)


@final
@dataclass(frozen=True)
class Bulyan(AssumesCorrupted, InPlaceAggregator):
    """The mean around the median of the points that Krum chooses.

    Krum chooses theta = m - 2 f points, one after another, each from the rest. The aggregate is, in
    each coordinate, the weighted mean of the theta - 2 f chosen values nearest to their weighted
    median.

    Attributes:
        corrupted: the number f of the m points that may be corrupted; unless it is 0, there must be
            at least 4 f + 3 points.
        corrupted_fraction: instead, the fraction of the m points, rounded up to a count.
    """

    @staticmethod
    def max_corrupted(m: int) -> int:
        """Return the most of m points that may be corrupted: m must be at least 4 f + 3."""
        return max((m - 3) // 4, 0)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        m = weighted.points.count
        f = self.count_corrupted(m)
        chosen = sorted(krum_choices(pair_squares(weighted), f, m - 2 * f))
        points, weights = weighted.points.select(chosen), weighted.alpha[chosen]
        count = len(chosen) - 2 * f
        columns = [column_mean_near_median(rows, weights, count) for rows in points.segments]
        return to_aggregate(weighted, np.concatenate(columns))


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None:
            check_count(name, count)


def _multi_krum(
    weighted: WeightedPoints, corrupted: int, keep: int, neighbors: int | None
) -> Aggregate:
    m = weighted.points.count
    if keep > m:
        msg = f"keep={keep} is too many: there are only {m} points"
        raise InvalidValueError(msg)
    count = krum_neighbors(m, corrupted) if neighbors is None else neighbors
    if count >= m:
        msg = f"neighbors={count} is too many: each of {m} points has only {m - 1} others"
        raise InvalidValueError(msg)
    scores = krum_scores(np.sort(pair_squares(weighted), axis=1), count)
    weights = weighted.alpha.copy()
    weights[np.argsort(scores, kind="stable")[keep:]] = 0
    return average(weighted, weights / weights.sum())
