"""Divide and conquer: removes points that stand out along the direction of largest variance.

DnC is by Shejwalkar and Houmansadr (2021), "Manipulating the Byzantine".

    >>> import numpy as np
    >>> updates = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [1e8, 1e8]])
    >>> DnC(corrupted=1)(updates).point
    array([1., 1.])
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Floats
from rfa.aggregators.clear.base import Aggregate, InPlaceAggregator, average
from rfa.aggregators.clear.corrupted import AssumesCorrupted
from rfa.aggregators.clear.randomized import Randomized
from rfa.numerics.clustering import gram, pick_columns
from rfa.numerics.weighted import WeightedPoints


@final
@dataclass(frozen=True)
class DnC(Randomized, AssumesCorrupted, InPlaceAggregator):
    """The weighted mean of the points that do not stand out.

    An iteration takes some random coordinates, and scores each centered point by its squared
    projection on the top right singular vector of the centered points. It removes the
    `filter_fraction` f points with the highest scores. The mean is over the points that all
    iterations keep, or, if there are none, those that most of them keep. Points are counted without
    their weights; the final mean is weighted.

    Attributes:
        corrupted: the number f of the m points that may be corrupted, less than half of them.
        corrupted_fraction: instead, the fraction of the m points, rounded up to a count.
        iterations: the number of iterations; the paper uses 1.
        coordinates: the number b of coordinates in each; the paper uses 10,000.
        filter_fraction: the number of removed points as a multiple c of f; the paper uses 1.
    """

    iterations: int = 1
    coordinates: int = 10_000
    filter_fraction: float = 1.0

    def __post_init__(self) -> None:
        """Check the counts."""
        super().__post_init__()
        self.check_seed()
        check_count("iterations", self.iterations)
        check_count("coordinates", self.coordinates)
        check_number("filter_fraction", self.filter_fraction, positive=True)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        m, dim, rng = weighted.points.count, weighted.points.dim, self.rng()
        keep = max(1, m - math.ceil(self.filter_fraction * self.count_corrupted(m)))
        times = np.zeros(m, np.int64)
        for _ in range(self.iterations):
            columns = np.sort(rng.choice(dim, min(self.coordinates, dim), replace=False))
            scores = outlier_scores(pick_columns(weighted.points, columns))
            times[np.argsort(scores, kind="stable")[:keep]] += 1
        weights = np.where(times == times.max(), weighted.alpha, 0)
        return average(weighted, weights / weights.sum())


def outlier_scores(rows: Floats) -> Floats:
    """Return the squared projections of the centered rows on their top right singular vector.

    With the singular value s and the left singular vector u, they are s^2 u_i^2.
    """
    centered = rows - rows.mean(axis=0)
    centered /= max(float(np.abs(centered).max()), np.finfo(np.float64).tiny)
    values, vectors = np.linalg.eigh(gram(centered))
    return values[-1] * np.square(vectors[:, -1])
