"""The base of all aggregators that see single updates: the call, its checks, and the result.

None of them can be computed from sums over devices, so none works under secure aggregation. So they
share the type `ClearAggregator`, which the secure modes do not accept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from rfa._types import Array, Floats
from rfa.errors import InvalidValueError
from rfa.numerics.points import Rows, to_numpy
from rfa.numerics.weighted import OnBad, WeightedPoints, read_weighted_points


@dataclass(frozen=True)
class Aggregate:
    """The result of an aggregator.

    Attributes:
        point: the aggregate, in the form of the points.
        weights: the weights with which the points add up to it; None if there are none, for example
            if every coordinate has its own.
        dropped: the points that were left out because they are not finite.
    """

    point: Any
    weights: Floats | None
    dropped: tuple[int, ...]


class ClearAggregator(ABC):
    """An aggregator that sees single updates, so it cannot run under secure aggregation.

    To write your own, define `aggregate`. It gets finite points as the rows of a matrix and
    positive weights that sum to one. The base class handles forms, checks and points that are not
    finite:

        >>> class Midrange(ClearAggregator):
        ...     def aggregate(self, points, weights):
        ...         return (points.min(axis=0) + points.max(axis=0)) / 2
        >>> models = [{"w": np.array([0.0, 2.0])}, {"w": np.array([4.0, np.nan])}]
        >>> Midrange()([*models, {"w": np.array([1.0, 1.0])}], on_bad="drop")
        Aggregate(point={'w': array([0.5, 1.5])}, weights=None, dropped=(1,))

    Make a class with parameters a frozen dataclass that checks them in `__post_init__`.
    """

    def __call__(self, points: Any, weights: Any = None, *, on_bad: OnBad = "raise") -> Aggregate:
        """Aggregate m points.

        Integer and boolean arrays in models, such as the counters of BatchNorm, are not
        coordinates. The result contains their weighted median, element by element.

        Args:
            points: an (m, d) array; or a sequence of m arrays; or of m models, each a list, tuple
                or dict of arrays. They are numpy arrays or torch tensors, and the result has the
                same kind.
            weights: m weights, not negative; equal by default. A point of weight zero is ignored.
            on_bad: what to do about points that are not finite: "raise", or "drop" and report them.

        Raises:
            TypeError: if points or weights are not numbers.
            ValueError: if an argument is out of range; the message names the value.
        """
        return self._aggregate(read_weighted_points(points, weights, on_bad))

    @abstractmethod
    def aggregate(self, points: Array, weights: Floats) -> Array:
        """Compute the aggregate of a matrix.

        Args:
            points: an (m, d) matrix of finite floats, in the precision of the caller's points and
                at least float32. It is read-only, and may be the caller's own array.
            weights: m positive weights that sum to one.

        Returns:
            A vector of d coordinates.
        """

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        """Return the aggregate of points that passed the checks."""
        answer = to_numpy(self.aggregate(weighted.points.matrix(), weighted.alpha), "the aggregate")
        if answer.shape != (weighted.points.dim,):
            msg = (
                f"{type(self).__name__}.aggregate must return a vector of "
                f"{weighted.points.dim} coordinates, not shape {answer.shape}"
            )
            raise InvalidValueError(msg)
        return to_aggregate(weighted, answer)


class InPlaceAggregator(ClearAggregator):
    """An aggregator that reads the points in place, without a copy."""

    @final
    def aggregate(self, points: Array, weights: Floats) -> Array:
        """Compute the aggregate of a matrix."""
        return self(points, weights).point

    @abstractmethod
    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        """Return the aggregate of points that passed the checks."""


class ColumnwiseAggregator(InPlaceAggregator):
    """An aggregator that treats each coordinate separately."""

    @abstractmethod
    def aggregate_columns(self, rows: Rows, weights: Floats) -> Array:
        """Return the aggregate of each column of m finite vectors with positive weights."""

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        segments = weighted.points.segments
        columns = [self.aggregate_columns(segment, weighted.alpha) for segment in segments]
        return to_aggregate(weighted, np.concatenate(columns))


def to_aggregate(
    weighted: WeightedPoints, answer: Array, weights: Floats | None = None
) -> Aggregate:
    """Return an aggregate with these coordinates, and the weights of the points in it."""
    point = weighted.restore(lambda where, dtype: answer[where].astype(dtype))
    spread = None if weights is None else weighted.spread(weights)
    return Aggregate(point, spread, weighted.dropped)


def average(weighted: WeightedPoints, weights: Floats) -> Aggregate:
    """Return the sum of the points with these weights."""
    geometry = weighted.geometry
    geometry.combine(weights)
    return Aggregate(weighted.restore(geometry.average), weighted.spread(weights), weighted.dropped)
