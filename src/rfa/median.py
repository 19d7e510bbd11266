"""The geometric median of points that the caller holds: fast, correct, and in any form.

The geometric median minimizes g(v) = sum_i alpha_i |v - w_i| (eq:geom_med:nonsmooth). It is found
by Weiszfeld's algorithm, v <- sum_i beta_i w_i / sum_i beta_i with beta_i = alpha_i / |v - w_i|,
which here runs on the m weights of the average (see `kernel.py`).

    >>> import numpy as np
    >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1e8, 1e8]])
    >>> bool(np.linalg.norm(geometric_median(points).point) < 1)
    True

Those who hold no points, only a way to ask for sums over devices, want `weiszfeld.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Floats
from rfa.errors import InvalidValueError
from rfa.numerics.anderson import Anderson, Merit
from rfa.numerics.distances import Kernel, weighted_median
from rfa.numerics.smoothing import Radius, Relative, betas, radius_at, smoothed_norms
from rfa.numerics.weighted import Cohort, OnBad, read_cohort

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
class _Plan:
    """How many steps to take, and how."""

    nu: Radius
    steps: int
    early_stop: float | None


@dataclass(frozen=True)
class State:
    """An iterate: its weights, the distances of the points, and the steps that led to it."""

    weights: Floats
    distances: Floats
    gradient: float
    steps: int


def geometric_median(  # noqa: PLR0913
    points: Any,
    weights: Any = None,
    *,
    nu: Radius | None = None,
    steps: int | None = None,
    tol: float = 1e-10,
    start: Any = None,
    on_bad: OnBad = "raise",
    early_stop: float | None = None,
) -> Median:
    """The weighted geometric median of m points, or R smoothed Weiszfeld steps toward it.

    Integer and boolean arrays inside of models, such as the counters of BatchNorm, have no part
    in the distances; the answer carries their weighted median, element by element.

    Args:
        points: an (m, d) array; or a sequence of m arrays; or of m models, each a list, tuple or
            dict of arrays. numpy arrays or torch tensors; the answer is of the same kind, and of
            the type of the first point; of whole numbers, float64.
        weights: m weights alpha_i, not negative; equal ones by default.
        nu: the smoothing radius (Algorithm 2), a number or `Relative`. By default
            `Relative(0.5)` with `steps`, so that no single point that sits on an iterate can hold
            it there, and none without: the answer is then the true geometric median. A given `nu`
            without `steps` asks for the nu-smoothed median.
        steps: take exactly this many Weiszfeld steps from `start` instead of converging.
        tol: what the norm of the gradient of g (weights summing to one) may be at the answer:
            the share of the weight that is out of balance there, since one more point with that
            weight put on the answer would make it exact. Less than 2.4e-7 for float32 points and
            4.4e-16 for float64 ones cannot be told, and counts as that.
        start: where the steps start: "zero", "mean", or a vector or model. By default zero, the
            right start for updates; where the points turn out to lie far from zero compared with
            their spread, as whole models do, the steps start at a point amid them. Without
            `steps` it makes no difference.
        on_bad: what to do about points that are not finite, or too large to square (from 1e154
            on): "raise", or "drop" and report them.
        early_stop: with `steps`, stop sooner when a step improves g_nu by no more than this
            fraction (the paper's appendix uses 1e-6).

    Raises:
        TypeError: if points or weights are not numbers.
        ValueError: if an argument has no meaning; the message names the value.
    """
    nu = _check_options(nu, steps, tol, start, early_stop)
    cohort = read_cohort(points, weights, on_bad)
    tol = max(tol, FLOOR * cohort.kernel.eps)
    if start is not None and not isinstance(start, str):
        start = cohort.cloud.flatten(start, "start")
    if steps is None:
        state = converge(cohort.kernel, cohort.alpha, nu, tol)
    else:
        state = _take_steps(cohort, _Plan(nu, steps, early_stop), start)
    return Median(
        point=cohort.restore(cohort.kernel.read),
        weights=cohort.spread(state.weights),
        objective=float(cohort.alpha @ state.distances),
        gradient=state.gradient,
        steps=state.steps,
        converged=state.gradient <= tol,
        dropped=cohort.dropped,
    )


def _take_steps(cohort: Cohort, plan: _Plan, start: Any) -> State:
    """Algorithm 2, exactly this many steps."""
    kernel, alpha = cohort.kernel, cohort.alpha
    reach = kernel.reach
    state = _steps_from(kernel, alpha, plan, _start_distances(cohort, start))
    if start is None and reach > FAR * weighted_median(state.distances, alpha):
        amid = kernel.center(int(state.distances.argmin()))
        state = _steps_from(kernel, alpha, plan, amid)
    return state


def _start_distances(cohort: Cohort, start: Any) -> Floats:
    """The distances of the points from where the steps start."""
    kernel = cohort.kernel
    if isinstance(start, str) and start == "mean":
        return kernel.distances(cohort.alpha)
    if start is None or isinstance(start, str):
        return np.sqrt(kernel.norms)
    distances = kernel.center(start)
    if not np.isfinite(distances).all():
        msg = "start must be finite, and is not (NaN, infinite, or too large to square)"
        raise InvalidValueError(msg)
    return distances


def _steps_from(kernel: Kernel, alpha: Floats, plan: _Plan, distances: Floats) -> State:
    weights, taken = alpha, 0
    while taken < plan.steps:
        radius = radius_at(plan.nu, distances, alpha)
        weights = _normalize(betas(alpha, distances, radius))
        last, distances = distances, kernel.distances(weights)
        taken += 1
        if plan.early_stop is not None:
            before, after = (alpha @ smoothed_norms(each, radius) for each in (last, distances))
            if abs(before - after) <= plan.early_stop * before:
                break
    return State(weights, distances, _gradient(alpha, weights, distances, plan.nu), taken)


def converge(kernel: Kernel, alpha: Floats, nu: Radius, tol: float) -> State:
    """Weiszfeld steps with Anderson acceleration until the gradient is within `tol`.

    The kernel then holds the answer, to be read in whatever precision is wanted.
    """
    weights, optimal = _first_weights(kernel, alpha, nu)
    mixer, tried, step = Anderson(), set[int](), 0
    while True:
        step += 1
        distances = kernel.distances(weights)
        gradient = 0.0 if optimal else _gradient(alpha, weights, distances, nu)
        radius = radius_at(nu, distances, alpha)
        image = _normalize(betas(alpha, distances, radius))
        if gradient <= tol or step == MAX_STEPS:
            return State(_normalize(np.maximum(weights, 0)), distances, gradient, step)
        nearest = int(distances.argmin())
        if radius == 0 and nearest not in tried and _held_by(nearest, image, distances, kernel):
            tried.add(nearest)
            weights, optimal = _try_point(kernel, alpha, nearest)
            mixer = Anderson()
        else:
            objective = float(alpha @ distances)
            merit = Merit(objective, gradient, NOISE * kernel.eps * objective)
            weights = mixer.propose(weights, image, distances, merit)


def _first_weights(kernel: Kernel, alpha: Floats, nu: Radius) -> tuple[Floats, bool]:
    """Weights to start from, and whether they are those of the median already.

    Starting next to the lowest of all points, and descending, keeps away from all points
    (Beck and Sabach 2015). Where that costs too much, start from an average that holds back
    points far from the others. Two points of the same weight meet at their mean.
    """
    if alpha.size == 1 or (alpha.size == PAIR and abs(alpha[0] - alpha[1]) <= SLACK):
        return alpha, False
    lowest = kernel.lowest() if nu == 0 else None
    if lowest is not None:
        return _try_point(kernel, alpha, lowest)
    distances = np.sqrt(kernel.norms)
    radius = radius_at(Relative(0.1), distances, alpha)
    return _normalize(betas(alpha, distances, radius)), False


def _held_by(row: int, weights: Floats, distances: Floats, kernel: Kernel) -> bool:
    """Whether an iterate is about to end on a point, or on several that coincide."""
    close = distances[row] <= (kernel.reach or distances.max()) / 10
    return bool(close and weights[distances <= 2 * distances[row]].sum() > 1 / 2)


def _try_point(kernel: Kernel, alpha: Floats, row: int) -> tuple[Floats, bool]:
    """Whether a point is the median itself; if not, the weights of a lower point next to it.

    A point with weight alpha (with all that coincide with it) is the median if and only if the
    unit vectors from it to the others, times their weights, sum to no more than alpha in norm.
    """
    distances = kernel.center(row)
    here = distances == 0
    own = _normalize(np.where(here, alpha, 0.0))
    if here.all():
        return own, True
    pulls = np.where(here, 0.0, alpha / np.where(here, 1.0, distances))
    others = _normalize(pulls)
    pull = pulls.sum() * kernel.distances(others)[row]
    weight = alpha[here].sum()
    if pull <= weight * (1 + SLACK):
        return own, True
    return own + (1 - weight / pull) * (others - own), False


def _gradient(alpha: Floats, weights: Floats, distances: Floats, nu: Radius) -> float:
    """A bound on |grad g_nu(v)| = |sum_i beta_i (v - w_i)|, for v the average with `weights`.

    Since sum_i weights_i (v - w_i) = 0, any multiple of the weights may be taken off the beta_i,
    and the triangle inequality does the rest. It is relative to the sum of |beta_i (v - w_i)|,
    which is one without smoothing, so that it keeps its meaning for a large nu. On a point the
    least subgradient counts: the pull of the others, at most their weight, less its own weight.
    """
    radius = radius_at(nu, distances, alpha)
    here = np.maximum(distances, radius) == 0
    if here.any():
        return max(0.0, 1 - 2 * float(alpha[here].sum()))
    beta = betas(alpha, distances, radius)
    terms = float(beta @ distances)
    return float(np.abs(beta - beta.sum() * weights) @ distances) / terms if terms > 0 else 0.0


def _normalize(weights: Floats) -> Floats:
    return weights / weights.sum()


def _check_options(
    nu: Radius | None,
    steps: int | None,
    tol: float,
    start: Any,
    early_stop: float | None,
) -> Radius:
    """Refuse options without a meaning; the smoothing radius to use."""
    check_number("tol", tol)
    if isinstance(start, str) and start not in ("zero", "mean"):
        msg = f"start must be 'zero', 'mean' or a point, not {start!r}"
        raise InvalidValueError(msg)
    if steps is None:
        if early_stop is not None:
            msg = f"early_stop={early_stop!r} goes with steps: without them the run converges"
            raise InvalidValueError(msg)
    else:
        check_count("steps", steps)
    if early_stop is not None:
        check_number("early_stop", early_stop)
    if nu is None:
        return 0.0 if steps is None else Relative(0.5)
    if isinstance(nu, Relative):
        return nu
    check_number("nu", nu)
    return float(nu)
