"""The geometric median of points that the caller holds: fast, correct, and in any form.

The geometric median minimizes g(v) = sum_i alpha_i |v - w_i| (eq:geom_med:nonsmooth). We compute it
by Weiszfeld's algorithm, v <- sum_i beta_i w_i / sum_i beta_i with beta_i = alpha_i / |v - w_i|,
which here runs on the m weights of the average (see `rfa.numerics.distances`).

    >>> import numpy as np
    >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1e8, 1e8]])
    >>> bool(np.linalg.norm(geometric_median(points).point) < 1)
    True

The gradient of g at the answer is the fraction of the weight that is out of balance: a further
point of that weight, put on the answer, would make it exact. Smoothing by nu keeps a point that
sits on an iterate from holding it there, so steps are smoothed by default.

Integer and boolean arrays inside models, such as the counters of BatchNorm, have no part in the
distances; the answer carries their weighted median, element by element.

Those who hold no points, only a way to ask for sums over devices, want
`rfa.aggregators.weiszfeld`.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Floats
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.numerics.anderson import Anderson, Merit
from rfa.numerics.distances import Geometry, weighted_median
from rfa.numerics.smoothing import Relative, Smoothing, betas, nu_at, smoothed_norms
from rfa.numerics.weighted import OnBad, WeightedPoints, read_weighted_points

MAX_STEPS = 1000
"""Steps before a run to convergence gives up, which `converged` tells."""
FLOOR = 2
"""Multiples of the working precision below which no gradient can be measured."""
NOISE = 4
"""Multiples of the working precision by which an objective may be off."""
FAR = 4
"""Points that lie this many times farther from zero than from each other are no updates."""
SLACK = 1e-12
"""Relative slack in the test whether a point is the median itself."""
PAIR = 2


@dataclass(frozen=True)
class Median:
    """A geometric median, or what a number of steps toward it reached.

    Attributes:
        point: the answer, in the form of the points.
        weights: the effective weights beta_i / sum beta, with which the points average to it.
        objective: g at the answer, for weights that sum to one: the average distance, also where
            a smoothed median was asked for.
        gradient: a bound on the norm of the gradient of the objective at the answer (of the
            smoothed one, relative to the sum of the norms of its terms, where nu is given).
        steps: how many Weiszfeld steps were taken.
        converged: whether `gradient` is within the tolerance.
        dropped: the points that were left out because they are not finite.
    """

    point: Any
    weights: Floats
    objective: float
    gradient: float
    steps: int
    converged: bool
    dropped: tuple[int, ...]


@dataclass(frozen=True)
class _Steps:
    """How many steps to take, and how."""

    nu: Smoothing
    count: int
    early_stop: float | None


@dataclass(frozen=True)
class Iterate:
    """An average of the points: its weights, the distances of the points, the steps up to it."""

    weights: Floats
    distances: Floats
    gradient: float
    steps: int


def geometric_median(  # noqa: PLR0913
    points: Any,
    weights: Any = None,
    *,
    nu: Smoothing | None = None,
    steps: int | None = None,
    tol: float = 1e-10,
    start: Any = None,
    on_bad: OnBad = "raise",
    early_stop: float | None = None,
) -> Median:
    """Compute the weighted geometric median of m points, or R smoothed Weiszfeld steps toward it.

    Args:
        points: an (m, d) array; or a sequence of m arrays; or of m models, each a list, tuple or
            dict of arrays. numpy arrays or torch tensors; the result is of the same kind and has
            the dtype of the first point, or float64 for integers.
        weights: m weights alpha_i, not negative; equal by default.
        nu: the smoothing radius, a number or `Relative`. By default `Relative(0.5)` with `steps`,
            and 0 without, for the true geometric median. A given `nu` without `steps` asks for
            the nu-smoothed median.
        steps: take this many Weiszfeld steps (Algorithm 2) from `start` instead of converging.
        tol: converge until the norm of the gradient of g, for weights that sum to one, is at most
            this. Below 2.4e-7 for float32 points, or 4.4e-16 for float64, it counts as that.
        start: where `steps` start: "zero", "mean", or a vector or model. By default zero, which
            suits updates, or a point among the points if they lie far from zero, as models do.
        on_bad: "raise" for points that are not finite or too large to square (1e154 or more), or
            "drop" to leave them out and report them.
        early_stop: with `steps`, stop when a step improves g_nu by no more than this fraction
            (the paper's appendix uses 1e-6).

    Raises:
        TypeError: if points, weights or nu are of a wrong type.
        ValueError: if an argument is out of range; the message names the value.
    """
    nu = _check_options(nu, steps, tol, start, early_stop)
    weighted = read_weighted_points(points, weights, on_bad)
    tol = max(tol, FLOOR * weighted.geometry.eps)
    if steps is None:
        iterate = converge(weighted.geometry, weighted.alpha, nu, tol)
    else:
        iterate = _take_steps(weighted, _Steps(nu, steps, early_stop), start)
    return _to_median(weighted, iterate, tol)


def _to_median(weighted: WeightedPoints, iterate: Iterate, tol: float) -> Median:
    return Median(
        point=weighted.restore(weighted.geometry.average),
        weights=weighted.spread(iterate.weights),
        objective=float(weighted.alpha @ iterate.distances),
        gradient=iterate.gradient,
        steps=iterate.steps,
        converged=iterate.gradient <= tol,
        dropped=weighted.dropped,
    )


def _take_steps(weighted: WeightedPoints, steps: _Steps, start: Any) -> Iterate:
    """Algorithm 2, exactly this many steps."""
    geometry, alpha = weighted.geometry, weighted.alpha
    from_zero = geometry.typical_distance
    iterate = _steps_from(geometry, alpha, steps, _start_distances(weighted, start))
    if start is None and from_zero > FAR * weighted_median(iterate.distances, alpha):
        amid = geometry.center(int(iterate.distances.argmin()))
        iterate = _steps_from(geometry, alpha, steps, amid)
    return iterate


def _start_distances(weighted: WeightedPoints, start: Any) -> Floats:
    """The distances of the points from where the steps start."""
    geometry = weighted.geometry
    if isinstance(start, str) and start == "mean":
        return geometry.distances(weighted.alpha)
    if start is None or isinstance(start, str):
        return np.sqrt(geometry.squared_norms)
    distances = geometry.center(weighted.points.flatten(start, "start"))
    if not np.isfinite(distances).all():
        msg = "start must be finite, and is not (NaN, infinite, or too large to square)"
        raise InvalidValueError(msg)
    return distances


def _steps_from(geometry: Geometry, alpha: Floats, steps: _Steps, distances: Floats) -> Iterate:
    weights, taken = alpha, 0
    while taken < steps.count:
        radius = nu_at(steps.nu, distances, alpha)
        weights = _normalize(betas(alpha, distances, radius))
        last, distances = distances, geometry.distances(weights)
        taken += 1
        if steps.early_stop is not None:
            before, after = (alpha @ smoothed_norms(each, radius) for each in (last, distances))
            if abs(before - after) <= steps.early_stop * before:
                break
    return Iterate(weights, distances, _gradient(alpha, weights, distances, steps.nu), taken)


def converge(geometry: Geometry, alpha: Floats, nu: Smoothing, tol: float) -> Iterate:
    """Weiszfeld steps with Anderson acceleration until the gradient is within `tol`.

    The geometry then holds the answer, to be read in whatever precision is wanted.
    """
    weights, optimal = _first_weights(geometry, alpha, nu)
    mixer, tried, step = Anderson(), set[int](), 0
    while True:
        step += 1
        distances = geometry.distances(weights)
        gradient = 0.0 if optimal else _gradient(alpha, weights, distances, nu)
        radius = nu_at(nu, distances, alpha)
        image = _normalize(betas(alpha, distances, radius))
        if gradient <= tol or step == MAX_STEPS:
            return Iterate(_normalize(np.maximum(weights, 0)), distances, gradient, step)
        nearest = int(distances.argmin())
        if radius == 0 and nearest not in tried and _held_by(nearest, image, distances, geometry):
            tried.add(nearest)
            weights, optimal = _try_point(geometry, alpha, nearest)
            mixer = Anderson()
        else:
            objective = float(alpha @ distances)
            merit = Merit(objective, gradient, NOISE * geometry.eps * objective)
            weights = mixer.propose(weights, image, distances, merit)


def _first_weights(geometry: Geometry, alpha: Floats, nu: Smoothing) -> tuple[Floats, bool]:
    """Weights to start from, and whether they are those of the median already.

    Starting next to the lowest of all points, and descending, keeps away from all points
    (Beck and Sabach 2015). Where that costs too much, start from an average that holds back
    points far from the others. Two points of the same weight meet at their mean.
    """
    if alpha.size == 1 or (alpha.size == PAIR and abs(alpha[0] - alpha[1]) <= SLACK):
        return alpha, False
    lowest = geometry.lowest_point() if nu == 0 else None
    if lowest is not None:
        return _try_point(geometry, alpha, lowest)
    distances = np.sqrt(geometry.squared_norms)
    radius = nu_at(Relative(0.1), distances, alpha)
    return _normalize(betas(alpha, distances, radius)), False


def _held_by(row: int, weights: Floats, distances: Floats, geometry: Geometry) -> bool:
    """Whether an iterate is about to end on a point, or on several that coincide."""
    close = distances[row] <= (geometry.typical_distance or distances.max()) / 10
    return bool(close and weights[distances <= 2 * distances[row]].sum() > 1 / 2)


def _try_point(geometry: Geometry, alpha: Floats, row: int) -> tuple[Floats, bool]:
    """Whether a point is the median itself; if not, the weights of a lower point next to it.

    A point with weight alpha (with all that coincide with it) is the median if and only if the
    unit vectors from it to the others, times their weights, sum to no more than alpha in norm.
    """
    distances = geometry.center(row)
    here = distances == 0
    on_point = _normalize(np.where(here, alpha, 0.0))
    if here.all():
        return on_point, True
    pulls = np.where(here, 0.0, alpha / np.where(here, 1.0, distances))
    others = _normalize(pulls)
    pull = pulls.sum() * geometry.distances(others)[row]
    weight = alpha[here].sum()
    if pull <= weight * (1 + SLACK):
        return on_point, True
    return on_point + (1 - weight / pull) * (others - on_point), False


def _gradient(alpha: Floats, weights: Floats, distances: Floats, nu: Smoothing) -> float:
    """A bound on |grad g_nu(v)| = |sum_i beta_i (v - w_i)|, for v the average with `weights`.

    Since sum_i weights_i (v - w_i) = 0, any multiple of the weights may be taken off the beta_i,
    and the triangle inequality does the rest. It is relative to the sum of |beta_i (v - w_i)|,
    which is one without smoothing, so that it keeps its meaning for a large nu. On a point the
    least subgradient counts: the pull of the others, at most their weight, less its own weight.
    """
    radius = nu_at(nu, distances, alpha)
    here = np.maximum(distances, radius) == 0
    if here.any():
        return max(0.0, 1 - 2 * float(alpha[here].sum()))
    beta = betas(alpha, distances, radius)
    terms = float(beta @ distances)
    return float(np.abs(beta - beta.sum() * weights) @ distances) / terms if terms > 0 else 0.0


def _normalize(weights: Floats) -> Floats:
    return weights / weights.sum()


def _check_options(
    nu: Smoothing | None,
    steps: int | None,
    tol: float,
    start: Any,
    early_stop: float | None,
) -> Smoothing:
    """Check the options; return the smoothing radius to use."""
    check_number("tol", tol)
    if isinstance(start, str) and start not in ("zero", "mean"):
        msg = f"start must be 'zero', 'mean' or a point, not {start!r}"
        raise InvalidValueError(msg)
    if steps is None:
        for name, value in (("early_stop", early_stop), ("start", start)):
            if value is not None:
                msg = f"{name} goes with steps, and there are none: give steps, or leave it out"
                raise InvalidValueError(msg)
    else:
        check_count("steps", steps)
    if early_stop is not None:
        check_number("early_stop", early_stop)
    if nu is None:
        return 0.0 if steps is None else Relative(0.5)
    if isinstance(nu, Relative):
        return nu
    if not isinstance(nu, Real):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"nu must be a number from 0 on, or rfa.Relative(factor), not {nu!r}"
        raise InvalidTypeError(msg)
    check_number("nu", nu)
    return float(nu)
