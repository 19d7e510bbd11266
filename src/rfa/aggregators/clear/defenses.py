"""Defenses from the literature after the paper's comparators; all look at single updates.

MeaMed (Xie et al. 2018), Bulyan (El Mhamdi et al. 2018), centered clipping (Karimireddy et al.
2021), and two that come before another aggregator: bucketing (Karimireddy et al. 2022) and
nearest-neighbor mixing (Allouah et al. 2023).

    >>> import numpy as np
    >>> from rfa.aggregators.clear.paper import TrimmedMean
    >>> updates = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [1e8, 1e8]])
    >>> MeaMed(corrupted=1)(updates).point
    array([1., 1.])
    >>> NearestNeighborMixing(corrupted=1, inner=TrimmedMean(1 / 4))(updates).point
    array([1., 1.])

Where they count points, such as f corrupted ones or the nearest neighbors, they count them
whatever their weights; where they average or take a median, the weights count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from rfa._checks import check_count, check_minority, check_number
from rfa._types import Array, Floats
from rfa.aggregators.clear.mixing import Aggregator, aggregate_mixed
from rfa.aggregators.clear.paper import Aggregate, OfColumns, SeesUpdates, aggregate_of, kept_shares
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.numerics.coordinatewise import column_mean_near_median
from rfa.numerics.pairwise import krum_choices, pair_squares
from rfa.numerics.points import Rows
from rfa.numerics.weighted import Cohort


@final
@dataclass(frozen=True)
class MeaMed(OfColumns):
    """The weighted mean, in each coordinate, of the m - f values nearest to the weighted median.

    Of two values at the same distance from the median the lower one is nearer.

    Attributes:
        corrupted: how many of the m points may be corrupted, f, less than half of them.
    """

    corrupted: int

    def __post_init__(self) -> None:
        """Refuse numbers of points without a meaning."""
        check_count("corrupted", self.corrupted, least=0)

    def of_columns(self, rows: Rows, weights: Floats) -> Array:
        """The weighted mean of each column's values near its median."""
        check_minority("corrupted", self.corrupted, len(rows))
        return column_mean_near_median(rows, weights, len(rows) - self.corrupted)


