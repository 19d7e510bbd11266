"""Exact clusters of a few hundred points: single linkage up to a majority, and mean shift."""

from __future__ import annotations

import numpy as np

from rfa._types import Array, Floats, Ints
from rfa.numerics.coordinatewise import DEPTH, tiled_products
from rfa.numerics.points import Points

BLOCK = 1 << 13
"""The number of coordinates that are multiplied at a time."""
MOST_SHIFTS = 300
"""The most shifts of a mode."""
SETTLED = 1e-3
"""A mode has settled if it moves by less than this fraction of the bandwidth."""


def cosines(points: Points, norms: Floats) -> Floats:
    """Return the cosines of the angles between all points; 0 with a point that is nearly zero."""
    least = 1 / float(np.finfo(points.dtype).max)
    scale = np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > least)
    scale = scale[:, None].astype(points.dtype)
    total = np.zeros((points.count, points.count))
    for segment, width in zip(points.segments, points.widths, strict=True):
        for start in range(0, width, BLOCK):
            where = slice(start, start + BLOCK)
            total += gram(np.stack([row[where] for row in segment], dtype=points.dtype) * scale)
    return np.clip(total, -1, 1)


def gram(block: Array) -> Floats:
    """Return the inner products of the rows of a block, without the threads of BLAS."""
    missing = -block.shape[1] % DEPTH
    return tiled_products(np.pad(block, ((0, 0), (0, missing))) if missing else block)


def products(points: Points, vector: Floats) -> Floats:
    """Return the inner products of all points with a vector."""
    total, start = np.zeros(points.count), 0
    for segment, width in zip(points.segments, points.widths, strict=True):
        part = vector[start : start + width]
        narrow = part.astype(points.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            along = np.array([float(np.dot(row, narrow)) for row in segment])
        for i in np.flatnonzero(~np.isfinite(along)).tolist():  # too large for its type
            along[i] = float(np.asarray(segment[i], np.float64) @ part)
        total += along
        start += width
    return total


def pick_columns(points: Points, columns: Ints) -> Floats:
    """Return some coordinates of all points, in increasing order, as a matrix in float64."""
    parts: list[Floats] = []
    start = 0
    for segment, width in zip(points.segments, points.widths, strict=True):
        here = columns[(columns >= start) & (columns < start + width)] - start
        parts.append(np.stack([np.asarray(row)[here] for row in segment]).astype(np.float64))
        start += width
    return np.concatenate(parts, axis=1)


def majority_cluster(distances: Floats, size: int) -> Ints:
    """Return the first cluster of single linkage that has at least `size` points.

    Points are linked in the order of their distances; links of equal length are made together. With
    a size above half of the points this is the cluster that HDBSCAN finds with that minimum size, a
    single neighbor, and one cluster allowed; the others are its noise.

    >>> far = np.array([[0, 1, 9], [1, 0, 9], [9, 9, 0.0]])
    >>> majority_cluster(far, 2)
    array([0, 1])
    """
    labels = np.arange(len(distances))
    rows, columns = np.triu_indices(len(distances), 1)
    lengths = distances[rows, columns]
    order = np.argsort(lengths, kind="stable")
    found, until = -1, np.inf
    for link in order.tolist():
        if lengths[link] > until:
            break
        a, b = labels[rows[link]], labels[columns[link]]
        if a != b:
            labels[labels == b] = a
            if found in (a, b) or (found < 0 and np.count_nonzero(labels == a) >= size):
                found, until = a, lengths[link]
    return np.flatnonzero(labels == found) if found >= 0 else np.arange(len(distances))


def mean_shift(features: Floats, quantile: float) -> Ints:
    """Return the label of the mode that is nearest to each point, by a flat kernel.

    Every point moves to the mean of the points within the bandwidth, until it settles. Modes that
    are nearer to each other than the bandwidth are merged into the one with the most points. The
    bandwidth is the mean distance of a point to the farthest of its nearest `quantile` of points,
    including itself.
    """
    apart = _distances(features, features)
    near = max(1, int(len(features) * quantile))
    bandwidth = float(np.sort(apart, axis=1)[:, near - 1].mean())
    modes = features.astype(np.float64)
    for _ in range(MOST_SHIFTS):
        within = _distances(modes, features) <= bandwidth
        near_mode = within.sum(axis=1, keepdims=True)  # 0 where rounding moved it off its points
        moved = np.where(near_mode, within @ features / np.maximum(near_mode, 1), modes)
        shift = float(np.linalg.norm(moved - modes, axis=1).max())
        modes = moved
        if shift <= SETTLED * bandwidth:
            break
    counts = (_distances(modes, features) <= bandwidth).sum(axis=1)
    kept: list[int] = []
    for mode in np.argsort(-counts, kind="stable").tolist():
        if not kept or float(_distances(modes[[mode]], modes[kept]).min()) > bandwidth:
            kept.append(mode)
    return _distances(features, modes[kept]).argmin(axis=1)


def _distances(a: Floats, b: Floats) -> Floats:
    return np.linalg.norm(a[:, None] - b[None], axis=2)
