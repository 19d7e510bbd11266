"""The arithmetic of a cloud in weight space: distances from a weighted average of the points.

Every iterate of Weiszfeld's algorithm is an average of the points, v = sum_i weights_i w_i, so
the algorithms in `median.py` carry m weights and ask one thing: how far is v from each point?
`Stream` answers in two matrix-vector products, which run at the speed of memory:

    u = sum_i weights_i x_i,   |x_i - u|^2 = |x_i|^2 - 2 <x_i, u> + |u|^2,   x_i = w_i - centre

The cancellation in that sum is harmless only while the centre is about as near to v as the points
are. The origin will do for updates. Where it does not, the kernel moves the centre to the point
nearest to v and answers again, so that distances are good to working precision wherever the cloud
lies and however far its outliers are.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from rfa.cloud import Array, Cloud, Rows

Floats: TypeAlias = NDArray[np.float64]

BLOCK = 1 << 21
"""Numbers in a block: a few megabytes, so that the second product finds it in the cache."""
WIDTH = 1 << 17
"""Coordinates in a block at most; across blocks, products are added up in float64."""
RUN = 1 << 12
"""The same for sums of squares, where errors do not cancel."""
SCRATCH = 25
"""Blocks that must be centred or converted are copied, at most this fraction of the cloud."""
SMALL = 1 << 14
"""A cloud of no more numbers than this is copied to float64 whole and treated directly."""
PAIRS = 1 << 10
"""Points of a small cloud at most for which all pairs are compared."""
NEAR = 3.0
"""How many times farther from the centre than from v the points may be."""
MOVES = 4
"""How often the centre may move for one answer; twice is enough for all but float32's limits."""
TINY = 1e-100
"""Keeps quotients of squared distances finite."""
RANGE = (1e-30, 1e30)
"""Mean squares below and squared norms above are beyond float32 and computed in float64."""


class Kernel(ABC):
    """What the algorithms know of a cloud."""

    eps: float
    """The working precision."""
    norms: Floats
    """The squared distances of the points from the centre."""
    reach: float
    """The typical distance of the points from the centre: their weighted median."""

    def __init__(self, cloud: Cloud, alpha: Floats) -> None:
        self._cloud = cloud
        self._alpha = alpha
        self._row: int | None = None
        self.centre(None)

    def centre(self, at: Array | int | None) -> Floats:
        """Centre on a vector, on a point, or on the origin; the distances of the points from it."""
        self._row = at if isinstance(at, int) else None
        with np.errstate(over="ignore", invalid="ignore"):
            self.norms = self._centre_on(at)
        self.reach = weighted_median(self.norms, self._alpha) ** 0.5
        return np.sqrt(self.norms)

    def distances(self, weights: Floats) -> Floats:
        """Set the average to sum_i weights_i w_i; the distances of the points from it."""
        squares = self._squares(weights)
        for _ in range(MOVES):
            nearest = int(squares.argmin())
            if nearest == self._row or not self._is_far(weights, squares):
                break
            self.centre(nearest)
            squares = self._squares(weights)
        return np.sqrt(squares)

    def _is_far(self, weights: Floats, squares: Floats) -> bool:
        """Whether the centre is so far from v that distances lose digits where it matters."""
        shares = np.abs(weights)
        loss = self.norms / (np.maximum(squares, TINY * self.norms) + TINY)
        return bool(shares @ loss > NEAR**2 * shares.sum())

    def lowest(self) -> int | None:
        """The point with the lowest objective, where that is cheap to tell."""
        return None

    @abstractmethod
    def _centre_on(self, at: Array | int | None) -> Floats:
        """Take a centre; the squared distances from it."""

    @abstractmethod
    def _squares(self, weights: Floats) -> Floats:
        """Set the average; the squared distances from it."""

    @abstractmethod
    def combine(self, weights: Floats) -> None:
        """Set the average to centre + sum_i weights_i (w_i - centre), and measure nothing."""

    @abstractmethod
    def read(self, where: slice, dtype: Any) -> Array:
        """The coordinates of the average."""

    @abstractmethod
    def total(self) -> Floats:
        """What `combine` added to the centre: sum_i weights_i (w_i - centre)."""


