"""The points of an aggregation after the checks that all aggregators share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from rfa._types import Array, Floats
from rfa.errors import InvalidValueError
from rfa.numerics.coordinatewise import column_median
from rfa.numerics.dense import DenseGeometry
from rfa.numerics.distances import Geometry, weighted_median
from rfa.numerics.points import Points, read_points, to_numpy
from rfa.numerics.streaming import StreamingGeometry

OnBad: TypeAlias = Literal["raise", "drop"]

SMALL = 1 << 14
"""Points with at most this many numbers in all are copied to a float64 matrix."""
TINY = 1e-280
"""If all squared norms are smaller, they have lost their digits."""
RANGE = (1e-30, 1e30)
"""Points with mean squares below or squared norms above are computed in float64, not float32."""


@dataclass(frozen=True)
class WeightedPoints:
    """Finite points with positive weights that sum to one."""

    points: Points
    geometry: Geometry
    alpha: Floats
    kept: list[int]
    """The indices of these points among the caller's."""
    dropped: tuple[int, ...]
    num_given: int
    """The number of points that the caller gave."""

    def restore(self, read: Callable[[slice, Any], Array]) -> Any:
        """Return a point in the caller's form, with the coordinates from `read`.

        Integer and boolean arrays get the weighted median of those of the points.
        """
        buffers = [column_median(buffer, self.alpha) for buffer in self.points.buffers]
        return self.points.restore(read, buffers)

    def spread(self, weights: Floats) -> Floats:
        """Return weights of these points as weights of all points of the caller."""
        full = np.zeros(self.num_given)
        full[self.kept] = weights
        return full


def read_weighted_points(given: Any, weights: Any, on_bad: OnBad) -> WeightedPoints:
    """Read points and weights, and drop or reject points that are not finite.

    Raises:
        TypeError: if points or weights are not numbers.
        ValueError: if they are empty, differ in shape, or hold invalid values; and if points are
            not finite, unless `on_bad` is "drop".
    """
    if on_bad not in ("raise", "drop"):
        msg = f"on_bad must be 'raise' or 'drop', not {on_bad!r}"
        raise InvalidValueError(msg)
    points = read_points(given)
    alpha = _read_weights(weights, points.count)
    geometry = _open_geometry(points, alpha)
    finite = np.isfinite(geometry.squared_norms)
    bad = np.flatnonzero(~finite).tolist()
    if bad and on_bad == "raise":
        msg = (
            f"points {_some(bad)} are not finite (NaN, infinite, or too large to square): "
            "correct them, or leave them out with on_bad='drop'"
        )
        raise InvalidValueError(msg)
    _refuse_tiny(points, geometry)
    rows: list[int] = np.flatnonzero(finite & (alpha > 0)).tolist()
    if not rows:
        msg = f"no finite point with a positive weight is left of {points.count}"
        raise InvalidValueError(msg)
    if len(rows) < points.count:
        total = points.count
        points, alpha = points.select(rows), alpha[rows]
        geometry = _open_geometry(points, alpha)
        return WeightedPoints(points, geometry, alpha / alpha.sum(), rows, tuple(bad), total)
    return WeightedPoints(points, geometry, alpha / alpha.sum(), rows, (), points.count)


def _open_geometry(points: Points, alpha: Floats) -> Geometry:
    """Return the geometry that suits the points, centered on the origin."""
    if points.count * points.dim <= SMALL:
        return DenseGeometry(points, alpha)
    wide = points.dtype.itemsize > np.dtype(np.float32).itemsize
    geometry = StreamingGeometry(points, alpha, np.float64 if wide else np.float32)
    norms = geometry.squared_norms
    typical = weighted_median(norms, alpha) / points.dim
    if wide or (typical >= RANGE[0] and norms.max() <= RANGE[1]) or np.isnan(norms).any():
        return geometry
    return StreamingGeometry(points, alpha, np.float64)


def _refuse_tiny(points: Points, geometry: Geometry) -> None:
    """Raise an error if all squares vanish, because all points would seem equal."""
    if not geometry.squared_norms.max() < TINY:
        return
    if any(np.any(row) for segment in points.segments for row in segment):
        msg = (
            f"points must not all be smaller than {TINY**0.5:.0e}, where squares vanish: scale them"
        )
        raise InvalidValueError(msg)


def _read_weights(weights: Any, rows: int) -> Floats:
    if weights is None:
        return np.ones(rows)
    alpha = to_numpy(weights, "weights").astype(np.float64)
    if alpha.shape != (rows,):
        msg = f"weights must be one number for each of the {rows} points, not shape {alpha.shape}"
        raise InvalidValueError(msg)
    odd = np.flatnonzero(~np.isfinite(alpha) | (alpha < 0))
    if odd.size:
        msg = f"weights must be finite and not negative: weights[{odd[0]}] is {alpha[odd[0]]}"
        raise InvalidValueError(msg)
    if not alpha.any():
        msg = f"weights must not all be zero: all {rows} are"
        raise InvalidValueError(msg)
    return alpha / alpha.max()


def _some(rows: list[int], most: int = 10) -> str:
    shown = ", ".join(map(str, rows[:most]))
    return f"[{shown}]" if len(rows) <= most else f"[{shown}, … {len(rows)} in all]"
