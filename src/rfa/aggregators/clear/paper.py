"""The aggregators that the paper compares with, which must look at single updates.

The coordinate median and the trimmed mean (Yin et al. 2018), norm clipping (Sun et al. 2019), and
Krum and multi-Krum (Blanchard et al. 2017). Each is a value that is called with the points:

    >>> import numpy as np
    >>> updates = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1e8, 1e8]])
    >>> CoordinateMedian()(updates).point
    array([1., 1.])
    >>> Krum(corrupted=1, neighbors=2)(updates).point
    array([1., 1.])

None of them can be had from sums over devices, so none works under secure aggregation. That is
why they share the type `SeesUpdates`, which the secure modes do not take.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from rfa._checks import check_count, check_minority, check_number
from rfa._types import Array, Floats
from rfa.errors import InvalidValueError
from rfa.numerics.coordinatewise import column_median, column_trimmed_mean
from rfa.numerics.distances import weighted_quantile
from rfa.numerics.pairwise import krum_neighbors, krum_scores, pair_squares
from rfa.numerics.points import Rows
from rfa.numerics.weighted import Cohort, OnBad, read_cohort


@dataclass(frozen=True)
class Aggregate:
    """What an aggregator makes of a cohort.

    Attributes:
        point: the answer, in the form of the points.
        weights: the weights with which the points add up to it; None where every coordinate has
            its own.
        dropped: the points that were left out because they are not finite.
    """

    point: Any
    weights: Floats | None
    dropped: tuple[int, ...]


class SeesUpdates(ABC):
    """An aggregator that looks at single updates, and so cannot be run under a secure sum."""

    def __call__(self, points: Any, weights: Any = None, *, on_bad: OnBad = "raise") -> Aggregate:
        """Aggregate m points.

        Integer and boolean arrays inside of models, such as the counters of BatchNorm, are no
        coordinates; the answer carries their weighted median, element by element.

        Args:
            points: an (m, d) array; or a sequence of m arrays; or of m models, each a list, tuple
                or dict of arrays. numpy arrays or torch tensors; the answer is of the same kind.
            weights: m weights, not negative; equal ones by default. A point of weight zero is
                treated as if it were not there.
            on_bad: what to do about points that are not finite: "raise", or "drop" and report them.

        Raises:
            TypeError: if points or weights are not numbers.
            ValueError: if an argument has no meaning; the message names the value.
        """
        return self._aggregate(read_cohort(points, weights, on_bad))

    @abstractmethod
    def _aggregate(self, cohort: Cohort) -> Aggregate:
        """The aggregate of points that passed the checks."""


class OfColumns(SeesUpdates):
    """An aggregator that treats each coordinate by itself."""

    @abstractmethod
    def of_columns(self, rows: Rows, weights: Floats) -> Array:
        """The aggregate of each column of m vectors of finite floats with positive weights."""

    def _aggregate(self, cohort: Cohort) -> Aggregate:
        columns = [self.of_columns(segment, cohort.alpha) for segment in cohort.cloud.segments]
        return aggregate_of(cohort, np.concatenate(columns))


@final
@dataclass(frozen=True)
class CoordinateMedian(OfColumns):
    """The weighted median of each coordinate.

    Where exactly half of the weight lies on each side of a gap, it is the midpoint of the gap.
    """

    def of_columns(self, rows: Rows, weights: Floats) -> Array:
        """The weighted median of each column."""
        return column_median(rows, weights)


@final
@dataclass(frozen=True)
class TrimmedMean(OfColumns):
    """The weighted mean of each coordinate without its lowest and highest values.

    Attributes:
        share: how much of the total weight is cut off on each side, from 0 to below 1/2. A point
            on the border stays with the rest of its weight; for m points of equal weight and
            `share = f / m`, the f lowest and the f highest values go.
    """

    share: float

    def __post_init__(self) -> None:
        """Refuse what is no share, or would leave nothing."""
        check_number("share", self.share)
        if self.share >= 1 / 2:
            msg = f"share must be below 0.5, not {self.share!r}: nothing would be left to average"
            raise InvalidValueError(msg)

    def of_columns(self, rows: Rows, weights: Floats) -> Array:
        """The weighted mean of each column without its extremes."""
        return column_trimmed_mean(rows, weights, self.share)


@final
@dataclass(frozen=True, kw_only=True)
class NormClipping(SeesUpdates):
    """The weighted mean of the points after shortening those that are longer than a radius.

    Attributes:
        radius: the length that no update keeps more of.
        quantile: instead, the share of the weight that keeps its length, above 0 and up to 1: the
            radius is the smallest norm with at least this share of the weight at or below it.
    """

    radius: float | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        """Refuse radii without a meaning, and none or two of them."""
        if (self.radius is None) == (self.quantile is None):
            msg = f"give one of radius and quantile, not {self.radius!r} and {self.quantile!r}"
            raise InvalidValueError(msg)
        if self.radius is not None:
            check_number("radius", self.radius, positive=True)
        if self.quantile is not None:
            check_number("quantile", self.quantile, positive=True)
            if self.quantile > 1:
                msg = f"quantile must be at most 1, not {self.quantile!r}"
                raise InvalidValueError(msg)

    def _aggregate(self, cohort: Cohort) -> Aggregate:
        norms = np.sqrt(cohort.kernel.norms)
        radius = self.radius or weighted_quantile(norms, cohort.alpha, self.quantile or 1)
        return _average(cohort, cohort.alpha * kept_shares(norms, radius))


@final
@dataclass(frozen=True)
class MultiKrum(SeesUpdates):
    """The weighted mean of the points that have the nearest neighbors.

    The score of a point is the sum of its squared distances to some nearest others, whatever
    their weights; the points with the lowest scores are averaged.

    Attributes:
        corrupted: how many of the m points may be corrupted, f, less than half of them.
        keep: how many points are averaged; m - f by default.
        neighbors: how many others a score is made of; m - f - 2 by default, and at least 1.
    """

    corrupted: int
    keep: int | None = None
    neighbors: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers of points without a meaning."""
        _check_krum(self.corrupted, keep=self.keep, neighbors=self.neighbors)

    def _aggregate(self, cohort: Cohort) -> Aggregate:
        keep = cohort.cloud.rows - self.corrupted if self.keep is None else self.keep
        return _multi_krum(cohort, self.corrupted, keep, self.neighbors)