@final
@dataclass(frozen=True)
class Bulyan(SeesUpdates):
    """The mean around the median of points that Krum chooses.

    Krum chooses theta = m - 2 f points, one after another, each from those that are left. The
    aggregate is, in each coordinate, the weighted mean of the theta - 2 f chosen values nearest to
    their weighted median.

    Attributes:
        corrupted: how many of the m points may be corrupted, f; unless it is 0, there must be
            4 f + 3 points or more.
    """

    corrupted: int

    def __post_init__(self) -> None:
        """Refuse numbers of points without a meaning."""
        check_count("corrupted", self.corrupted, least=0)

    @staticmethod
    def most(m: int) -> int:
        """The most of m points that may be corrupted."""
        return max((m - 3) // 4, 0)

    def _aggregate(self, cohort: Cohort) -> Aggregate:
        f, m = self.corrupted, cohort.cloud.rows
        if f > self.most(m):
            msg = (
                f"corrupted={f} is too many for {m} points, since Bulyan needs 4 f + 3 = "
                f"{4 * f + 3}: give more points, or corrupted={self.most(m)} or less"
            )
            raise InvalidValueError(msg)
        chosen = sorted(krum_choices(pair_squares(cohort), f, m - 2 * f))
        cloud, weights = cohort.cloud.keep(chosen), cohort.alpha[chosen]
        count = len(chosen) - 2 * f
        columns = [column_mean_near_median(rows, weights, count) for rows in cloud.segments]
        return aggregate_of(cohort, np.concatenate(columns))


@final
@dataclass(frozen=True)
class NearestNeighborMixing(SeesUpdates):
    """An aggregate of points each of which is replaced by the mean of its nearest.

    The weighted mean of the m - f nearest points, itself included, takes the place and the weight
    of each point.

    Attributes:
        corrupted: how many of the m points may be corrupted, f, less than half of them.
        inner: the aggregator of the means, such as `TrimmedMean(f / m)` or `geometric_median`. One
            that treats each coordinate by itself needs no copy of the points, others need one.
    """

    corrupted: int
    inner: Aggregator

    def __post_init__(self) -> None:
        """Refuse numbers of points without a meaning, and what cannot aggregate."""
        check_count("corrupted", self.corrupted, least=0)
        _check_inner(self.inner)

    def _aggregate(self, cohort: Cohort) -> Aggregate:
        m = cohort.cloud.rows
        check_minority("corrupted", self.corrupted, m)
        squares = pair_squares(cohort)
        np.fill_diagonal(squares, -1)  # before all copies of a point comes the point itself
        nearest = squares.argsort(axis=1, kind="stable")[:, : m - self.corrupted]
        mixing = np.zeros((m, m))
        np.put_along_axis(mixing, nearest, cohort.alpha[nearest], axis=1)
        mixing /= mixing.sum(axis=1, keepdims=True)
        return aggregate_mixed(cohort, mixing, cohort.alpha, self.inner)


@final
@dataclass(frozen=True)
class Bucketing(SeesUpdates):
    """An aggregate of the means of points that are dealt out to buckets at random.

    A bucket has the weighted mean of its points, and their weight. The last one may have fewer
    points. With c corrupted points, up to c buckets are corrupted.

    Attributes:
        size: how many points a bucket has, s; 1 leaves the points as they are.
        inner: the aggregator of the means, such as `Krum` or `geometric_median`.
        seed: decides the random order. A whole number gives the same order in each call with as
            many points; a generator goes on from call to call.
    """

    size: int
    inner: Aggregator
    seed: int | np.random.Generator

    def __post_init__(self) -> None:
        """Refuse sizes and seeds without a meaning, and what cannot aggregate."""
        check_count("size", self.size)
        _check_inner(self.inner)
        if not isinstance(self.seed, np.random.Generator):
            check_count("seed", self.seed, least=0)

    def _aggregate(self, cohort: Cohort) -> Aggregate:
        m = cohort.cloud.rows
        order = np.random.default_rng(self.seed).permutation(m)
        mixing = np.zeros((-(-m // self.size), m))
        mixing[np.arange(m) // self.size, order] = cohort.alpha[order]
        weights = mixing.sum(axis=1)
        return aggregate_mixed(cohort, mixing / weights[:, None], weights, self.inner)


@final
@dataclass(frozen=True, eq=False)
class CenteredClipping(SeesUpdates):
    """Steps from a start by the weighted mean of the differences, cut to a radius.

    A step goes from v to v + sum_i alpha_i (w_i - v) min(1, radius / |w_i - v|). Of the weights
    that the aggregate reports, what is missing to one lies on the start.

    Attributes:
        radius: the length that no difference from v keeps more of.
        steps: how many steps, L.
        start: a vector or model, such as the aggregate of the round before; zero by default.
    """

    radius: float
    steps: int = 1
    start: Any = None

    def __post_init__(self) -> None:
        """Refuse radii and numbers of steps without a meaning."""
        check_number("radius", self.radius, positive=True)
        check_count("steps", self.steps)

    def _aggregate(self, cohort: Cohort) -> Aggregate:
        kernel, weights = cohort.kernel, np.zeros(cohort.cloud.rows)
        center = None if self.start is None else cohort.cloud.flatten(self.start, "start")
        if center is not None and not np.isfinite(center).all():
            msg = "start must be finite, and is not: mend it, or start at zero with start=None"
            raise InvalidValueError(msg)
        for _ in range(self.steps):
            distances = np.sqrt(kernel.norms) if center is None else kernel.center(center)
            step = cohort.alpha * kept_shares(distances, self.radius)
            weights = (1 - step.sum()) * weights + step
            kernel.combine(step)
            center = kernel.read(slice(cohort.cloud.dim), np.float64)
        return Aggregate(cohort.restore(kernel.read), cohort.spread(weights), cohort.dropped)


def _check_inner(inner: Any) -> None:
    if not callable(inner) or isinstance(inner, type):
        msg = f"inner must be an aggregator, such as TrimmedMean(0.25), not {inner!r}"
        raise InvalidTypeError(msg)
