"""An oracle over updates in one process, in plain floating point.

>>> import numpy as np
>>> ask = PlainOracle([np.array([3.0, 4.0]), np.array([0.0, 0.0])])
>>> total = ask(np.zeros(2), 1.0)
>>> total.push, total.mass
(array([0.6, 0.8]), 1.2)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rfa._types import Floats, Vector
from rfa.errors import InvalidValueError
from rfa.numerics.points import to_numpy
from rfa.numerics.smoothing import betas, smoothed_norms
from rfa.numerics.weighted import OnBad, read_weighted_points
from rfa.oracle import REACH, Sum
from rfa.radii import Radii, Radius, check_query_radius


class PlainOracle:
    """An oracle in plain floating point over updates in one process: fast, and not private.

    It writes its sums into arrays that it keeps, so only one thread at a time may call it.

    Attributes:
        dim: the number of coordinates d.
        dropped: the updates that were left out because they are not finite.
        shares: the share of each other update in the step from the last sum.
    """

    def __init__(self, updates: Any, weights: Any = None, *, on_bad: OnBad = "raise") -> None:
        """Read the updates, in any form that `geometric_median` takes.

        Args:
            updates: m updates.
            weights: m weights alpha_i, used as they are; ones by default.
            on_bad: what to do about updates that are not finite: "raise" or "drop".
        """
        weighted = read_weighted_points(updates, weights, on_bad)
        ones = np.ones(weighted.num_given)
        given = ones if weights is None else to_numpy(weights, "weights").astype(np.float64)
        self._geometry = weighted.geometry
        self._points = weighted.points
        self._alpha = given[weighted.kept]
        self.dim = weighted.points.dim
        self.dropped = weighted.dropped
        self.shares: Floats | None = None

    def __call__(self, v: Vector, nu: Radius) -> Sum:
        """Return the sums at v.

        Args:
            v: the point, a vector of `dim` coordinates.
            nu: the radius, or the radii of blocks.

        Raises:
            InvalidValueError: if v has another shape, is not finite, or is too far away.
        """
        v = _checked_query(v, nu, self.dim)
        if isinstance(nu, Radii):
            return self._in_blocks(v, nu)
        distances = self._geometry.center(v)
        if not np.isfinite(distances).all():
            msg = f"v is too far away: the squared distances of {len(self._alpha)} updates overflow"
            raise InvalidValueError(msg)
        beta = betas(self._alpha, distances, nu)
        self._geometry.combine(beta)
        self.shares = beta / beta.sum()
        return Sum(
            push=self._geometry.offset(),
            mass=float(nu * beta.sum()),
            weight=float(self._alpha.sum()),
            near=int((distances <= REACH * nu).sum()),
            count=self._alpha.size,
            squares=float(nu * nu * (beta @ beta)),
            objective=float(self._alpha @ smoothed_norms(distances, nu)),
        )

    def _in_blocks(self, v: Vector, radii: Radii) -> Sum:
        """Return the sums at v with a radius for each block; votes are their expected values."""
        push, near = np.zeros(self.dim), np.zeros(len(radii.levels))
        for row, weight in enumerate(self._alpha):
            part, within = radii.push(self._points.point(row, np.float64) - v)
            push += weight * part
            near += within
        count = self._alpha.size
        return Sum(
            push=push,
            mass=None,
            weight=float(self._alpha.sum()),
            near=None,
            count=count,
            squares=None,
            votes=(near + count / 2) / 2,
        )


def _checked_query(v: Any, nu: Radius, dim: int) -> Vector:
    """Return v as an array, if it is one of finite coordinates, and the radius one of a query."""
    if np.shape(v) != (dim,):
        msg = f"v must have shape ({dim},), not {np.shape(v)}"
        raise InvalidValueError(msg)
    if not np.isfinite(v).all():
        msg = f"v must be finite: coordinate {int(np.flatnonzero(~np.isfinite(v))[0])} is not"
        raise InvalidValueError(msg)
    check_query_radius(nu, dim)
    return np.asarray(v)
