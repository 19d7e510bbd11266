"""The aggregate of averages of points, where the averages need not all be held at once.

Each average is a row of an (n, m) matrix of weights, times the m points. An aggregator that
treats each coordinate by itself is given the averages some coordinates at a time. Others look at
whole vectors, and need a copy of n x d numbers. The distances of the averages could be had from
inner products of the points, but averages that are much nearer to each other than the points are
would lose their digits.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rfa._threads import in_threads
from rfa._types import Array, Floats
from rfa.aggregators.clear.paper import Aggregate, OfColumns, aggregate_of
from rfa.numerics.coordinatewise import BLOCK, DEPTH, TILE
from rfa.numerics.points import Cloud, Rows
from rfa.numerics.weighted import Cohort


class Answer(Protocol):
    """What an aggregator says: a point, and the weights of the given points in it."""

    @property
    def point(self) -> Any:
        """The aggregate."""

    @property
    def weights(self) -> Floats | None:
        """The weights, where there are such."""


class Aggregator(Protocol):
    """Any function of points and weights, such as `geometric_median` or a `SeesUpdates`."""

    def __call__(self, points: Any, weights: Any = None, /) -> Answer:
        """Aggregate m points."""
        ...


def aggregate_mixed(
    cohort: Cohort, mixing: Floats, weights: Floats, inner: Aggregator
) -> Aggregate:
    """The inner aggregate of averages of the points.

    Args:
        cohort: the points.
        mixing: the weights of the m points in each of the n averages, which sum to one.
        weights: the n weights of the averages.
        inner: the aggregator of the averages.
    """
    if isinstance(inner, OfColumns):
        return aggregate_of(cohort, _of_mixed_columns(cohort.cloud, mixing, weights, inner))
    found = inner(_mixed_points(cohort.cloud, mixing), weights)
    effective = None if found.weights is None else found.weights @ mixing
    return aggregate_of(cohort, found.point, effective)


def _of_mixed_columns(cloud: Cloud, mixing: Floats, weights: Floats, inner: OfColumns) -> Array:
    short = mixing.astype(_precision(cloud))
    pieces = in_threads(
        lambda place: inner.of_columns(_mix(short, *place), weights), _places(cloud, len(mixing))
    )
    return np.concatenate(list(pieces))


def _mixed_points(cloud: Cloud, mixing: Floats) -> Array:
    short = mixing.astype(_precision(cloud))
    answer, start = np.empty((len(mixing), cloud.dim), short.dtype), 0
    for piece in in_threads(lambda place: _mix(short, *place), _places(cloud, len(mixing))):
        answer[:, start : start + piece.shape[1]] = piece
        start += piece.shape[1]
    return answer


def _precision(cloud: Cloud) -> np.dtype[Any]:
    """The type to compute in: at least single precision."""
    return np.result_type(cloud.dtype, np.float32)


def _places(cloud: Cloud, count: int) -> list[tuple[Rows, slice]]:
    """The coordinates in pieces, of which so many averages make a block."""
    step = max(BLOCK // (max(count, cloud.rows) * np.dtype(np.float64).itemsize), 1)
    return [
        (segment, slice(start, min(start + step, width)))
        for segment, width in zip(cloud.segments, cloud.widths, strict=True)
        for start in range(0, width, step)
    ]


def _mix(mixing: Array, rows: Rows, where: slice) -> Array:
    """Some coordinates of the averages, by products that BLAS does not use threads for."""
    block = np.stack([row[where] for row in rows], dtype=mixing.dtype, casting="same_kind")
    n, (m, width) = len(mixing), block.shape
    step = max(TILE * DEPTH // m, 1)
    mixed = np.empty((n, width), mixing.dtype)
    for a in range(0, n, TILE):
        for b in range(0, width, step):
            tile = slice(a, a + TILE), slice(b, b + step)
            np.matmul(mixing[tile[0]], block[:, tile[1]], out=mixed[tile])
    return mixed