def open_kernel(cloud: Cloud, alpha: Floats) -> Kernel:
    """The kernel that suits a cloud, centred on the origin."""
    if cloud.rows * cloud.dim <= SMALL:
        return Dense(cloud, alpha)
    wide = cloud.dtype.itemsize > np.dtype(np.float32).itemsize
    kernel = Stream(cloud, alpha, np.float64 if wide else np.float32)
    norms = kernel.norms
    typical = weighted_median(norms, alpha) / cloud.dim
    if wide or (typical >= RANGE[0] and norms.max() <= RANGE[1]) or np.isnan(norms).any():
        return kernel
    return Stream(cloud, alpha, np.float64)


class Dense(Kernel):
    """A small cloud: a float64 matrix and plain differences."""

    eps = float(np.finfo(np.float64).eps)

    def __init__(self, cloud: Cloud, alpha: Floats) -> None:
        self._points = np.stack([cloud.point(row, np.float64) for row in range(cloud.rows)])
        super().__init__(cloud, alpha)

    def _centre_on(self, at: Array | int | None) -> Floats:
        start = self._points[at] if isinstance(at, int) else at
        self._centre = np.zeros(self._cloud.dim) if start is None else start.astype(np.float64)
        self._average = np.zeros(self._cloud.dim)
        self._centred = self._points - self._centre
        return np.vecdot(self._centred, self._centred)

    def combine(self, weights: Floats) -> None:
        """Set the average to centre + sum_i weights_i (w_i - centre), and measure nothing."""
        self._average = weights @ self._centred

    def _squares(self, weights: Floats) -> Floats:
        self.combine(weights)
        apart = self._centred - self._average
        return np.vecdot(apart, apart)

    def lowest(self) -> int | None:
        """The point with the lowest objective, where that is cheap to tell."""
        if self._cloud.rows > PAIRS:
            return None
        products = self._centred @ self._centred.T
        squares = self.norms + self.norms[:, None] - 2 * products
        return int((np.sqrt(np.maximum(squares, 0)) @ self._alpha).argmin())

    def read(self, where: slice, dtype: Any) -> Array:
        """The coordinates of the average."""
        return (self._centre[where] + self._average[where]).astype(dtype)

    def total(self) -> Floats:
        """What `combine` added to the centre: sum_i weights_i (w_i - centre)."""
        return self._average


