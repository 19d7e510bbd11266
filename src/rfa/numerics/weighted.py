"""The points of one aggregation after the checks that all aggregators share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from rfa._types import Array, Floats
from rfa.errors import InvalidValueError
from rfa.numerics.coordinatewise import column_median
from rfa.numerics.dense import Dense
from rfa.numerics.distances import Kernel, weighted_median
from rfa.numerics.points import Cloud, read_cloud, to_numpy
from rfa.numerics.streaming import Stream

OnBad: TypeAlias = Literal["raise", "drop"]

SMALL = 1 << 14
"""A cloud of no more numbers than this is copied to float64 whole and treated directly."""
TINY = 1e-280
"""Squared norms that are all smaller have lost their digits."""
RANGE = (1e-30, 1e30)
"""Mean squares below and squared norms above are beyond float32 and computed in float64."""


@dataclass(frozen=True)
class Cohort:
    """Finite points with positive weights that sum to one."""

    cloud: Cloud
    kernel: Kernel
    alpha: Floats
    rows: list[int]
    """Which of the caller's points these are."""
    dropped: tuple[int, ...]
    total: int
    """How many points the caller gave."""

    def restore(self, read: Callable[[slice, Any], Array]) -> Any:
        """A point in the form of the caller's, with the coordinates that `read` gives.

        Integer and boolean arrays take the weighted median of those of the points.
        """
        buffers = [column_median(buffer, self.alpha) for buffer in self.cloud.buffers]
        return self.cloud.restore(read, buffers)

    def spread(self, weights: Floats) -> Floats:
        """Weights of these points as weights of all that the caller gave."""
        full = np.zeros(self.total)
        full[self.rows] = weights
        return full


def read_cohort(points: Any, weights: Any, on_bad: OnBad) -> Cohort:
    """Read points and weights, and leave out or refuse what no aggregate can use.

    Raises:
        TypeError: if points or weights are not numbers.
        ValueError: if they are empty, differ in shape, or hold values that have no meaning; and
            if points are not finite, unless `on_bad` is "drop".
    """
    if on_bad not in ("raise", "drop"):
        msg = f"on_bad must be 'raise' or 'drop', not {on_bad!r}"
        raise InvalidValueError(msg)
    cloud = read_cloud(points)
    alpha = _read_weights(weights, cloud.rows)
    kernel = _open_kernel(cloud, alpha)
    finite = np.isfinite(kernel.norms)
    bad = np.flatnonzero(~finite).tolist()
    if bad and on_bad == "raise":
        msg = (
            f"points {_some(bad)} are not finite (NaN, infinite, or too large to square): "
            "mend them, or leave them out with on_bad='drop'"
        )
        raise InvalidValueError(msg)
    _refuse_tiny(cloud, kernel)
    rows: list[int] = np.flatnonzero(finite & (alpha > 0)).tolist()
    if not rows:
        msg = f"no finite point with a positive weight is left of {cloud.rows}"
        raise InvalidValueError(msg)
    if len(rows) < cloud.rows:
        total = cloud.rows
        cloud, alpha = cloud.keep(rows), alpha[rows]
        kernel = _open_kernel(cloud, alpha)
        return Cohort(cloud, kernel, alpha / alpha.sum(), rows, tuple(bad), total)
    return Cohort(cloud, kernel, alpha / alpha.sum(), rows, (), cloud.rows)


def _open_kernel(cloud: Cloud, alpha: Floats) -> Kernel:
    """The kernel that suits a cloud, centered on the origin."""
    if cloud.rows * cloud.dim <= SMALL:
        return Dense(cloud, alpha)
    wide = cloud.dtype.itemsize > np.dtype(np.float32).itemsize
    kernel = Stream(cloud, alpha, np.float64 if wide else np.float32)
    norms = kernel.norms
    typical = weighted_median(norms, alpha) / cloud.dim
    if wide or (typical >= RANGE[0] and norms.max() <= RANGE[1]) or np.isnan(norms).any():
        return kernel
    return Stream(cloud, alpha, np.float64)


def _refuse_tiny(cloud: Cloud, kernel: Kernel) -> None:
    """Points whose squares vanish would all seem to be one point."""
    if not kernel.norms.max() < TINY:
        return
    if any(np.any(row) for segment in cloud.segments for row in segment):
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
