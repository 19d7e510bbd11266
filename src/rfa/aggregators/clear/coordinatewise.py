"""Aggregators that treat each coordinate separately.

The coordinate median and the trimmed mean (Yin et al. 2018), and MeaMed, the mean around the median
(Xie et al. 2018).

    >>> import numpy as np
    >>> updates = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [1e8, 1e8]])
    >>> CoordinateMedian()(updates).point
    array([1.5, 1.5])
    >>> MeaMed(corrupted=1)(updates).point
    array([1., 1.])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from rfa._checks import check_number
from rfa._types import Array, Floats
from rfa.aggregators.clear.base import ColumnwiseAggregator
from rfa.aggregators.clear.corrupted import AssumesCorrupted
from rfa.errors import InvalidValueError
from rfa.numerics.coordinatewise import (
    column_mean_near_median,
    column_median,
    column_trimmed_mean,
)
from rfa.numerics.points import Rows


@final
@dataclass(frozen=True)
class CoordinateMedian(ColumnwiseAggregator):
    """The weighted median of each coordinate.

    If exactly half of the weight lies on each side of a gap, it is the midpoint of the gap.
    """

    def aggregate_columns(self, rows: Rows, weights: Floats) -> Array:
        """Return the weighted median of each column."""
        return column_median(rows, weights)


@final
@dataclass(frozen=True)
class TrimmedMean(ColumnwiseAggregator):
    """The weighted mean of each coordinate without its lowest and highest values.

    Attributes:
        fraction: the fraction of the total weight that is removed on each side, from 0 to below
            1/2. A point on the border keeps the rest of its weight. For m points of equal weight
            and `fraction = f / m`, the f lowest and the f highest values are removed.
    """

    fraction: float

    def __post_init__(self) -> None:
        """Check the fraction."""
        check_number("fraction", self.fraction)
        if self.fraction >= 1 / 2:
            msg = f"fraction must be below 0.5, not {self.fraction!r}: nothing would be left"
            raise InvalidValueError(msg)

    def aggregate_columns(self, rows: Rows, weights: Floats) -> Array:
        """Return the weighted mean of each column without its extremes."""
        return column_trimmed_mean(rows, weights, self.fraction)


@final
@dataclass(frozen=True)
class MeaMed(AssumesCorrupted, ColumnwiseAggregator):
    """The weighted mean, in each coordinate, of the m - f values nearest to the weighted median.

    The m - f values are counted without their weights. Of two values at the same distance from the
    median, the lower one is nearer.

    Attributes:
        corrupted: the number f of the m points that may be corrupted, less than half of them.
        corrupted_fraction: instead, the fraction of the m points, rounded up to a count.
    """

    def aggregate_columns(self, rows: Rows, weights: Floats) -> Array:
        """Return the weighted mean of each column's values near its median."""
        m = len(rows)
        return column_mean_near_median(rows, weights, m - self.count_corrupted(m))