@final
@dataclass(frozen=True)
class Krum(SeesUpdates):
    """The point with the lowest score: multi-Krum that keeps one point.

    Attributes:
        corrupted: how many of the m points may be corrupted, f, less than half of them.
        neighbors: how many others a score is made of; m - f - 2 by default, and at least 1.
    """

    corrupted: int
    neighbors: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers of points without a meaning."""
        _check_krum(self.corrupted, neighbors=self.neighbors)

    def _aggregate(self, cohort: Cohort) -> Aggregate:
        return _multi_krum(cohort, self.corrupted, 1, self.neighbors)


def aggregate_of(cohort: Cohort, answer: Array, weights: Floats | None = None) -> Aggregate:
    """An aggregate with these coordinates, and the weights of the cohort's points in it."""
    point = cohort.restore(lambda where, dtype: answer[where].astype(dtype))
    spread = None if weights is None else cohort.spread(weights)
    return Aggregate(point, spread, cohort.dropped)


def kept_shares(norms: Floats, radius: float) -> Floats:
    """What is left of vectors of these norms, as a share, when they are cut to a radius."""
    return np.divide(radius, norms, out=np.ones(norms.size), where=norms > radius)


def _average(cohort: Cohort, weights: Floats) -> Aggregate:
    cohort.kernel.combine(weights)
    return Aggregate(cohort.restore(cohort.kernel.read), cohort.spread(weights), cohort.dropped)


def _check_krum(corrupted: Any, **counts: Any) -> None:
    check_count("corrupted", corrupted, least=0)
    for name, count in counts.items():
        if count is not None:
            check_count(name, count)


def _multi_krum(cohort: Cohort, corrupted: int, keep: int, neighbors: int | None) -> Aggregate:
    m = cohort.cloud.rows
    check_minority("corrupted", corrupted, m)
    if keep > m:
        msg = f"keep={keep} is too many: there are only {m} points"
        raise InvalidValueError(msg)
    count = krum_neighbors(m, corrupted) if neighbors is None else neighbors
    if count >= m:
        msg = f"neighbors={count} is too many: each of {m} points has only {m - 1} others"
        raise InvalidValueError(msg)
    scores = krum_scores(np.sort(pair_squares(cohort), axis=1), count)
    weights = cohort.alpha.copy()
    weights[np.argsort(scores, kind="stable")[keep:]] = 0
    return _average(cohort, weights / weights.sum())
