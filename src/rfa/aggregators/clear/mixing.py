"""Aggregators of averages of points, which prepare points for another aggregator.

Nearest-neighbor mixing (Allouah et al. 2023) and bucketing (Karimireddy et al. 2022).

    >>> import numpy as np
    >>> updates = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [1e8, 1e8]])
    >>> NearestNeighborMixing(corrupted=1)(updates).point
    array([1., 1.])

Each average is a row of an (n, m) matrix of weights, times the m points. An inner aggregator that
treats each coordinate separately gets the averages some coordinates at a time, so they are never
all in memory at once. Others need complete vectors, and so a copy of n x d numbers. The distances
of the averages could be computed from inner products of the points, but averages that are much
nearer to each other than the points would lose their digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final

import numpy as np

from rfa._checks import check_count
from rfa._threads import in_threads
from rfa._types import Array, Floats
from rfa.aggregators.clear.base import (
    Aggregate,
    ColumnwiseAggregator,
    InPlaceAggregator,
    to_aggregate,
)
from rfa.aggregators.clear.coordinatewise import TrimmedMean
from rfa.aggregators.clear.corrupted import AssumesCorrupted
from rfa.errors import InvalidTypeError
from rfa.numerics.coordinatewise import BLOCK, DEPTH, TILE
from rfa.numerics.pairwise import pair_squares
from rfa.numerics.points import Points, Rows
from rfa.numerics.weighted import WeightedPoints

Columns: TypeAlias = tuple[Rows, slice]
"""Some coordinates of a segment of the points."""


class InnerAggregate(Protocol):
    """The result of an inner aggregator."""

    @property
    def point(self) -> Any:
        """The aggregate."""

    @property
    def weights(self) -> Floats | None:
        """The weights of the given points in it, if it has any."""


class InnerAggregator(Protocol):
    """Any function of points and weights, such as `geometric_median` or a `ClearAggregator`."""

    def __call__(self, points: Any, weights: Any = None, /) -> InnerAggregate:
        """Aggregate m points."""
        ...


@final
@dataclass(frozen=True)
class NearestNeighborMixing(AssumesCorrupted, InPlaceAggregator):
    """An aggregate of the means of each point's nearest points.

    Each point is replaced by the weighted mean of the m - f points nearest to it, including itself,
    and keeps its weight. Neighbors are counted without their weights.

    Attributes:
        corrupted: the number f of the m points that may be corrupted, less than half of them.
        corrupted_fraction: instead, the fraction of the m points, rounded up to a count.
        inner: the aggregator of the means, such as `geometric_median`; `TrimmedMean(f / m)` by
            default. One that treats each coordinate separately needs no copy of the points.
    """

    inner: InnerAggregator | None = None

    def __post_init__(self) -> None:
        """Check the count or fraction, and that the inner aggregator is callable."""
        super().__post_init__()
        if self.inner is not None:
            _check_inner(self.inner)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        m, alpha = weighted.points.count, weighted.alpha
        corrupted = self.count_corrupted(m)
        inner = TrimmedMean(corrupted / m) if self.inner is None else self.inner
        squares = pair_squares(weighted)
        np.fill_diagonal(squares, -1)  # the point itself comes before its copies
        nearest = squares.argsort(axis=1, kind="stable")[:, : m - corrupted]
        mixing = np.zeros((m, m))
        np.put_along_axis(mixing, nearest, alpha[nearest], axis=1)
        mixing /= mixing.sum(axis=1, keepdims=True)
        return _aggregate_averages(weighted, mixing, alpha, inner)


@final
@dataclass(frozen=True)
class Bucketing(InPlaceAggregator):
    """An aggregate of the means of random buckets of points.

    A bucket has the weighted mean of its points, and their total weight. The last one may have
    fewer points. With c corrupted points, up to c buckets are corrupted.

    Attributes:
        bucket_size: the number s of points in a bucket; 1 leaves the points as they are.
        inner: the aggregator of the means, such as `Krum` or `geometric_median`.
        seed: decides the random order. A whole number gives the same order in each call with the
            same number of points; a generator continues from call to call.
    """

    bucket_size: int
    inner: InnerAggregator
    seed: int | np.random.Generator

    def __post_init__(self) -> None:
        """Check the size and the seed, and that the inner aggregator is callable."""
        check_count("bucket_size", self.bucket_size)
        _check_inner(self.inner)
        if not isinstance(self.seed, np.random.Generator):
            check_count("seed", self.seed, least=0)

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        m = weighted.points.count
        order = np.random.default_rng(self.seed).permutation(m)
        mixing = np.zeros((-(-m // self.bucket_size), m))
        mixing[np.arange(m) // self.bucket_size, order] = weighted.alpha[order]
        weights = mixing.sum(axis=1)
        return _aggregate_averages(weighted, mixing / weights[:, None], weights, self.inner)


def _check_inner(inner: Any) -> None:
    if not callable(inner) or isinstance(inner, type):
        msg = f"inner must be an aggregator, such as TrimmedMean(0.25), not {inner!r}"
        raise InvalidTypeError(msg)


def _aggregate_averages(
    weighted: WeightedPoints, mixing: Floats, weights: Floats, inner: InnerAggregator
) -> Aggregate:
    """Return the inner aggregate of averages of the points.

    Args:
        weighted: the points.
        mixing: the weights of the m points in each of the n averages, which sum to one.
        weights: the n weights of the averages.
        inner: the aggregator of the averages.
    """
    short = mixing.astype(np.result_type(weighted.points.dtype, np.float32))
    if isinstance(inner, ColumnwiseAggregator):
        return to_aggregate(weighted, _columnwise(weighted.points, short, weights, inner))
    answer = inner(_average_all(weighted.points, short), weights)
    effective = None if answer.weights is None else answer.weights @ mixing
    return to_aggregate(weighted, answer.point, effective)


def _columnwise(
    points: Points, mixing: Array, weights: Floats, inner: ColumnwiseAggregator
) -> Array:
    pieces = in_threads(
        lambda columns: inner.aggregate_columns(_average_columns(mixing, *columns), weights),
        _split_columns(points, len(mixing)),
    )
    return np.concatenate(list(pieces))


def _average_all(points: Points, mixing: Array) -> Array:
    averages, start = np.empty((len(mixing), points.dim), mixing.dtype), 0
    for piece in in_threads(
        lambda columns: _average_columns(mixing, *columns), _split_columns(points, len(mixing))
    ):
        averages[:, start : start + piece.shape[1]] = piece
        start += piece.shape[1]
    return averages


def _split_columns(points: Points, count: int) -> list[Columns]:
    """Return the coordinates in pieces for which the averages fill one block."""
    step = max(BLOCK // (max(count, points.count) * np.dtype(np.float64).itemsize), 1)
    return [
        (segment, slice(start, min(start + step, width)))
        for segment, width in zip(points.segments, points.widths, strict=True)
        for start in range(0, width, step)
    ]


def _average_columns(mixing: Array, rows: Rows, where: slice) -> Array:
    """Return some coordinates of the averages, by products too small for BLAS threads."""
    block = np.stack([row[where] for row in rows], dtype=mixing.dtype, casting="same_kind")
    n, (m, width) = len(mixing), block.shape
    step = max(TILE * DEPTH // m, 1)
    averages = np.empty((n, width), mixing.dtype)
    for a in range(0, n, TILE):
        for b in range(0, width, step):
            tile = slice(a, a + TILE), slice(b, b + step)
            np.matmul(mixing[tile[0]], block[:, tile[1]], out=averages[tile])
    return averages
