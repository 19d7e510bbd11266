"""Clipping, mixing and Weiszfeld steps against loops in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.aggregators.clear import MixedMedian
from rfa.aggregators.clear.corrupted import AssumesCorrupted
from rfa.aggregators.registry import Context, build, spec_of
from rfa.errors import InvalidValueError


def by_loops(
    points: Any, weights: Any, corrupted: int, *, clip_norm: float, nu: float, steps: int
) -> Any:
    """The definition, point by point, in double precision."""
    clipped = [np.float64(point) for point in points]
    clipped = [point * min(1.0, clip_norm / np.linalg.norm(point)) for point in clipped]
    mixed: list[Any] = []
    for point in clipped:
        gaps = [np.linalg.norm(point - other) for other in clipped]
        near = sorted(range(len(points)), key=gaps.__getitem__)[: len(points) - corrupted]
        total = sum(weights[k] for k in near)
        mixed.append(sum(weights[k] * clipped[k] for k in near) / total)
    z = np.zeros(len(points[0]))
    for _ in range(steps):
        pulls = [w / max(nu, np.linalg.norm(p - z)) for w, p in zip(weights, mixed, strict=True)]
        z = sum(pull * p for pull, p in zip(pulls, mixed, strict=True)) / sum(pulls)
    return z


def cloud(seed: int, m: int = 14, dim: int = 60) -> Any:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((m, dim)) * rng.uniform(0.2, 3, (m, 1)) / dim**0.5
    points[-3:] *= 50  # no two alike: which of two copies is left out would be open
    return points.astype(np.float32)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("corrupted", [0, 1, 4, 6])
@pytest.mark.parametrize("equal", [True, False])
def test_the_same_as_by_loops(seed: int, corrupted: int, equal: bool) -> None:
    points = cloud(seed)
    rng = np.random.default_rng(seed + 100)
    weights = np.ones(len(points)) if equal else rng.uniform(1, 5, len(points))
    wanted = by_loops(points, weights, corrupted, clip_norm=1.5, nu=0.1, steps=3)
    found = MixedMedian(corrupted, clip_norm=1.5, nu=0.1)(points, weights).point
    assert np.linalg.norm(found - wanted) < 2e-6 * np.linalg.norm(wanted)


def test_without_clipping_points_keep_their_length() -> None:
    points = cloud(1)
    wanted = by_loops(points, np.ones(14), 2, clip_norm=1e9, nu=0.5, steps=5)
    found = MixedMedian(2, nu=0.5, budget=5)(points).point
    assert np.linalg.norm(found - wanted) < 2e-6 * np.linalg.norm(wanted)
    assert np.linalg.norm(found - MixedMedian(2, nu=0.5, budget=5, clip_norm=1)(points).point) > 0.1


def test_a_text_names_it_and_the_level_tells_how_many_are_corrupted() -> None:
    made = build("nnm-median:clip_norm=0.2,nu=0.01", context=Context(corrupted=4 / 14))
    assert made == MixedMedian(corrupted_fraction=4 / 14, clip_norm=0.2, nu=0.01, budget=3)
    assert build(str(spec_of(made))) == made
    assert build("nnm-median:corrupted=2") == MixedMedian(2)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "corrupted"),
        ({"corrupted": 1, "clip_norm": 0}, "clip_norm"),
        ({"corrupted": 1, "nu": -0.1}, "nu"),
        ({"corrupted": 1, "budget": 0}, "budget"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        MixedMedian(**values)


def test_a_fraction_that_is_a_count_is_that_count() -> None:
    for m in range(3, 150):
        for count in range((m - 1) // 2 + 1):
            assert AssumesCorrupted(corrupted_fraction=count / m).count_corrupted(m) == count
    assert AssumesCorrupted(corrupted_fraction=0.07).count_corrupted(100) == 7
    assert AssumesCorrupted(corrupted_fraction=0.071).count_corrupted(100) == 8


@pytest.mark.filterwarnings("error")
def test_points_whose_squares_overflow_are_clipped_as_others_are() -> None:
    points = np.random.default_rng(0).standard_normal((10, 20)).astype(np.float32)
    far = points.copy()
    far[0] *= np.float32(1e30)
    made = MixedMedian(2, clip_norm=1, nu=0.1)
    np.testing.assert_allclose(made(far).point, made(points).point, rtol=1e-5, atol=1e-7)