class Stream(Kernel):
    """A cloud of any size, read block by block where it lies."""

    def __init__(self, cloud: Cloud, alpha: Floats, dtype: Any) -> None:
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self.eps = float(np.finfo(self._dtype).eps)
        self._scratch: Array | None = None
        self._average: Array = np.zeros(0, self._dtype)
        super().__init__(cloud, alpha)

    def _centre_on(self, at: Array | int | None) -> Floats:
        if isinstance(at, int):
            self._centre = self._cloud.point(at, self._dtype)
        else:
            self._centre = None if at is None else at.astype(self._dtype)
        norms = np.zeros(self._cloud.rows)
        for _, block in self._blocks(self._cloud.dim):
            norms += _row_squares(block)
        return norms

    def combine(self, weights: Floats) -> None:
        """Set the average to centre + sum_i weights_i (w_i - centre), and measure nothing."""
        short = self._shorten(weights)
        for where, block in self._blocks():
            np.matmul(short, block, out=self._average[where])

    def _squares(self, weights: Floats) -> Floats:
        short = self._shorten(weights)
        inner = np.zeros(self._cloud.rows)
        for where, block in self._blocks():
            average = self._average[where]
            np.matmul(short, block, out=average)
            inner += block @ average
        return np.maximum(self.norms - 2 * inner + short.astype(np.float64) @ inner, 0)

    def _shorten(self, weights: Floats) -> Array:
        """The weights in working precision, and a place for the average."""
        if not self._average.size:
            self._average = np.empty(self._cloud.dim, self._dtype)
        return weights.astype(self._dtype)

    def read(self, where: slice, dtype: Any) -> Array:
        """The coordinates of the average."""
        average = self._average[where]
        if self._centre is None:
            return average.astype(dtype, copy=False)
        centre, out = self._centre[where], np.empty(average.size, dtype)
        for start in range(0, out.size, WIDTH):
            block = slice(start, start + WIDTH)
            out[block] = centre[block].astype(np.float64) + average[block]
        return out

    def total(self) -> Floats:
        """What `combine` added to the centre: sum_i weights_i (w_i - centre)."""
        return self._average.astype(np.float64)

    def _blocks(self, most: int = 0) -> Iterator[tuple[slice, Array]]:
        """Blocks of coordinates of all points, less the centre, with their place in a vector."""
        start, most = 0, most or min(WIDTH, max(BLOCK // self._cloud.rows, 1))
        for segment, width in zip(self._cloud.segments, self._cloud.widths, strict=True):
            if self._centre is not None or not _is_matrix(segment, self._dtype):
                yield from self._copies(segment, slice(start, start + width))
            else:
                yield from _views(segment, start, most)
            start += width

    def _copies(self, segment: Rows, place: slice) -> Iterator[tuple[slice, Array]]:
        """Blocks copied into one scratch space, by several threads where that pays."""
        rows, width = self._cloud.rows, place.stop - place.start
        if self._scratch is None:
            size = min(BLOCK, max(rows, SCRATCH) * self._cloud.dim // SCRATCH)
            self._scratch = np.empty((rows, min(WIDTH, max(size // rows, 1))), self._dtype)
        step = min(self._scratch.shape[1], width)
        parts = _split(rows, rows * step >> 16)
        with ThreadPoolExecutor(len(parts)) as pool:
            for a in range(0, width, step):
                b = min(a + step, width)
                where = slice(place.start + a, place.start + b)
                block = self._scratch[:, : b - a]
                centre = None if self._centre is None else self._centre[where]
                jobs = [(block, segment, part, slice(a, b), centre) for part in parts]
                waiting = [pool.submit(_fill, *job) for job in jobs[1:]]
                _fill(*jobs[0])
                for job in waiting:
                    job.result()
                yield where, block


def _is_matrix(segment: Rows, dtype: np.dtype[Any]) -> TypeGuard[Array]:
    return isinstance(segment, np.ndarray) and segment.dtype == dtype


def _views(segment: Array, start: int, step: int) -> Iterator[tuple[slice, Array]]:
    for a in range(0, segment.shape[1], step):
        block = segment[:, a : a + step]
        yield slice(start + a, start + a + block.shape[1]), block


def _fill(block: Array, segment: Rows, rows: slice, where: slice, centre: Array | None) -> None:
    """Copy the coordinates of some points, less the centre."""
    if isinstance(segment, np.ndarray):
        pairs: list[tuple[Array, Array]] = [(segment[rows, where], block[rows])]
    else:
        pairs = [(row[where], into) for row, into in zip(segment[rows], block[rows], strict=True)]
    for source, target in pairs:
        if centre is None:
            np.copyto(target, source, casting="same_kind")
        else:
            np.subtract(source, centre, out=target, dtype=target.dtype, casting="same_kind")


def _row_squares(block: Array) -> Floats:
    """The squared norms of the rows, added up in short runs; large blocks by several threads."""
    rows, width = block.shape
    if block.strides[1] != block.itemsize:  # runs would have to be copied together
        runs = [block[:, a : a + RUN] for a in range(0, width, RUN)]
        return np.sum([np.vecdot(run, run) for run in runs], axis=0, dtype=np.float64)
    cut = width - width % RUN
    head, tail = block[:, :cut].reshape(rows, -1, RUN), block[:, cut:]

    def squares(part: slice) -> Floats:
        return np.vecdot(head[part], head[part]).sum(axis=1, dtype=np.float64)

    parts = _split(rows, block.size >> 21)
    if len(parts) == 1:
        return squares(parts[0]) + np.vecdot(tail, tail)
    with ThreadPoolExecutor(len(parts)) as pool:
        return np.concatenate(list(pool.map(squares, parts))) + np.vecdot(tail, tail)


def _split(rows: int, threads: int) -> list[slice]:
    """Shares of the rows for several threads, where the work is enough for more than one."""
    edges = np.linspace(0, rows, max(1, min(_cores(), rows, threads)) + 1).astype(int)
    return [slice(a, b) for a, b in pairwise(edges.tolist())]


def _cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def weighted_median(values: Floats, weights: Floats) -> float:
    """The smallest value with at least half of the weight at or below it."""
    order = values.argsort()
    below = weights[order].cumsum()
    return float(values[order[below.searchsorted(below[-1] / 2)]])
