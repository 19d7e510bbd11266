"""Functions of all points in each coordinate: medians, trimmed means, inner products.

The coordinates are processed in blocks, of which only a few are copied at a time, and distributed
to threads, since numpy releases Python's lock while it sorts and multiplies. For order statistics
the m values of one coordinate are placed side by side, as numpy's vectorized sort requires. With
equal weights a sorted column is enough. Otherwise each value must carry its weight, and a sorted
block is turned back, so that each step is one for the values of equal rank in all its columns:

    >>> import numpy as np
    >>> rows = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    >>> column_median(rows, np.array([1.0, 1.0, 3.0]))
    array([3., 7.])
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from threading import get_ident
from typing import Any, TypeAlias

import numpy as np

from rfa._threads import in_threads
from rfa._types import Array, Floats
from rfa.numerics.distances import SLACK
from rfa.numerics.points import Points, Rows

Statistic: TypeAlias = Callable[[Array], Array]
"""A function of a block with a line of m values per coordinate, which it may overwrite; it returns
one number for each line."""
RankStatistic: TypeAlias = Callable[[Array, Floats, Floats], Array]
"""A function of the values of each column in order, their weights and space for as many numbers,
all of which it may overwrite; it returns one number for each column."""

BLOCK = 1 << 21
"""The bytes in a block: enough work for a thread, and still within the cache."""
SELECT = 256
"""With more points than this, selecting the middle is faster than sorting."""
NARROW = 256
"""With fewer columns than this, adding up each is faster than adding rank by rank."""
NARROWEST = 1e-9
"""The least fraction of the weight that a trimmed mean keeps on either side of the middle."""
TAG = (1 << 28) - 1
"""The bits of a float64 below half a unit in the last place of a float32."""
TILE, DEPTH = 32, 256
"""The points and coordinates of a matrix product for which BLAS uses no threads."""
PIECES, SPACE = 64, 1 << 23
"""The number of such products in one call, and the most bytes of their block."""


def column_median(rows: Rows, weights: Floats) -> Array:
    """Return the weighted median of each column, in the type of the rows.

    If exactly half of the weight lies on each side of a gap, it is the midpoint of the gap for
    floats, and its lower end for integers.

    Args:
        rows: m vectors of finite numbers.
        weights: m positive weights.
    """
    precision = _precision(rows)
    if _equal(weights):
        return _by_block(rows, _middle, precision)

    def statistic(values: Array, ranked: Floats, _: Floats) -> Array:
        return _weighted_middle(values, _added_up(ranked, ranked), precision)

    return _by_rank(rows, weights, statistic, precision)


def column_trimmed_mean(rows: Rows, weights: Floats, fraction: float) -> Array:
    """Return the weighted mean of each column without its lowest and highest values.

    On each side `fraction` of the total weight is removed. A point on the border keeps the part of
    its weight that is inside.

    Args:
        rows: m vectors of finite floats.
        weights: m positive weights.
        fraction: from 0 (the mean) to below 1/2 (toward the median).
    """
    precision = _precision(rows)
    if _equal(weights):
        kept = _kept(np.arange(1, len(rows) + 1) / len(rows), fraction, np.empty(len(rows)))
        kept = (kept / kept.sum()).astype(precision)
        first, last = np.flatnonzero(kept)[[0, -1]]

        def equal_statistic(block: Array) -> Array:
            block.sort(axis=1)
            return np.einsum("ij,j->i", block[:, first : last + 1], kept[first : last + 1])

        return _by_block(rows, equal_statistic, precision)

    def statistic(values: Array, ranked: Floats, spare: Floats) -> Array:
        return _weighted_mean(values, _kept(_added_up(ranked, ranked), fraction, spare))

    return _by_rank(rows, _scaled(weights), statistic, precision)


def column_mean_near_median(rows: Rows, weights: Floats, count: int) -> Array:
    """Return the weighted mean of the values of each column nearest to its weighted median.

    Of two values at the same distance the lower one is nearer.

    Args:
        rows: m vectors of finite floats.
        weights: m positive weights.
        count: the number of values, without their weights, from 1 to m.
    """
    precision = _precision(rows)
    if _equal(weights):
        shares = np.full(count, 1 / count, precision)

        def equal_statistic(block: Array) -> Array:
            block.sort(axis=1)
            m = block.shape[1]
            middle = _midpoint(block[:, (m - 1) // 2], block[:, m // 2])
            _gather_nearest(middle, count, block)
            return np.einsum("ij,j->i", block[:, :count], shares)

        return _by_block(rows, equal_statistic, precision)

    def statistic(values: Array, ranked: Floats, spare: Floats) -> Array:
        middle = _weighted_middle(values, _added_up(ranked, spare), precision)
        values = values.astype(precision)  # without point numbers, which would decide ties
        _clear_distant(middle, count, values, ranked)
        return _weighted_mean(values, ranked)

    return _by_rank(rows, _scaled(weights), statistic, precision)


def inner_products(points: Points, dtype: Any) -> Floats:
    """Return the inner products of the points minus the last one, summed in float64.

    They consist of small products in `dtype`, because our threads are enough: BLAS threads spin
    while they wait for each other, which can take a hundred times as long beside another busy
    process.
    """
    most = SPACE // (points.count * DEPTH * np.dtype(dtype).itemsize)
    step = DEPTH * max(min(most, PIECES), 1)
    pieces = [
        (segment, slice(start, min(start + step, width)))
        for segment, width in zip(points.segments, points.widths, strict=True)
        for start in range(0, width, step)
    ]
    parts = in_threads(lambda piece: tiled_products(_less_last(*piece, dtype)), pieces)
    return sum(parts, start=np.zeros((points.count, points.count)))


def _by_block(rows: Rows, statistic: Statistic, dtype: np.dtype[Any]) -> Array:
    """Return a statistic of each column, computed on blocks of this type."""
    width = rows[0].size
    step = max(BLOCK // (len(rows) * dtype.itemsize), 1)
    slices = [slice(start, min(start + step, width)) for start in range(0, width, step)]
    answers = in_threads(lambda where: statistic(_upright(rows, where, dtype)), slices)
    out = np.empty(width, _dtype(rows))
    for where, answer in zip(slices, answers, strict=True):
        out[where] = answer
    return out


def _by_rank(
    rows: Rows, weights: Floats, statistic: RankStatistic, precision: np.dtype[Any]
) -> Array:
    """Return a statistic of each column, computed on blocks with a row for each rank.

    The system takes as long to give memory as we to use it, so each thread keeps what it has.
    """
    spaces: dict[int, Floats] = {}

    def in_order(block: Array) -> Array:
        if get_ident() not in spaces:
            spaces[get_ident()] = np.empty((2, block.size))
        turned = block.reshape(block.shape[::-1])
        free = spaces[get_ident()][:, : block.size].reshape(2, *turned.shape)
        return statistic(*_ranked(block, weights, precision, free), turned)

    return _by_block(rows, in_order, _taggable(precision))


def _upright(rows: Rows, where: slice, dtype: np.dtype[Any]) -> Array:
    """Return a copy of some columns, as lines."""
    block = np.empty((where.stop - where.start, len(rows)), dtype)
    if isinstance(rows, np.ndarray):
        block[:] = rows[:, where].T
    else:
        for i, row in enumerate(rows):
            block[:, i] = row[where]
    return block


def _middle(block: Array) -> Array:
    """Return the median of each line, for equal weights."""
    m = block.shape[1]
    lower, upper = (m - 1) // 2, m // 2
    if m <= SELECT:
        block.sort(axis=1)
        return _midpoint(block[:, lower], block[:, upper])
    block.partition(upper, axis=1)
    if lower == upper:
        return block[:, upper]
    return _midpoint(block[:, :upper].max(axis=1), block[:, upper])


def _midpoint(lower: Array, upper: Array) -> Array:
    """Return the midpoint, the lower one for integers, without overflow or underflow."""
    if lower.dtype.kind != "f":
        return lower
    return np.where(lower == upper, lower, lower / 2 + upper / 2)


def _weighted_middle(values: Array, below: Floats, precision: np.dtype[Any]) -> Array:
    """Return the median of each column of ranked values, by bisection of the weight up to each."""
    n, total = int(below.shape[1]), below[-1]
    lower = np.arange(n)
    for step in (n << bit for bit in reversed(range(len(below).bit_length()))):
        before = below.take(lower + step - n, mode="clip")  # past the end, it is the whole weight
        lower = np.where(before / total < 1 / 2 - SLACK, lower + step, lower)
    upper = np.where(below.take(lower) / total <= 1 / 2 + SLACK, lower + n, lower)
    return _midpoint(*(values.take(end).astype(precision) for end in (lower, upper)))


@np.errstate(over="ignore")
def _gather_nearest(middle: Array, count: int, values: Array) -> None:
    """Move the values of each sorted line that are nearest to its middle to the front.

    They are consecutive in the line, so of any values that are `count` apart exactly one, the
    nearest, is among them.
    """
    middle = middle[:, None]
    for start in range(count, values.shape[1], count):
        width = min(count, values.shape[1] - start)
        new, old = values[:, start : start + width], values[:, :width]
        np.copyto(old, new, where=new - middle < middle - old)


@np.errstate(over="ignore")
def _clear_distant(middle: Array, count: int, values: Array, ranked: Floats) -> None:
    """Set the weights of all values but those nearest to the middle of their column to zero.

    The nearest have consecutive ranks, so no value is among them if one that is `count` ranks
    away is nearer.
    """
    rest = len(values) - count
    nearer = values[count:] - middle < middle - values[:rest]
    np.copyto(ranked[count:], 0, where=~nearer)
    np.copyto(ranked[:rest], 0, where=nearer)


def _weighted_mean(values: Array, weights: Floats) -> Floats:
    """Return the weighted mean of each column."""
    if values.shape[1] == 1:  # numpy would add it up in another order than beside others
        return _weighted_mean(values.repeat(2, 1), weights.repeat(2, 1))[:1]
    return np.einsum("ij,ij->j", values, weights) / weights.sum(axis=0)


def _ranked(
    block: Array, weights: Floats, precision: np.dtype[Any], free: Floats
) -> tuple[Array, Floats]:
    """Return the values of each line in order, as a column, and their weights.

    Values of single precision leave 29 bits of a float64 free. These hold the number of the point,
    so one vectorized sort takes half the time of an indirect sort.
    """
    values, ranked = free
    if _taggable(precision) == precision:
        order = block.argsort(axis=1)
        values, order = np.take_along_axis(block, order, 1).T.copy(), order.T.copy()
    else:
        tagged = block.view(np.int64)
        tagged |= np.arange(weights.size)
        block.sort(axis=1)
        values[:] = block.T
        order = np.bitwise_and(values.view(np.int64), TAG, out=tagged.reshape(values.shape))
    weights.take(order, mode="clip", out=ranked)  # faster than a check, though nothing is clipped
    return values, ranked


def _added_up(ranked: Floats, out: Floats) -> Floats:
    """Return the weight up to and including each value."""
    if ranked.shape[1] < NARROW:
        return np.cumsum(ranked, axis=0, out=out)
    out[0] = ranked[0]
    for (below, here), weight in zip(pairwise(out), ranked[1:], strict=True):
        np.add(below, weight, out=here)
    return out


def _kept(below: Floats, fraction: float, out: Floats) -> Floats:
    """Return the weights of ranked values within the middle of the weight; `below` changes."""
    fraction = min(fraction, 1 / 2 - NARROWEST)
    total = below[-1].copy()
    least, slack = fraction * total, SLACK * total.max()
    np.maximum(below, least, out=below)
    np.minimum(below, (1 - fraction) * total, out=below)
    np.subtract(below[:1], least, out=out[:1])
    np.subtract(below[1:], below[:-1], out=out[1:])
    np.copyto(out, 0, where=(out > 0) & (out < slack))  # rounding must let no huge value in
    return out


def _scaled(weights: Floats) -> Floats:
    """Return weights of a sum below one, divided by a power of two, which rounds nothing."""
    return np.ldexp(weights, -np.frexp(weights.sum())[1])


def _equal(weights: Floats) -> bool:
    return bool((weights == weights[0]).all())


def _dtype(rows: Rows) -> np.dtype[Any]:
    return rows.dtype if isinstance(rows, np.ndarray) else np.result_type(*{r.dtype for r in rows})


def _precision(rows: Rows) -> np.dtype[Any]:
    """Return the type to compute in: at least single precision for floats."""
    dtype = _dtype(rows)
    return np.result_type(dtype, np.float32) if dtype.kind == "f" else dtype


def _taggable(precision: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of a block whose values also hold the number of their point, if possible."""
    return np.dtype(np.float64) if precision == np.float32 else precision


def _less_last(rows: Rows, where: slice, dtype: Any) -> Array:
    """Return some coordinates of the points minus the last one, padded with zeros."""
    width = where.stop - where.start
    block = np.empty((len(rows), -(-width // DEPTH) * DEPTH), dtype)
    block[:, width:] = 0
    for row, target in zip(rows, block, strict=True):
        np.subtract(row[where], rows[-1][where], out=target[:width], dtype=dtype)
    return block


@np.errstate(over="ignore", invalid="ignore")
def tiled_products(block: Array) -> Floats:
    """Return the inner products of the rows of a block, tile by tile and piece by piece."""
    m = len(block)
    gram = np.empty((m, m))
    pieces = block.reshape(m, -1, DEPTH).swapaxes(0, 1)
    for a in range(0, m, TILE):
        for b in range(0, a + 1, TILE):
            products = pieces[:, a : a + TILE] @ pieces[:, b : b + TILE].swapaxes(1, 2)
            tile = products.sum(axis=0, dtype=np.float64)
            gram[a : a + TILE, b : b + TILE] = tile
            gram[b : b + TILE, a : a + TILE] = tile.T
    return gram
