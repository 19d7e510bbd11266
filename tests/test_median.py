"""The geometric median: right answers, also for degenerate clouds, and its invariances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import rfa
from rfa import geometric_median
from tests import reference as ref
from tests.clouds import Points, clouds, make_points

Floats = NDArray[np.float64]


def unique(cloud: Points) -> bool:
    """Whether the points are not collinear, or are so with a median in one of them only."""
    apart = cloud.points - cloud.points[0]
    return bool(np.linalg.matrix_rank(apart, tol=1e-6 * (cloud.diameter or 1)) > 1)


@given(clouds())
def test_it_is_the_minimum(cloud: Points) -> None:
    """By distance to the reference where there is one median, by the subgradient elsewhere."""
    result = geometric_median(cloud.points, cloud.alpha)
    expected = ref.geometric_median(cloud.points, cloud.alpha)
    assert result.converged
    assert result.weights.min() >= 0
    assert result.weights.sum() == pytest.approx(1)
    assert result.objective == pytest.approx(ref.g(cloud.points, cloud.alpha, result.point))
    lowest = ref.g(cloud.points, cloud.alpha, expected)
    assert result.objective <= lowest * (1 + 1e-9) + 1e-12
    if unique(cloud):
        typical = float(np.median(ref.distances(cloud.points, expected))) or cloud.diameter
        assert np.linalg.norm(result.point - expected) <= 1e-6 * typical


@pytest.mark.parametrize("kind", ["grid", "line", "copies", "scales"])
def test_degenerate_clouds_of_many_points(kind: str) -> None:
    rng = np.random.default_rng(8)
    for m, d in ((40, 1), (25, 3), (300, 2), (1200, 2)):
        points, alpha = make_points(kind, m, d, rng), np.full(m, 1 / m)
        result = geometric_median(points)
        assert result.converged
        rounding = (
            1e-13 * float(np.abs(points).max()) / (ref.distances(points, result.point).min() or 1)
        )
        assert ref.least_subgradient(points, alpha, result.point) <= 1e-8 + rounding


def test_one_point() -> None:
    result = geometric_median([[3.0, -1.0]])
    assert result.point.tolist() == [3.0, -1.0]
    assert result.weights.tolist() == [1.0]
    assert result.objective == 0
    assert result.converged


def test_two_points() -> None:
    """Every point between two of the same weight is a median, and the answer is their midpoint."""
    assert geometric_median([[0.0, 0.0], [2.0, 4.0]]).point == pytest.approx([1, 2])
    assert geometric_median([[0.0, 0.0], [2.0, 4.0]], [1, 3]).point.tolist() == [2, 4]
    almost = geometric_median([[0.0, 0.0], [2.0, 4.0]], [1 + 1e-9, 1])
    assert almost.point.tolist() == [0, 0]
    assert almost.converged


def test_three_collinear_points() -> None:
    result = geometric_median([[0.0, 0.0], [1.0, 1.0], [9.0, 9.0]])
    assert result.point.tolist() == [1, 1]
    assert result.weights.tolist() == [0, 1, 0]


def test_all_points_equal() -> None:
    result = geometric_median(np.full((5, 3), 0.1))
    assert result.point.tolist() == [0.1, 0.1, 0.1]
    assert result.objective == 0
    assert result.weights == pytest.approx(np.full(5, 0.2))


def test_copies_add_up() -> None:
    points = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    assert geometric_median(points).point.tolist() == [0, 0]


def test_the_median_on_a_point_is_that_point_exactly() -> None:
    corners = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    center = np.array([[0.1, 0.07]])
    result = geometric_median(np.concatenate([corners, center]))
    assert result.point.tolist() == center[0].tolist()
    assert result.converged


def test_a_start_on_a_point_does_not_hold_the_iteration() -> None:
    """Points 0 and 1 coincide with the first iterates, and neither is the median."""
    points = np.array([[0.0, 0.0], [0.25, 0.25], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.9, 0.8]])
    result = geometric_median(points)
    assert np.linalg.norm(result.point - ref.geometric_median(points, np.ones(6))) < 1e-8
    held = geometric_median(points, nu=0.0, steps=50, start="zero")
    assert held.point.tolist() == [0, 0]  # eq:weiszfeld:ns: without smoothing it is held there
    assert not held.converged
    moved = geometric_median(points, nu=1e-2, steps=200, start="zero")
    assert np.linalg.norm(moved.point - result.point) < 1e-6


def test_a_large_cloud_whose_median_is_a_point() -> None:
    """In float32 blocks, with copies: the answer is that point to the last bit."""
    rng = np.random.default_rng(5)
    points = rng.standard_normal((12, 4000)).astype(np.float32)
    points[[3, 7, 11]] = points[5]
    weights = np.ones(12)
    weights[[3, 5]] = 3
    result = geometric_median(points, weights)
    assert result.converged
    assert np.array_equal(result.point, points[5])
    assert result.weights[[3, 5, 7, 11]] == pytest.approx([3 / 8, 3 / 8, 1 / 8, 1 / 8])


def test_a_large_cloud_whose_median_is_almost_a_point() -> None:
    rng = np.random.default_rng(6)
    points = rng.standard_normal((12, 4000)).astype(np.float32)
    for weight in (6.0, 7.0, 7.7, 7.75):
        alpha = np.array([weight, *[1.0] * 11]) / (weight + 11)
        result = geometric_median(points, alpha)
        assert result.converged
        gap = ref.least_subgradient(points.astype(float), alpha, result.point.astype(float))
        assert gap < 1e-5


@given(clouds(), st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 1e5]))
def test_translation_scaling_and_rotation(cloud: Points, seed: int, scale: float) -> None:
    assume(unique(cloud))
    rng = np.random.default_rng(seed)
    d = int(cloud.points.shape[1])
    shift = rng.standard_normal(d)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    result = geometric_median(cloud.points, cloud.alpha).point
    moved = geometric_median(scale * cloud.points @ rotation + shift, cloud.alpha).point
    assert np.linalg.norm(moved - (scale * result @ rotation + shift)) <= 1e-6 * scale * (
        cloud.diameter
    )


@given(clouds(least=2), st.sampled_from([1e-3, 1.0, 1e5]))
def test_steps_follow_translation_and_scaling_of_nu(cloud: Points, scale: float) -> None:
    shift = np.arange(1.0, cloud.points.shape[1] + 1)
    start = cloud.points.mean(axis=0)
    for nu, scaled in ((0.1, 0.1 * scale), (rfa.Relative(0.3), rfa.Relative(0.3))):
        result = geometric_median(cloud.points, cloud.alpha, nu=nu, steps=3, start=start)
        moved = geometric_median(
            scale * cloud.points + shift,
            cloud.alpha,
            nu=scaled,
            steps=3,
            start=scale * start + shift,
        )
        allowed = 1e-9 * (scale * cloud.diameter + 10 + scale * float(np.abs(cloud.points).max()))
        assert np.linalg.norm(moved.point - (scale * result.point + shift)) <= allowed


@given(clouds(), st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_whole_weights_are_repeated_points(cloud: Points, counts: list[int]) -> None:
    weights = np.array(counts[: len(cloud.points)])
    assume(weights.any())
    repeated = np.repeat(cloud.points, weights, axis=0)
    assume(unique(Points(repeated, np.ones(len(repeated)))))
    result = geometric_median(cloud.points, weights)
    again = geometric_median(repeated)
    assert np.linalg.norm(result.point - again.point) <= 1e-6 * cloud.diameter
    assert result.weights[weights == 0].sum() == 0


def test_steps_take_exactly_that_many() -> None:
    rng = np.random.default_rng(1)
    points, alpha = rng.standard_normal((9, 4)) + 0.3, rng.random(9)
    starts: list[Any] = ["zero", "mean", points[2]]
    firsts = [np.zeros(4), alpha @ points / alpha.sum(), points[2]]
    for start, first in zip(starts, firsts, strict=True):
        v = first
        for _ in range(3):
            v = ref.weiszfeld_step(points, alpha, 0.2, v)
        result = geometric_median(points, alpha, nu=0.2, steps=3, start=start)
        assert result.point == pytest.approx(v, rel=1e-12)
        assert result.weights @ points == pytest.approx(v, rel=1e-12)
        assert result.steps == 3


def test_steps_equal_algorithm_2_against_the_oracle() -> None:
    rng = np.random.default_rng(2)
    points, alpha = rng.standard_normal((30, 2000)).astype(np.float32), rng.random(30)
    result = geometric_median(points, alpha, nu=5.0, steps=4, start="zero")
    v = rfa.weiszfeld(rfa.PlainOracle(points, alpha), np.zeros(2000), nu=5.0, steps=4)
    assert np.linalg.norm(result.point - v) <= 1e-6 * np.linalg.norm(v)


def test_relative_smoothing_is_a_multiple_of_the_median_distance() -> None:
    points = np.random.default_rng(3).standard_normal((11, 3))
    nu = 0.5 * float(np.median(np.linalg.norm(points, axis=1)))
    absolute = geometric_median(points, nu=nu, steps=1, start="zero").point
    assert geometric_median(points, steps=1).point == pytest.approx(absolute, rel=1e-12)


def test_smoothed_median_without_steps() -> None:
    points, alpha = np.random.default_rng(7).standard_normal((10, 3)), np.full(10, 0.1)
    result = geometric_median(points, nu=2.0, tol=1e-12)
    assert result.converged
    assert np.linalg.norm(ref.grad_g_nu(points, alpha, 2.0, result.point)) < 1e-11


def test_a_huge_radius_gives_the_mean() -> None:
    """Within nu the smoothed objective is a parabola, whatever its scale."""
    points = np.random.default_rng(7).standard_normal((10, 3))
    result = geometric_median(points, nu=1e11)
    assert result.converged
    assert result.point == pytest.approx(points.mean(axis=0))


def test_the_weights_average_to_the_point() -> None:
    points = np.random.default_rng(7).standard_normal((10, 3))
    for tol in (1e-12, 1e-3, 0.1):
        result = geometric_median(points, tol=tol)
        assert result.weights @ points == pytest.approx(result.point)


def test_a_tolerance_that_is_not_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rfa.median.MAX_STEPS", 2)
    points = np.random.default_rng(9).standard_normal((10, 3))
    result = geometric_median(points, tol=1e-13)
    assert not result.converged
    assert result.gradient > 1e-13
    assert result.steps == 2


def test_the_gradient_is_a_bound() -> None:
    rng = np.random.default_rng(10)
    for _ in range(20):
        points, alpha = rng.standard_normal((8, 3)), np.full(8, 1 / 8)
        result = geometric_median(points, nu=1e-9, steps=3, start="mean")
        assert ref.least_subgradient(points, alpha, result.point) <= result.gradient + 1e-12
        assert result.converged == (result.gradient <= 1e-10)
