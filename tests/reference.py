"""Slow and obvious float64 references, written from the paper and not from the library."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def distances(points: Floats, v: Floats) -> Floats:
    """|v - w_i|."""
    return np.linalg.norm(points - v, axis=1)


def g(points: Floats, alpha: Floats, v: Floats) -> float:
    """eq:weiszfeld:fn."""
    return float(alpha @ distances(points, v))


def g_nu(points: Floats, alpha: Floats, nu: float, v: Floats) -> float:
    """eq:weiszfeld:fn:smooth, with the smoothed norm spelled out point by point."""
    r = distances(points, v)
    return float(
        sum(
            a * (x * x / (2 * nu) + nu / 2 if x <= nu else x) for a, x in zip(alpha, r, strict=True)
        )
    )


def grad_g_nu(points: Floats, alpha: Floats, nu: float, v: Floats) -> Floats:
    """The gradient of g_nu."""
    r = distances(points, v)
    return np.sum(
        [a * (v - w) / max(nu, x) for a, w, x in zip(alpha, points, r, strict=True)], axis=0
    )


def weiszfeld_step(points: Floats, alpha: Floats, nu: float, v: Floats) -> Floats:
    """Algorithm 2 in the paper's own form: sum_i beta_i w_i / sum_i beta_i."""
    beta = [a / max(nu, x) for a, x in zip(alpha, distances(points, v), strict=True)]
    return np.sum([b * w for b, w in zip(beta, points, strict=True)], axis=0) / sum(beta)


def least_subgradient(points: Floats, alpha: Floats, v: Floats) -> float:
    """The norm of the smallest subgradient of g at v: zero at a geometric median only."""
    r = distances(points, v)
    here = r == 0
    away = ~here
    pull = float(np.linalg.norm((alpha[away] / r[away]) @ (points[away] - v)))
    return max(0.0, pull - float(alpha[here].sum()))


def geometric_median(points: Floats, alpha: Floats) -> Floats:
    """A geometric median: the point that is one, or else by Newton's method from the best point."""
    alpha = alpha / alpha.sum()
    for w in points:
        if least_subgradient(points, alpha, w) <= 1e-13:
            return w.copy()
    v = _off_the_best_point(points, alpha)
    for _ in range(300):
        r = distances(points, v)
        u = (points - v) / r[:, None]
        gradient = -(alpha @ u)
        if np.linalg.norm(gradient) < 1e-14:
            break
        b = alpha / r
        hessian = b.sum() * np.eye(v.size) - (u.T * b) @ u
        step = -cast("Floats", np.linalg.lstsq(hessian, gradient, rcond=1e-14)[0])
        v = _line_search(points, alpha, v, step, gradient)
    return v


def _off_the_best_point(points: Floats, alpha: Floats) -> Floats:
    v = min(points, key=lambda w: g(points, alpha, w))
    r = distances(points, v)
    away = r > 0
    b = alpha[away] / r[away]
    push = b @ (points[away] - v)
    return v + push / b.sum() * (1 - alpha[~away].sum() / np.linalg.norm(push))


def _line_search(
    points: Floats, alpha: Floats, v: Floats, step: Floats, gradient: Floats
) -> Floats:
    t, here = 1.0, g(points, alpha, v)
    while t > 1e-10:
        if g(points, alpha, v + t * step) < here + 1e-4 * t * float(gradient @ step):
            return v + t * step
        t /= 2
    return weiszfeld_step(points, alpha, 1e-300, v)


def far_median(points: NDArray[Any], alpha: Floats, steps: int = 3000) -> tuple[Floats, Floats]:
    """The median of a cloud in many dimensions, as a point and what to add to it.

    Plain Weiszfeld steps in float64, relative to the most central point, so that neither an
    offset nor outliers cost digits.
    """
    points = points.astype(np.float64)
    medians = np.array([np.median(distances(points, w)) for w in points])
    center = points[int(medians.argmin())]
    apart = points - center
    r = np.linalg.norm(apart, axis=1)
    r = np.maximum(r, np.median(r) / 2)
    v = np.zeros_like(center)
    for _ in range(steps):
        beta = alpha / r
        last, v = v, beta @ apart / beta.sum()
        r = distances(apart, v)
        if np.linalg.norm(v - last) <= 1e-15 * np.median(r):
            break
    return center, v
