"""Digits: the distance to a float64 reference, relative to the honest spread.

The objective would hide such errors: it is flat at the median, and outliers dominate it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rfa.median import converge, geometric_median
from rfa.numerics.dense import DenseGeometry
from rfa.numerics.weighted import read_weighted_points
from tests import reference as ref

Floats = NDArray[np.float64]
SHAPES = [(20, 4000), (100, 2000), (12, 50_000)]
SCENARIOS = list(product((1.0, 1e4, 1e6, 1e8), ("quarter", "single"), (0.0, 1e3), (True, False)))


def cloud(  # noqa: PLR0917
    shape: tuple[int, int], size: float, share: str, offset: float, alike: bool, seed: int = 1
) -> tuple[NDArray[np.float32], float]:
    """Honest points of a spread, outliers `size` spreads away, all moved by `offset` spreads."""
    m, d = shape
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((m, d))
    count = m // 4 if share == "quarter" else 1
    outliers = rng.standard_normal((count, d))
    if alike:
        outliers = 1e-3 * outliers + rng.standard_normal(d)
    if size > 1:
        points[:count] = size * outliers
    direction = rng.standard_normal(d)
    spread = float(np.sqrt(d))
    points += offset * spread * direction / np.linalg.norm(direction)
    return points.astype(np.float32), spread


def unrounded(points: Any) -> Floats:
    """The median before it is rounded to the type of the points."""
    weighted = read_weighted_points(points, None, "raise")
    converge(weighted.geometry, weighted.alpha, 0.0, 2 * weighted.geometry.eps)
    return weighted.geometry.average(slice(0, weighted.points.dim), np.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_median_of_float32_points_has_six_digits(shape: tuple[int, int]) -> None:
    for size, share, offset, alike in SCENARIOS:
        points, spread = cloud(shape, size, share, offset, alike)
        center, rest = ref.far_median(points, np.ones(len(points)))
        error = float(np.linalg.norm(unrounded(points) - center - rest)) / spread
        assert error <= 1e-6, (size, share, offset, alike)


def test_mixed_outliers() -> None:
    """Some at 1e4, some at 1e6, some at 1e8 spreads, in different directions and offset."""
    for offset in (0.0, 1e3):
        points, spread = cloud((40, 5000), 1.0, "single", offset, alike=False, seed=3)
        rng = np.random.default_rng(4)
        for row, size in enumerate([1e4, 1e4, 1e6, 1e6, 1e6, 1e8, 1e8, 10.0, 3.0]):
            points[row] += (size * rng.standard_normal(5000)).astype(np.float32)
        center, rest = ref.far_median(points, np.ones(40))
        assert np.linalg.norm(unrounded(points) - center - rest) <= 1e-6 * spread


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_steps_have_the_same_digits(offset: float) -> None:
    """Three steps against three steps in float64, from a start amid the cloud."""
    for size in (1.0, 1e4, 1e6, 1e8):
        points, spread = cloud((20, 4000), size, "quarter", offset, alike=False)
        start = points[-1]
        exact = points.astype(np.float64) - start
        v = np.zeros(4000)
        for _ in range(3):
            v = ref.weiszfeld_step(exact, np.ones(20), 0.5 * spread, v)
        result = geometric_median(points, nu=0.5 * spread, steps=3, start=start)
        rounding = 1e-7 * float(np.linalg.norm(start))  # of the answer to float32
        assert np.linalg.norm(result.point - start - v) <= 1e-6 * spread + rounding
        ours = result.weights @ exact
        assert np.linalg.norm(ours - v) <= 1e-6 * spread


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e15, 1e30])
def test_values_beyond_the_range_of_float32_squares(scale: float) -> None:
    points, spread = cloud((20, 4000), 100.0, "quarter", 0.0, alike=True)
    scaled = (points.astype(np.float64) * scale).astype(np.float32)
    center, rest = ref.far_median(scaled.astype(np.float64) / scale, np.ones(20))
    error = float(np.linalg.norm(unrounded(scaled) / scale - center - rest))
    assert error <= 1e-6 * spread


def test_one_huge_value_does_not_cost_the_others_their_digits() -> None:
    points, spread = cloud((20, 4000), 1.0, "single", 0.0, alike=False)
    points[0, 7] = 3e38
    center, rest = ref.far_median(points, np.ones(20))
    assert np.linalg.norm(unrounded(points) - center - rest) <= 1e-6 * spread


def test_float64_points_keep_float64_digits() -> None:
    rng = np.random.default_rng(5)
    points = rng.standard_normal((30, 2000))
    points[:8] *= 1e8
    center, rest = ref.far_median(points, np.ones(30))
    result = geometric_median(points, tol=1e-14).point
    assert np.linalg.norm(result - center - rest) <= 1e-11 * np.sqrt(2000)


def test_small_clouds_are_computed_in_float64() -> None:
    points, spread = cloud((10, 100), 1e6, "quarter", 1e3, alike=False)
    assert isinstance(read_weighted_points(points, None, "raise").geometry, DenseGeometry)
    center, rest = ref.far_median(points, np.ones(10))
    assert np.linalg.norm(unrounded(points) - center - rest) <= 1e-8 * spread


def test_large_clouds_are_shared_out_to_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of processors; and bad rows are noticed there too."""
    points, spread = cloud((30, 3000), 1e6, "quarter", 1e3, alike=False)
    monkeypatch.setattr("rfa.numerics.blocks.LARGE", 0)
    monkeypatch.setattr("rfa.numerics.blocks.BLOCK", 30 * 128)
    monkeypatch.setattr("rfa.numerics.blocks.SQUARES", 30 * 512)
    center, rest = ref.far_median(points, np.ones(30))
    for count in (2, 3, 50):
        monkeypatch.setattr("rfa._threads.cores", lambda count=count: count)
        for form in (points, list(points)):
            assert np.linalg.norm(unrounded(form) - center - rest) <= 1e-6 * spread
        bad = points.copy()
        bad[4, 2999], bad[9, 1] = np.inf, 3e38
        with pytest.raises(ValueError, match=r"points \[4\] are not finite"):
            geometric_median(bad)


def test_the_same_call_gives_the_same_bits() -> None:
    points, _ = cloud((30, 3000), 1e6, "quarter", 1e3, alike=False)
    assert np.array_equal(geometric_median(points).point, geometric_median(points).point)
