"""The distances between all points, and the points with the nearest neighbors.

A distance that is too large to square is infinite, and ranks last.
"""

from __future__ import annotations

import numpy as np

from rfa._types import Floats
from rfa.numerics.coordinatewise import inner_products
from rfa.numerics.weighted import WeightedPoints

FAR = 4.0
"""How many times farther from the center than from each other two points may be."""


@np.errstate(over="ignore", invalid="ignore")
def pair_squares(weighted: WeightedPoints) -> Floats:
    """Return the squared distances between all points.

    They come from inner products, |x_i|^2 + |x_j|^2 - 2 <x_i, x_j> with x_i = w_i - center. These
    cancel if two points are much nearer to each other than to the center: models far from zero, or
    outliers that are close together. Such pairs are measured again from a point between them.
    """
    m, wide = weighted.points.count, weighted.geometry.eps < np.finfo(np.float32).eps
    squares, sums = np.where(np.eye(m), 0, np.inf), np.full((m, m), np.inf)
    doubtful = ~np.eye(m, dtype=bool)
    center = int(np.argsort(weighted.geometry.squared_norms)[m // 2])
    for _ in range(m):  # each round settles the pairs of its center
        if not doubtful.any():
            break
        rows = np.append(np.flatnonzero(doubtful[center]), center)
        group = weighted.points.select(rows.tolist())
        gram = inner_products(group, np.float64 if wide else np.float32)
        near = np.add.outer(gram.diagonal(), gram.diagonal())
        apart = np.maximum(near - 2 * gram, 0)
        pairs = np.ix_(rows, rows)
        squares[pairs] = np.where(near < sums[pairs], apart, squares[pairs])
        sums[pairs] = np.minimum(near, sums[pairs])
        doubtful = squares < sums / FAR**2
        np.fill_diagonal(doubtful, val=False)
        center = int(doubtful.sum(axis=0).argmax())
    return squares


def krum_neighbors(m: int, corrupted: int) -> int:
    """Return the number of neighbors in Krum's score: m - f - 2, and at least one if possible."""
    return max(m - corrupted - 2, min(m - 1, 1))


@np.errstate(over="ignore")
def krum_scores(ranked: Floats, neighbors: int) -> Floats:
    """Return the sums of the squared distances to the nearest others, from sorted rows."""
    return ranked[:, 1 : neighbors + 1].sum(axis=1)  # the point itself comes first


def krum_choices(squares: Floats, corrupted: int, count: int) -> list[int]:
    """Return the points that Krum chooses one after another, each from the rest."""
    order = squares.argsort(axis=1, kind="stable")
    ranked = np.take_along_axis(squares, order, 1)
    left, chosen = np.arange(len(squares)), list[int]()
    for _ in range(count):
        best = int(krum_scores(ranked, krum_neighbors(left.size, corrupted)).argmin())
        chosen.append(int(left[best]))
        stay = order != left[best]
        stay[best] = False
        left = np.delete(left, best)
        ranked = ranked[stay].reshape(left.size, left.size)
        order = order[stay].reshape(left.size, left.size)
    return chosen
