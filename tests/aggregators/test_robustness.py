"""Attacks: what corrupted points can and cannot do to the median."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rfa import Relative, geometric_median

Floats = NDArray[np.float64]


def honest(m: int, d: int, seed: int = 0) -> Floats:
    """Updates at distance about one of their center, which itself is one away from zero."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((m, d)) + 1) / np.sqrt(d)


def progress(point: Floats, median: Floats) -> float:
    """How much of the way from zero to the median was made."""
    return float(point @ median / (median @ median))


@pytest.mark.parametrize(("steps", "least"), [(1, 0.85), (2, 0.93), (3, 0.95)])
def test_a_zero_update_does_not_hold_the_start(steps: int, least: float) -> None:
    """secure-average: one device sends exactly zero, where the steps start."""
    points = np.concatenate([honest(99, 1000), np.zeros((1, 1000))])
    median = geometric_median(points).point
    made = progress(geometric_median(points, steps=steps).point, median)
    assert least <= made <= 1.05
    unsafe = geometric_median(points, nu=1e-6, steps=steps, start="zero").point
    assert progress(unsafe, median) < made / 3  # why the paper's 1e-6 is not the default


def anchored(m: int, corrupted: int) -> tuple[Floats, Floats]:
    """Omniscient devices that turn the mean around, and one that sits on the mean they make."""
    points = honest(m, 1000)
    target = -points.mean(axis=0)
    clean = points[corrupted:].sum(axis=0)
    points[1:corrupted] = (target * (m - 1) - clean) / (corrupted - 1)
    points[0] = points[1:].mean(axis=0)
    return points, target


@pytest.mark.parametrize("start", [None, "zero", "mean"])
def test_an_anchor_does_not_hold_the_poisoned_mean(start: str | None) -> None:
    """secure-average: a quarter is corrupted, one of them placed where the steps start."""
    points, poisoned = anchored(100, 25)
    assert np.linalg.norm(points.mean(axis=0) - poisoned) < 0.05
    median = geometric_median(points).point
    result = geometric_median(points, steps=3, start=start).point
    assert np.linalg.norm(result - median) < 0.4 * np.linalg.norm(poisoned - median)
    held = geometric_median(points, nu=1e-6, steps=3, start="mean").point
    assert np.linalg.norm(held - poisoned) < 0.05 * np.linalg.norm(median - poisoned)


def test_steps_from_zero_withstand_huge_updates() -> None:
    points = honest(100, 500)
    points[:25] = np.random.default_rng(1).standard_normal((25, 500)) * 1e6
    median = geometric_median(points).point
    assert np.linalg.norm(geometric_median(points, steps=3).point - median) < 0.05


def test_whole_models_far_from_zero_need_no_other_start() -> None:
    """The default start notices that the points are no updates."""
    points = honest(40, 600) + 1e3
    points[:10] += 1e4
    for form in (points, points.astype(np.float32)):
        median = geometric_median(form).point
        result = geometric_median(form, steps=3)
        assert np.linalg.norm(result.point - median) < 0.1
        assert result.steps == 3


@pytest.mark.parametrize("size", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.49])
def test_less_than_half_of_the_weight_cannot_take_it_away(size: float, share: float) -> None:
    """Breakdown: the median stays within 2 (1 - rho) / (1 - 2 rho) honest radii of the center."""
    for d in (3, 300):
        points = honest(100, d, seed=2)
        count = round(100 * share)
        center = points[count:].mean(axis=0)
        radius = np.linalg.norm(points[count:] - center, axis=1).max()
        bound = 2 * (1 - share) / (1 - 2 * share) * radius
        for outliers in (np.full((count, d), size), np.eye(count, d) * size):
            points[:count] = outliers
            assert np.linalg.norm(geometric_median(points).point - center) <= bound


@given(st.integers(0, 2**32 - 1), st.sampled_from([10.0, 1e4, 1e8]))
def test_just_under_half_of_the_weight_in_few_dimensions(seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    points, d = rng.standard_normal((9, 2)), 2
    weights = rng.random(9) + 0.1
    weights[:4] *= 0.98 * weights[4:].sum() / weights[:4].sum()
    points[:4] = rng.standard_normal((4, d)) * size
    share = weights[:4].sum() / weights.sum()
    center = points[4:].mean(axis=0)
    radius = np.linalg.norm(points[4:] - center, axis=1).max()
    result = geometric_median(points, weights)
    assert result.converged
    assert np.linalg.norm(result.point - center) <= 2 * (1 - share) / (1 - 2 * share) * radius


def test_more_than_half_of_the_weight_takes_it_over() -> None:
    points = honest(100, 50)
    points[:51] = 1e8
    assert np.linalg.norm(geometric_median(points).point - 1e8) < 1
    weights = np.ones(100)
    weights[0] = 101
    assert np.array_equal(geometric_median(points, weights).point, points[0])


def test_the_mean_has_no_such_bound() -> None:
    """The yardstick: one point at 1e8 takes the mean with it."""
    points = honest(100, 50)
    points[0] = 1e8
    assert np.linalg.norm(points.mean(axis=0)) > 1e6


def test_a_relative_radius_is_not_in_the_hands_of_a_minority() -> None:
    points = honest(101, 200)
    corrupted = points.copy()
    corrupted[:50] = 1e8
    for factor in (0.1, 0.5):
        ours = geometric_median(corrupted, nu=Relative(factor), steps=8).point
        median = geometric_median(points[50:]).point
        assert np.linalg.norm(ours - median) < 3
