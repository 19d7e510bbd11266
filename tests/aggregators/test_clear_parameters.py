"""Corrupted points by count or by fraction, and aggregators of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rfa.aggregators import clear
from rfa.aggregators.clear import (
    AssumesCorrupted,
    Bucketing,
    Bulyan,
    ClearAggregator,
    CoordinateMedian,
    DnC,
    Krum,
    MeaMed,
    MultiKrum,
    NearestNeighborMixing,
    NormClipping,
    TrimmedMean,
)

torch: Any = pytest.importorskip("torch")

PUBLIC = [
    "FLAME",
    "Aggregate",
    "AssumesCorrupted",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "ClearAggregator",
    "CoordinateMedian",
    "DnC",
    "FLTrust",
    "InnerAggregator",
    "Krum",
    "MeaMed",
    "MixedMedian",
    "MultiKrum",
    "NearestNeighborMixing",
    "NormClipping",
    "Randomized",
    "ServerAlone",
    "SignGuard",
    "TrimmedMean",
]
KINDS: list[Callable[..., Any]] = [Krum, MultiKrum, MeaMed, Bulyan, NearestNeighborMixing, DnC]


def cloud(m: int, d: int, dtype: Any = np.float32) -> NDArray[Any]:
    return np.random.default_rng(m).standard_normal((m, d)).astype(dtype)


def test_the_public_names() -> None:
    assert clear.__all__ == PUBLIC
    assert all(hasattr(clear, name) for name in PUBLIC)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 1 / 3, 0.45, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_fraction_is_the_count_to_the_bit(kind: Any, fraction: float, weighted: bool) -> None:
    """For all numbers of points, whereas a count must be known to fit them."""
    by_fraction = kind(corrupted_fraction=fraction)
    for m in (1, 2, 3, 6, 7, 10, 13, 20):
        points, weights = cloud(m, 900), np.arange(1.0, m + 1) if weighted else None
        count = min(math.ceil(fraction * m), (m - 1) // 2)
        if kind is Bulyan:
            count = min(count, Bulyan.max_corrupted(m))
        assert by_fraction.count_corrupted(m) == count
        result, expected = by_fraction(points, weights), kind(count)(points, weights)
        assert result.point.tobytes() == expected.point.tobytes()
        np.testing.assert_array_equal(result.weights, expected.weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_mixing_comes_before_the_trimmed_mean_of_the_same_fraction(weighted: bool) -> None:
    for m in (3, 12, 20):
        points, weights = cloud(m, 900), np.arange(1.0, m + 1) if weighted else None
        count = min(math.ceil(0.4 * m), (m - 1) // 2)
        expected = NearestNeighborMixing(count, TrimmedMean(count / m))(points, weights).point
        for aggregator in (
            NearestNeighborMixing(count),
            NearestNeighborMixing(corrupted_fraction=0.4),
        ):
            assert aggregator(points, weights).point.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of corrupted and corrupted_fraction, not None and None"),
        ({"corrupted": 1, "corrupted_fraction": 0.1}, "corrupted_fraction, not 1 and 0.1"),
        ({"corrupted": 0.1}, "corrupted must be a whole number from 0 on, not 0.1"),
        ({"corrupted_fraction": -0.1}, "corrupted_fraction must be a number from 0 on, not -0.1"),
        ({"corrupted_fraction": True}, "corrupted_fraction must be .* not True"),
        ({"corrupted_fraction": 3}, "corrupted_fraction must be at most 1, not 3"),
    ],
)
def test_exactly_one_of_count_and_fraction(kind: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        *(
            (TrimmedMean, {"fraction": x}, f"fraction must be .* not {x}")
            for x in (-0.1, 0.5, True, None)
        ),
        (TrimmedMean, {"fraction": np.nan}, "fraction must be a number from 0 on, not nan"),
        (NormClipping, {}, "one of clip_norm and quantile, not None and None"),
        (
            NormClipping,
            {"clip_norm": 1.0, "quantile": 0.5},
            "not 1.0 and 0.5",
        ),
        *(
            (NormClipping, {"clip_norm": x}, f"a positive number, not {x}")
            for x in (0, -2.0, np.inf)
        ),
        (NormClipping, {"quantile": 0.0}, "quantile must be a positive number, not 0.0"),
        (NormClipping, {"quantile": 1.5}, "quantile must be at most 1, not 1.5"),
        *((Krum, {"corrupted": x}, f"from 0 on, not {x}") for x in (-1, 1.0, True)),
        (Krum, {"corrupted": 1, "neighbors": 0}, "neighbors must be .* from 1 on, not 0"),
        (MultiKrum, {"corrupted": -1}, "corrupted must be .* from 0 on, not -1"),
        (MultiKrum, {"corrupted": 1, "neighbors": 2.0}, "neighbors must be .* not 2.0"),
        (MultiKrum, {"corrupted": 1, "keep": 0}, "keep must be .* from 1 on, not 0"),
    ],
)
def test_parameters_without_a_meaning(kind: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)


@dataclass(frozen=True)
class Midrange(AssumesCorrupted, ClearAggregator):
    """The middle of the extremes, without as many of them as may be corrupted."""

    def aggregate(self, points: NDArray[Any], weights: NDArray[np.float64]) -> Any:
        assert weights.sum() == pytest.approx(1)
        f, m = self.count_corrupted(len(points)), len(points)
        ranked = np.sort(points, axis=0)
        return (ranked[f] + ranked[m - 1 - f]) / 2


def midrange(points: NDArray[Any]) -> NDArray[Any]:
    """With one corrupted point."""
    ranked = np.sort(points, axis=0)
    return (ranked[1] + ranked[-2]) / 2


def test_a_users_aggregator_on_arrays_and_models() -> None:
    rows, ours = cloud(7, 12), Midrange(1)
    expected = midrange(rows)
    for form in (rows, list(rows), np.asfortranarray(rows)):
        answer = ours(form, range(1, 8))
        assert answer.point.dtype == np.float32
        np.testing.assert_array_equal(answer.point, expected)
        assert answer.weights is None
    first, second = ours([[row[:8].reshape(2, 4), row[8:]] for row in rows]).point
    np.testing.assert_array_equal(np.concatenate([first.reshape(-1), second]), expected)
    halves = ours(rows.astype(np.float16)).point
    assert halves.dtype == np.float16
    np.testing.assert_allclose(halves, expected, atol=1e-2)


def test_a_users_aggregator_on_tensors() -> None:
    rows, ours = cloud(7, 12), Midrange(corrupted_fraction=0.1)
    tensor = ours(torch.from_numpy(rows)).point
    assert tensor.dtype == torch.float32
    np.testing.assert_array_equal(tensor.numpy(), midrange(rows))
    states: list[Any] = [
        {"w": torch.from_numpy(row).reshape(3, 4), "n": torch.tensor(n)}
        for n, row in enumerate(rows)
    ]
    point = ours(states).point
    np.testing.assert_array_equal(point["w"].reshape(-1).numpy(), midrange(rows))
    assert point["n"].item() == 3


def test_a_users_aggregator_never_sees_points_that_are_not_finite() -> None:
    rows, ours = cloud(8, 6), Midrange(1)
    rows[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"points \[3\] are not finite"):
        ours(rows)
    answer = ours(rows, on_bad="drop")
    assert answer.dropped == (3,)
    np.testing.assert_array_equal(answer.point, midrange(np.delete(rows, 3, axis=0)))


def test_a_users_aggregator_is_an_inner_aggregator() -> None:
    points = cloud(9, 6, np.float64)
    bucketed = Bucketing(1, Midrange(1), 5)(points).point
    np.testing.assert_allclose(bucketed, midrange(points), rtol=1e-14)


class Wrong(ClearAggregator):
    """Does what a user's aggregator must not."""

    def __init__(self, how: Callable[[NDArray[Any]], Any]) -> None:
        self.how = how

    def aggregate(self, points: NDArray[Any], weights: NDArray[np.float64]) -> Any:
        return self.how(points)


def overwrite(points: NDArray[Any]) -> Any:
    points[0] = 0
    return points[0]


MISTAKES: list[tuple[Callable[[NDArray[Any]], Any], str]] = [
    (lambda points: points, "Wrong.aggregate must return a vector of 4 coordinates, not"),
    (lambda points: points[0, 0], r"vector of 4 coordinates, not shape \(\)"),
    (lambda _: None, "the aggregate holds object values"),
    (overwrite, "read-only"),
]


@pytest.mark.parametrize(("how", "message"), MISTAKES)
@pytest.mark.parametrize("form", [np.asarray, list])
def test_what_a_users_aggregator_must_not_do(how: Any, message: str, form: Any) -> None:
    points = cloud(5, 4)
    before = points.copy()
    with pytest.raises((ValueError, TypeError), match=message):
        Wrong(how)(form(points))
    np.testing.assert_array_equal(points, before)


def test_built_in_aggregators_have_the_users_hook_too() -> None:
    points, weights = cloud(7, 5), np.arange(1.0, 8)
    median = CoordinateMedian().aggregate(points, weights)
    np.testing.assert_array_equal(median, CoordinateMedian()(points, weights).point)
