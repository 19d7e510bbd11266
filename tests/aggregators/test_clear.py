"""The aggregators that see updates, against slow references, and in all forms and errors."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from rfa.aggregators.clear import (
    Bucketing,
    Bulyan,
    CenteredClipping,
    ClearAggregator,
    CoordinateMedian,
    Krum,
    MeaMed,
    MultiKrum,
    NearestNeighborMixing,
    NormClipping,
    TrimmedMean,
)
from rfa.numerics.pairwise import pair_squares
from rfa.numerics.weighted import read_weighted_points
from tests.clouds import Points, clouds

torch: Any = pytest.importorskip("torch")

Floats = NDArray[np.float64]

ALL: list[ClearAggregator] = [
    CoordinateMedian(),
    TrimmedMean(0.2),
    NormClipping(clip_norm=1.5),
    NormClipping(quantile=0.5),
    Krum(2),
    MultiKrum(2),
    MeaMed(2),
    Bulyan(1),
    NearestNeighborMixing(2, TrimmedMean(0.2)),
    NearestNeighborMixing(2, Krum(2)),
    Bucketing(2, CoordinateMedian(), 1),
    CenteredClipping(1.5, steps=2),
]
SIZES = [(7, 5), (9, 40_000)]
"""Small clouds are computed densely, large ones in blocks, which these sizes cross."""


def some_cloud(m: int, d: int, dtype: Any = np.float64) -> NDArray[Any]:
    rng = np.random.default_rng(m * d)
    return (rng.standard_normal((m, d)) * rng.uniform(0.5, 2, (m, 1))).astype(dtype)


def slow_scores(points: NDArray[Any], neighbors: int) -> list[float]:
    """Krum's scores, from differences of all pairs of points in float64."""
    points = points.astype(np.float64)
    scores: list[float] = []
    for i, point in enumerate(points):
        others = [float(((point - w) ** 2).sum()) for j, w in enumerate(points) if j != i]
        scores.append(sum(sorted(others)[:neighbors]))
    return scores


def slow_clipped_mean(points: NDArray[Any], alpha: Floats, radius: float) -> Floats:
    answer = np.zeros(points.shape[1])
    for point, weight in zip(points.astype(np.float64), alpha, strict=True):
        norm = float(np.linalg.norm(point))
        answer += weight * point * (radius / norm if norm > radius else 1)
    return answer


def slow_quantile(values: list[float], weights: list[int], share: float) -> float:
    line = sorted(v for v, w in zip(values, weights, strict=True) for _ in range(w))
    return next(v for k, v in enumerate(line, 1) if k >= share * len(line) - 1e-9)


def best(points: NDArray[Any], neighbors: int, keep: int) -> list[int]:
    return sorted(np.argsort(slow_scores(points, neighbors), kind="stable")[:keep].tolist())


def kept(aggregator: ClearAggregator, points: Any, weights: Any = None) -> list[int]:
    effective = aggregator(points, weights).weights
    assert effective is not None
    return np.flatnonzero(effective).tolist()


@pytest.mark.parametrize("weights", [None, [3.0, 1, 1, 2, 1, 1, 4]])
def test_columnwise_aggregates_in_each_coordinate(weights: list[float] | None) -> None:
    points = some_cloud(7, 5)
    copies = np.repeat(points, [1] * 7 if weights is None else [int(w) for w in weights], axis=0)
    result = CoordinateMedian()(points, weights)
    np.testing.assert_array_equal(result.point, np.median(copies, axis=0))
    assert result.weights is None
    cut = len(copies) // 4
    result = TrimmedMean(cut / len(copies))(points, weights)
    expected = np.sort(copies, axis=0)[cut:-cut].mean(axis=0)
    np.testing.assert_allclose(result.point, expected, rtol=1e-13)
    assert result.weights is None


@pytest.mark.parametrize(("m", "d"), SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipping_shortens_long_points(m: int, d: int, dtype: Any) -> None:
    points = some_cloud(m, d, dtype)
    counts = list(range(1, m + 1))
    alpha = np.array(counts) / sum(counts)
    norms: list[float] = np.linalg.norm(points.astype(np.float64), axis=1).tolist()
    for quantile in (0.1, 0.5, 2 / 3, 1.0):
        radius = slow_quantile(norms, counts, quantile)
        by_radius = NormClipping(clip_norm=radius)(points, counts)
        by_quantile = NormClipping(quantile=quantile)(points, counts)
        expected = slow_clipped_mean(points, alpha, radius)
        close = 10 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(by_radius.point, expected, atol=close)
        np.testing.assert_allclose(by_quantile.point, expected, atol=close)
        effective = by_radius.weights
        assert effective is not None
        np.testing.assert_allclose(effective, alpha * np.minimum(1, radius / np.array(norms)))


def test_a_quantile_counts_weight_in_spite_of_rounding() -> None:
    for m in range(1, 30):
        norms = np.arange(1.0, m + 1)
        for k in range(1, m + 1):
            result = NormClipping(quantile=k / m)(norms[:, None])
            assert result.weights == pytest.approx(np.minimum(1, k / norms) / m)


def test_clipping_points_at_zero_divides_by_nothing() -> None:
    points = np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0]])
    assert NormClipping(clip_norm=1)(points).point == pytest.approx([0.2, 4 / 15])
    assert NormClipping(quantile=0.5)(points).point == pytest.approx([0, 0])


