"""The geometry of points of any size: two matrix-vector products, which run at memory speed.

    u = sum_i weights_i x_i,   |x_i - u|^2 = |x_i|^2 - 2 <x_i, u> + |u|^2,   x_i = w_i - center

The points are read block by block where they lie. What must be converted or centered is copied
into a small scratch space. For a few points all inner products are taken once, and no step needs
the points again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard, final

import numpy as np

from rfa._threads import in_threads
from rfa._types import Array, Floats
from rfa.numerics.distances import Geometry
from rfa.numerics.points import Points, Rows

Work: TypeAlias = Callable[[Array, slice], Array]

LARGE = 1 << 22
"""From so many numbers on, sums of squares are shared out to threads."""
BLOCK = 1 << 21
"""Numbers in a block, so that its second product finds them in the cache."""
SQUARES = 1 << 23
"""Numbers in a block for sums of squares, which read them once and like long rows."""
WIDTH = 1 << 17
"""Coordinates in a block at most; across blocks, sums go on in float64."""
FEW = 16
"""Up to so many points, all their inner products cost less than the steps that they save."""
RUN = 1 << 12
"""Squares added up in working precision, where errors do not cancel, before float64."""
SCRATCH = 16
"""What must be centered or converted is copied: at most this part of the points at once."""


@final
class StreamingGeometry(Geometry):
    """Points of any size, read block by block where they lie."""

    def __init__(self, points: Points, alpha: Floats, dtype: Any) -> None:
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self.eps = float(np.finfo(self._dtype).eps)
        self._scratch: Array | None = None
        self._average: Array = np.zeros(0, self._dtype)
        self._pending: Floats | None = None
        self._gram: Floats | None = None
        super().__init__(points, alpha)

    def _center_on(self, at: Array | int | None) -> Floats:
        if isinstance(at, int):
            self._center = self._points.point(at, self._dtype)
        else:
            self._center = None if at is None else at.astype(self._dtype)
        if self._points.count <= FEW:
            self._gram = self._sweep(lambda block, _: _inner_products(block))
            return self._gram.diagonal()
        in_place = all(self._is_readable_in_place(segment) for segment in self._points.segments)
        large = self._points.count * self._points.dim >= LARGE
        sweep = self._sweep_in_threads if in_place and large else self._sweep
        return sweep(lambda block, _: _row_squares(block), SQUARES)

    def combine(self, weights: Floats) -> None:
        """Set the average to center + sum_i weights_i (w_i - center), and measure nothing."""
        self._pending = None
        short, average = self._shorten(weights)
        self._sweep(lambda block, where: np.matmul(short, block, out=average[where])[:0])

    def _squares_from_average(self, weights: Floats) -> Floats:
        if self._gram is not None:
            self._pending, inner = weights, self._gram @ weights
            return np.maximum(self.squared_norms - 2 * inner + weights @ inner, 0)
        short, average = self._shorten(weights)

        def products(block: Array, where: slice) -> Array:
            return block @ np.matmul(short, block, out=average[where])

        inner = self._sweep(products)
        return np.maximum(self.squared_norms - 2 * inner + short.astype(np.float64) @ inner, 0)

    def _shorten(self, weights: Floats) -> tuple[Array, Array]:
        """The weights in working precision, and an array for the average."""
        if not self._average.size:
            self._average = np.empty(self._points.dim, self._dtype)
        return weights.astype(self._dtype), self._average

    def average(self, where: slice, dtype: Any) -> Array:
        """The coordinates of the average."""
        if self._pending is not None:
            self.combine(self._pending)
        average = self._average[where]
        if self._center is None:
            return average.astype(dtype, copy=False)
        center, out = self._center[where], np.empty(average.size, dtype)
        for start in range(0, out.size, RUN):
            block = slice(start, start + RUN)
            out[block] = center[block].astype(np.float64) + average[block]
        return out

    def offset(self) -> Floats:
        """What `combine` added to the center: sum_i weights_i (w_i - center)."""
        return self._average.astype(np.float64)

    def _sweep(self, work: Work, size: int = 0) -> Floats:
        """The sum in float64 of what `work` makes of the blocks, one after another.

        `work` is given some coordinates of all points, less the center, and which they are.
        """
        answers = [work(self._read(c), c.where) for c in self._columns(size or BLOCK)]
        return np.array(answers, np.float64).sum(axis=0)

    def _sweep_in_threads(self, work: Work, size: int) -> Floats:
        """The same for work without threads of its own, on coordinates that are read in place."""
        answers = in_threads(lambda c: work(self._read(c), c.where), list(self._columns(size)))
        return np.array(list(answers), np.float64).sum(axis=0)

    def _columns(self, size: int) -> Iterator[_Columns]:
        """The coordinates in blocks: as they are where that is possible, else to be copied."""
        rows, start = self._points.count, 0
        for segment, width in zip(self._points.segments, self._points.widths, strict=True):
            in_place = self._is_readable_in_place(segment)
            step = min(max(size // rows, 1), WIDTH) if in_place else self._scratch_width()
            for a in range(0, width, step):
                b = min(a + step, width)
                yield _Columns(segment, slice(a, b), slice(start + a, start + b))
            start += width

    def _scratch_width(self) -> int:
        rows, dim = self._points.count, self._points.dim
        return min(max(max(rows, SCRATCH // 2) * dim // (SCRATCH * rows), 1), WIDTH)

    def _read(self, columns: _Columns) -> Array:
        """Some coordinates, less the center; copies are made in the scratch space."""
        segment = columns.segment
        if self._is_readable_in_place(segment):
            return segment[:, columns.inside]
        rows, width = self._points.count, columns.where.stop - columns.where.start
        if self._scratch is None:
            self._scratch = np.empty(rows * self._scratch_width(), self._dtype)
        block = self._scratch[: rows * width].reshape(rows, width)
        if isinstance(segment, np.ndarray):
            np.copyto(block, segment[:, columns.inside], casting="same_kind")
        else:  # one call for all, since there may be many short rows
            parts = [row[columns.inside] for row in segment]
            np.concatenate(parts, out=block.reshape(-1), casting="same_kind")
        if self._center is not None:
            block -= self._center[columns.where]
        return block

    def _is_readable_in_place(self, segment: Rows) -> TypeGuard[Array]:
        same_type = isinstance(segment, np.ndarray) and segment.dtype == self._dtype
        return same_type and self._center is None


@dataclass(frozen=True)
class _Columns:
    """Some coordinates: in their segment, and in a vector."""

    segment: Rows
    inside: slice
    where: slice


def _inner_products(block: Array) -> Floats:
    """The inner products of the rows with each other."""
    gram = np.empty((len(block), len(block)))
    for i, row in enumerate(block):
        gram[i, i:] = gram[i:, i] = block[i:] @ row
    return gram


@np.errstate(over="ignore", invalid="ignore")  # told by norms that are not finite
def _row_squares(block: Array) -> Floats:
    """The squared norms of the rows, added up in float64 after short runs."""
    rows, width = block.shape
    cut = width - width % RUN
    head, tail = block[:, :cut], block[:, cut:]
    if block.strides[1] == block.itemsize:
        runs = head.reshape(rows, -1, RUN)
        squares = np.vecdot(runs, runs)
    else:  # runs would have to be copied together
        parts = [head[:, a : a + RUN] for a in range(0, cut, RUN)]
        squares = np.stack([np.vecdot(part, part) for part in parts] or [np.zeros(rows)], axis=1)
    return squares.sum(axis=1, dtype=np.float64) + np.vecdot(tail, tail)
