"""The coordinates of all points, block by block, each minus a center, for threads to work on.

An array is read in place. Rows at different addresses, as in lists of models, and data that must be
converted or centered are copied, a block at a time.

Blocks are distributed to our own threads, not to those of BLAS. BLAS threads spin while they wait
for each other, which costs more than it gains beside other busy processes (decision 0018). Our
threads wait for Python's lock. So the rows of a block are copied by one call, which releases it
once.

The division into blocks depends only on the points, and their results are added in order, so the
number of threads does not change a single bit.

    >>> import numpy as np
    >>> from rfa.numerics.points import read_points
    >>> blocks = Blocks(read_points([np.ones(3), np.ones(3), np.zeros(3)]), np.float64)
    >>> blocks.squares(), blocks.sum(lambda block, where: block.sum(axis=1))
    (array([3., 3., 0.]), array([3., 3., 0.]))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeGuard, TypeVar, final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from rfa._threads import Threads
from rfa._types import Array, Floats
from rfa.numerics.points import Points, Rows

Item = TypeVar("Item")
Work: TypeAlias = Callable[[Array, slice], Array]
"""A function of some coordinates of all points, minus the center, and their slice; its results are
summed."""

LARGE = 1 << 22
"""With this many numbers or more, blocks are distributed to threads."""
BLOCK = 1 << 21
"""The numbers in a block that is read in place: enough work for a thread."""
SQUARES = 1 << 23
"""The numbers in a block for sums of squares, which read them once and prefer long rows."""
WIDTH = 1 << 17
"""The most coordinates in a block; sums across blocks are in float64."""
LONG = 1 << 17
"""With this many coordinates or more, rows at different addresses are read one by one."""
RUN = 1 << 10
"""The number of squares that are added in working precision, without cancellation, before
float64."""
SCRATCH = 16
"""The most points that are copied at once, as a fraction 1/16 of all."""
COPIES = 4
"""The most blocks that may be copied at the same time, each by its thread."""
LARGEST = np.iinfo(np.intp).max
"""The most bytes of an array, including those that do not exist."""
NARROW = 1 << 13
"""Blocks with fewer coordinates are slow to copy, so fewer are copied at a time."""


@final
class Blocks:
    """Points of any size, minus a center, read block by block."""

    def __init__(self, points: Points, dtype: Any) -> None:
        self._points = points
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self.center: Array | None = None
        """The vector that is subtracted from all points, in the working type; None for none."""
        self._copy_width, self._copies = _share_scratch(points.count, points.dim)
        self._scratch: SimpleQueue[Array | None] = SimpleQueue()
        for _ in range(self._copies):
            self._scratch.put(None)
        self._apart = [_rows_apart(segment, self._dtype) for segment in points.segments]
        self._threads = Threads()
        self.are_shared = points.count * points.dim >= LARGE
        """Whether threads may work on the blocks."""

    def sum(self, work: Work) -> Floats:
        """Return the sum in float64 of the results of `work` on the blocks."""
        return self._share_out(lambda c: self._read(c, work), list(self._columns(BLOCK)))

    def squares(self) -> Floats:
        """Return the squared norms of the points minus the center."""

        def squares(part: _Columns | _RowGroup) -> Floats:
            if isinstance(part, _RowGroup):
                return self._squares_of_rows(part)
            return self._read(part, lambda block, _: _row_squares(block))

        blocks = [c for c in self._columns(SQUARES) if not self._is_read_by_rows(c.apart)]
        return self._share_out(squares, [*self._row_groups(), *blocks])

    def _share_out(self, work: Callable[[Item], Floats], items: list[Item]) -> Floats:
        """Return the sum of the work on all items, in their order."""
        if not self.are_shared:
            return _total(map(work, items))
        in_place = all(map(self._is_in_place, self._points.segments))
        return _total(self._threads.map(work, items, None if in_place else self._copies))

    def _columns(self, size: int) -> Iterator[_Columns]:
        """Yield the coordinates in blocks of this many numbers, or fewer if they must be copied."""
        rows, start = self._points.count, 0
        segments = zip(self._points.segments, self._apart, self._points.widths, strict=True)
        for segment, apart, width in segments:
            in_place = min(max(size // rows, 1), WIDTH)
            step = in_place if self._is_in_place(segment) else self._copy_width
            for a in range(0, width, step):
                b = min(a + step, width)
                yield _Columns(segment, apart, slice(a, b), slice(start + a, start + b))
            start += width

    def _read(self, columns: _Columns, work: Work) -> Floats:
        """Return the result of the work on a block; the work must not keep the block."""
        segment = columns.segment
        if self._is_in_place(segment):
            return work(segment[:, columns.inside], columns.where)
        if columns.apart is not None:
            return work(
                self._less_center(columns.apart.copy(columns.inside), columns), columns.where
            )
        scratch = self._scratch.get()
        try:
            if scratch is None:
                scratch = np.empty(self._points.count * self._copy_width, self._dtype)
            block = self._convert(columns, scratch)
            return work(self._less_center(block, columns), columns.where)
        finally:
            self._scratch.put(scratch)

    def _convert(self, columns: _Columns, scratch: Array) -> Array:
        """Return a copy of a block in the scratch space, in working precision."""
        segment = columns.segment
        rows, width = self._points.count, columns.where.stop - columns.where.start
        block = scratch[: rows * width].reshape(rows, width)
        if isinstance(segment, np.ndarray):
            np.copyto(block, segment[:, columns.inside], casting="same_kind")
        else:
            parts = [row[columns.inside] for row in segment]
            np.concatenate(parts, out=block.reshape(-1), casting="same_kind")
        return block

    def _less_center(self, block: Array, columns: _Columns) -> Array:
        if self.center is not None:
            block -= self.center[columns.where]
        return block

    def _is_in_place(self, segment: Rows) -> TypeGuard[Array]:
        """Return whether blocks of this segment need no copy."""
        same_type = isinstance(segment, np.ndarray) and segment.dtype == self._dtype
        return same_type and self.center is None

    def _is_read_by_rows(self, apart: _RowsApart | None) -> bool:
        """Return whether rows are long enough to sum their squares one by one, without a copy."""
        return self.center is None and apart is not None and apart.lowest.size >= LONG

    def _row_groups(self) -> Iterator[_RowGroup]:
        """Yield groups of rows of a segment, so that there are not too many small jobs."""
        for segment, apart in zip(self._points.segments, self._apart, strict=True):
            if self._is_read_by_rows(apart):
                step = max(SQUARES // segment[0].size, 1)
                starts = range(0, self._points.count, step)
                yield from (_RowGroup(segment, slice(a, a + step)) for a in starts)

    def _squares_of_rows(self, group: _RowGroup) -> Floats:
        squares = np.zeros(self._points.count)
        squares[group.rows] = [_row_squares(row[None])[0] for row in group.segment[group.rows]]
        return squares


@dataclass(frozen=True)
class _RowsApart:
    """Rows of one type at different addresses, to be copied by one call.

    To numpy they are one array from the lowest row on, whose line k begins k numbers after the
    lowest row. Nearly all lines do not exist; those at the offsets of the rows do.
    """

    lowest: Array
    offsets: NDArray[np.intp]

    def copy(self, where: slice) -> Array:
        """Return some coordinates of all rows, as a matrix."""
        first = self.lowest[where]
        shape, strides = (int(self.offsets.max()) + 1, first.size), 2 * first.strides
        return as_strided(first, shape, strides, writeable=False)[self.offsets]


def _rows_apart(rows: Rows, dtype: np.dtype[Any]) -> _RowsApart | None:
    """Return rows that can be copied by one call, or None if they cannot."""
    if isinstance(rows, np.ndarray) or not rows[0].size:
        return None
    starts = np.array([row.__array_interface__["data"][0] for row in rows])
    offsets, odd = np.divmod(starts - starts.min(), dtype.itemsize)
    if odd.any() or not all(row.dtype == dtype and row.flags.c_contiguous for row in rows):
        return None
    if (int(offsets.max()) + 1) * min(rows[0].size, WIDTH) * dtype.itemsize > LARGEST:
        return None
    return _RowsApart(rows[int(starts.argmin())], offsets)


@dataclass(frozen=True)
class _Columns:
    """Some coordinates: in their segment, and in a vector."""

    segment: Rows
    apart: _RowsApart | None
    inside: slice
    where: slice


@dataclass(frozen=True)
class _RowGroup:
    """Some rows of a segment."""

    segment: Rows
    rows: slice


def _share_scratch(rows: int, dim: int) -> tuple[int, int]:
    """Return how many coordinates to copy at a time, and the most such blocks at once."""
    most = max(max(rows, SCRATCH // 2) * dim // (SCRATCH * rows), 1)
    width = min(max(most // COPIES, min(most, NARROW)), WIDTH, max(BLOCK // rows, 1))
    return width, min(most // width, COPIES)


def _total(parts: Iterable[Array]) -> Floats:
    return np.array(list(parts), np.float64).sum(axis=0)


@np.errstate(over="ignore", invalid="ignore")  # told by norms that are not finite
def _row_squares(block: Array) -> Floats:
    """Return the squared norms of the rows, added in float64 after short runs."""
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