@settings(max_examples=100)
@given(cloud=clouds(least=3))
def test_krum_on_small_clouds(cloud: Points) -> None:
    m = len(cloud.points)
    for corrupted in range((m + 1) // 2):
        neighbors = max(m - corrupted - 2, 1)
        scores = slow_scores(cloud.points, neighbors)
        (chosen,) = kept(Krum(corrupted), cloud.points, cloud.alpha)
        assert scores[chosen] <= min(scores) * (1 + 1e-9) + 1e-18
        rows = kept(MultiKrum(corrupted), cloud.points, cloud.alpha)
        assert len(rows) == m - corrupted
        worst = sorted(scores)[m - corrupted - 1]
        assert max(scores[row] for row in rows) <= worst * (1 + 1e-9) + 1e-18


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_multi_krum_averages_the_best_with_their_weights(dtype: Any, weighted: bool) -> None:
    points = some_cloud(12, 30_000, dtype)
    weights = np.arange(1.0, 13) if weighted else np.ones(12)
    for options, neighbors, keep in (({}, 7, 9), ({"keep": 4, "neighbors": 5}, 5, 4)):
        result = MultiKrum(3, **options)(points, weights)
        rows = best(points, neighbors, keep)
        expected = np.average(points[rows].astype(np.float64), axis=0, weights=weights[rows])
        np.testing.assert_allclose(result.point, expected, atol=10 * np.finfo(dtype).eps)
        effective = np.zeros(12)
        effective[rows] = weights[rows] / weights[rows].sum()
        assert result.weights == pytest.approx(effective)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_krum_gives_back_the_point_itself(dtype: Any) -> None:
    points = some_cloud(9, 20_000, dtype)
    (row,) = best(points, 5, 1)
    np.testing.assert_array_equal(Krum(2)(points, np.arange(1, 10)).point, points[row])


FAR_CLOUDS = ["offset", "huge outliers", "both", "first", "huddle", "nested", "copies"]


def far_cloud(kind: str) -> NDArray[np.float32]:
    """Honest points of spread one, and 5 of 12 that make inner products cancel."""
    rng = np.random.default_rng(5)
    points = rng.standard_normal((12, 1400)) * rng.uniform(0.9, 1.1, (12, 1))
    if kind in {"offset", "both"}:
        points += 1e3 * rng.standard_normal(1400)
    if kind in {"huge outliers", "both"}:
        points[7:] *= 1e8
    if kind == "first":
        points[:5] = 1e8
    if kind == "huddle":  # far away from the others, but not from each other
        points[7:] = 1e5 * rng.standard_normal(1400) + points[7:] / 10
    if kind == "nested":
        points[7:] = 1e5 + points[7:] * 100.0 ** np.arange(5)[:, None]
    if kind == "copies":
        points[7:] = 1e5
    return points.astype(np.float32)


@pytest.mark.parametrize("kind", FAR_CLOUDS)
@pytest.mark.parametrize("neighbors", [1, 3, 6])
def test_distances_far_from_zero_do_not_spoil_the_ranking(kind: str, neighbors: int) -> None:
    points = far_cloud(kind)
    scores = slow_scores(points, neighbors)
    for keep in range(1, 12):
        rows = kept(MultiKrum(5, keep, neighbors), points)
        assert len(rows) == keep
        assert max(scores[row] for row in rows) <= sorted(scores)[keep - 1] * (1 + 1e-5)


@pytest.mark.parametrize("kind", FAR_CLOUDS)
def test_pair_distances_are_good_to_working_precision(kind: str) -> None:
    points = far_cloud(kind).astype(np.float64)
    result = pair_squares(read_weighted_points(far_cloud(kind), None, "raise"))
    expected = [[((a - b) ** 2).sum() for b in points] for a in points]
    np.testing.assert_allclose(result, expected, rtol=2e-5)


def test_points_almost_too_large_to_square_are_the_last_choice() -> None:
    points = some_cloud(6, 4)
    points[1] = 1e154 / 2
    points[4] = -1e154 / 2
    assert kept(MultiKrum(2), points) == [0, 2, 3, 5]


def test_ties_go_to_the_first() -> None:
    points = np.array([[0.0], [1.0], [0.0], [1.0]])
    assert kept(Krum(1), points) == [0]
    assert kept(MultiKrum(1), points) == [0, 1, 2]
    grid = np.random.default_rng(0).integers(0, 2, (60, 3))
    assert kept(MultiKrum(1, keep=30), grid) == best(grid, 57, 30)


@pytest.mark.parametrize("m", [1, 2])
def test_one_and_two_points(m: int) -> None:
    points = np.array([[3.0, 4.0], [6.0, 8.0]])[:m]
    mean = points.mean(axis=0)
    for aggregator in (
        CoordinateMedian(),
        TrimmedMean(0.4),
        MultiKrum(0),
        NormClipping(clip_norm=10),
    ):
        assert aggregator(points).point == pytest.approx(mean)
    assert Krum(0)(points).point == pytest.approx(points[0])
    assert NormClipping(quantile=0.5)(points).point == pytest.approx([3, 4])


@pytest.mark.parametrize("aggregator", ALL, ids=str)
def test_forms_and_types_are_kept(aggregator: ClearAggregator) -> None:
    rows = some_cloud(7, 12, np.float32)
    expected = aggregator(rows, range(1, 8)).point
    assert expected.dtype == np.float32

    models = [[row[:8].reshape(2, 4), row[8:]] for row in rows]
    first, second = aggregator(models, range(1, 8)).point
    assert first.shape == (2, 4)
    np.testing.assert_allclose(np.concatenate([first.reshape(-1), second]), expected, rtol=1e-6)

    counters = [5, 1, 9, 9, 3, 2, 7]
    states: list[Any] = [
        {"w": torch.from_numpy(row).reshape(3, 4), "n": torch.tensor(n), "b": row[:0]}
        for row, n in zip(rows, counters, strict=True)
    ]
    point = aggregator(states, range(1, 8)).point
    assert list(point) == ["w", "n", "b"]
    assert point["w"].dtype == torch.float32
    np.testing.assert_allclose(point["w"].reshape(-1).numpy(), expected, rtol=1e-6)
    assert point["n"].dtype == torch.int64
    assert point["n"].item() == 5  # half of the weight is at or below 5, the other half from 7 on
    assert point["b"].shape == (0,)


@pytest.mark.parametrize("aggregator", ALL, ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_points_that_are_not_finite_raise_or_are_dropped(
    aggregator: ClearAggregator, value: float
) -> None:
    points = some_cloud(8, 6)
    points[3, 2] = value
    with pytest.raises(ValueError, match=r"points \[3\] are not finite"):
        aggregator(points)
    result = aggregator(points, on_bad="drop")
    assert result.dropped == (3,)
    rest = aggregator(np.delete(points, 3, axis=0))
    np.testing.assert_array_equal(result.point, rest.point)
    if rest.weights is not None:
        np.testing.assert_array_equal(result.weights, np.insert(rest.weights, 3, 0))


@pytest.mark.parametrize("aggregator", ALL, ids=str)
def test_a_point_without_weight_is_not_there(aggregator: ClearAggregator) -> None:
    points = some_cloud(8, 6)
    result = aggregator(points, [1, 1, 1, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(result.point, aggregator(np.delete(points, 3, axis=0)).point)
    assert result.dropped == ()


@pytest.mark.parametrize("aggregator", ALL, ids=str)
def test_the_callers_points_are_left_alone(aggregator: ClearAggregator) -> None:
    points = some_cloud(9, 20_000, np.float32)
    before = points.copy()
    aggregator(points)
    np.testing.assert_array_equal(points, before)


@pytest.mark.parametrize(
    ("aggregator", "message"),
    [
        (Krum(3), "corrupted=3 of 6 points is too many for Krum: give at most 2"),
        (MultiKrum(4), "corrupted=4 of 6 points is too many for MultiKrum: give at most 2"),
        (Krum(1, neighbors=6), "neighbors=6 is too many: each of 6 points has only 5"),
        (MultiKrum(1, keep=7), "keep=7 is too many: there are only 6 points"),
    ],
)
def test_too_few_points(aggregator: ClearAggregator, message: str) -> None:
    points = some_cloud(7, 3)
    points[0] = np.nan  # points that are dropped do not count
    with pytest.raises(ValueError, match=message):
        aggregator(points, on_bad="drop")


def test_classes_are_abstract_or_final_and_values() -> None:
    assert inspect.isabstract(ClearAggregator)
    for aggregator in ALL:
        assert isinstance(aggregator, ClearAggregator)
        assert getattr(type(aggregator), "__final__", False)
    assert TrimmedMean(0.1) == TrimmedMean(0.1) != TrimmedMean(0.2)
    with pytest.raises(FrozenInstanceError):
        TrimmedMean(0.1).fraction = 0.2  # pyright: ignore[reportAttributeAccessIssue]
