"""The geometry of points of any size: two matrix-vector products at memory speed.

    u = sum_i weights_i x_i,   |x_i - u|^2 = |x_i|^2 - 2 <x_i, u> + |u|^2,   x_i = w_i - center

The points are read block by block (see `rfa.numerics.blocks`), and both products use a block while
it is in the cache, so a step reads the memory once. For a few points all inner products are
computed once, and no step needs the points again.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from rfa._types import Array, Floats
from rfa.numerics.blocks import Blocks
from rfa.numerics.distances import Geometry
from rfa.numerics.points import Points

FEW = 16
"""Up to this number of points, all inner products cost less than the steps that they save."""
PRODUCT = 460_000
"""The most numbers in a BLAS product: OpenBLAS starts its own threads from 460,800 on."""
DEPTH = 1 << 10
"""The coordinates in a product of up to 16 rows with each other, for which BLAS uses no threads."""
RESULTS = 512
"""The numbers in a result so large that `np.matmul` releases Python's lock."""
STRETCH = 1 << 12
"""The number of coordinates of a result that are computed in float64 at a time."""


@final
class StreamingGeometry(Geometry):
    """Points of any size, read block by block in place."""

    def __init__(self, points: Points, alpha: Floats, dtype: Any) -> None:
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self.eps = float(np.finfo(self._dtype).eps)
        self._blocks = Blocks(points, self._dtype)
        self._average: Array = np.zeros(0, self._dtype)
        self._pending: Floats | None = None
        self._gram: Floats | None = None
        super().__init__(points, alpha)

    def _center_on(self, at: Array | int | None) -> Floats:
        if isinstance(at, int):
            self._blocks.center = self._points.point(at, self._dtype)
        else:
            self._blocks.center = None if at is None else at.astype(self._dtype)
        if self._points.count > FEW:
            return self._blocks.squares()
        gram = _gram if self._blocks.are_shared else _gram_by_rows
        self._gram = self._blocks.sum(lambda block, _: gram(block))
        return self._gram.diagonal()

    def combine(self, weights: Floats) -> None:
        """Set the average to center + sum_i weights_i (w_i - center), without distances."""
        self._pending = None
        short, average = self._shorten(weights)
        self._blocks.sum(lambda block, where: _combine(short, block, average[where])[:0])

    def _squares_from_average(self, weights: Floats) -> Floats:
        if self._gram is not None:
            self._pending, inner = weights, self._gram @ weights
            return np.maximum(self.squared_norms - 2 * inner + weights @ inner, 0)
        short, average = self._shorten(weights)

        def products(block: Array, where: slice) -> Array:
            return _inner_products(block, _combine(short, block, average[where]))

        inner = self._blocks.sum(products)
        return np.maximum(self.squared_norms - 2 * inner + short.astype(np.float64) @ inner, 0)

    def _shorten(self, weights: Floats) -> tuple[Array, Array]:
        """Return the weights in working precision, and an array for the average."""
        if not self._average.size:
            self._average = np.empty(self._points.dim, self._dtype)
        return weights.astype(self._dtype), self._average

    def average(self, where: slice, dtype: Any) -> Array:
        """Return the coordinates of the average."""
        if self._pending is not None:
            self.combine(self._pending)
        average, center = self._average[where], self._blocks.center
        if center is None:
            return average.astype(dtype, copy=False)
        center, out = center[where], np.empty(average.size, dtype)
        for start in range(0, out.size, STRETCH):
            block = slice(start, start + STRETCH)
            out[block] = center[block].astype(np.float64) + average[block]
        return out

    def offset(self) -> Floats:
        """Return the average minus the center: sum_i weights_i (w_i - center)."""
        return self._average.astype(np.float64)


def _combine(weights: Array, block: Array, out: Array) -> Array:
    """Return the weighted sum of the rows, in `out`."""
    head, tail = _pieces(block)
    cut = out.size - tail.shape[1]
    np.matmul(weights, head, out=out[:cut].reshape(len(head), -1))
    np.matmul(weights, tail, out=out[cut:])
    return out


def _inner_products(block: Array, vector: Array) -> Array:
    """Return the inner products of the rows with a vector."""
    head, tail = _pieces(block)
    cut = vector.size - tail.shape[1]
    products = np.matmul(head, vector[:cut].reshape(len(head), -1, 1))[:, :, 0]
    return products.sum(axis=0, dtype=np.float64) + np.matmul(tail, vector[cut:])


def _gram(block: Array) -> Floats:
    """Return the inner products of the rows with each other, for blocks that threads share."""
    head, tail = _pieces(block, DEPTH)
    products = np.matmul(head, head.swapaxes(1, 2))
    return products.sum(axis=0, dtype=np.float64) + np.matmul(tail, tail.T)


def _gram_by_rows(block: Array) -> Floats:
    """Return the same in half the time for one thread: each pair is multiplied once."""
    rows, width = block.shape
    gram, step = np.empty((rows, rows)), max(PRODUCT // width, 1)
    for i, row in enumerate(block):
        for j in range(i, rows, step):
            gram[i, j : j + step] = gram[j : j + step, i] = np.matmul(block[j : j + step], row)
    return gram


def _pieces(block: Array, width: int = 0) -> tuple[Array, Array]:
    """Return a block as a stack of pieces of some coordinates each, and the remaining coordinates.

    Pieces are small, so BLAS uses no threads for one, and many, so results are large.
    """
    rows, size = block.shape
    count = max(-(-rows * size // PRODUCT), -(-RESULTS // rows))
    width = width or max(size // count, 1)
    cut = size - size % width
    return block[:, :cut].reshape(rows, -1, width).swapaxes(0, 1), block[:, cut:]
