"""The defenses from the literature, against references of a few lines in float64."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rfa import geometric_median
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

Floats = NDArray[np.float64]
Reference = Callable[[Floats, Floats], Floats]

M, F = 13, 2
SMALL, LARGE = 5, 3000
"""Dimensions: a cloud that is computed densely, and one in blocks."""


def slow_median(values: Floats, weights: Floats) -> float:
    copies = np.repeat(values, weights.astype(int))
    return float(np.median(copies))


def slow_near_median(points: Floats, weights: Floats, count: int) -> Floats:
    answer: list[float] = []
    for column in points.T:
        nearest = np.argsort(np.abs(column - slow_median(column, weights)))[:count]
        answer.append(float(np.average(column[nearest], weights=weights[nearest])))
    return np.array(answer)


def slow_bulyan(points: Floats, weights: Floats) -> Floats:
    left, chosen = list(range(len(points))), list[int]()
    while len(chosen) < len(points) - 2 * F:
        scores: list[float] = []
        for i in left:
            others = sorted(float(((points[i] - points[j]) ** 2).sum()) for j in left if j != i)
            scores.append(sum(others[: max(len(left) - F - 2, 1)]))
        chosen.append(left.pop(int(np.argmin(scores))))
    return slow_near_median(points[chosen], weights[chosen], len(chosen) - 2 * F)


def slow_mixed(points: Floats, weights: Floats) -> Floats:
    mixed: list[Floats] = []
    for point in points:
        nearest = np.argsort(((points - point) ** 2).sum(axis=1))[: len(points) - F]
        mixed.append(np.average(points[nearest], axis=0, weights=weights[nearest]))
    return np.array(mixed)


def slow_clipping(points: Floats, weights: Floats, start: float = 0) -> Floats:
    v = np.full(points.shape[1], start)
    for _ in range(3):
        apart = points - v
        norms = np.linalg.norm(apart, axis=1, keepdims=True)
        v = v + np.average(apart * np.minimum(1, radius(points) / norms), axis=0, weights=weights)
    return v


def slow_buckets(points: Floats, weights: Floats) -> Floats:
    order = np.random.default_rng(7).permutation(len(points))
    buckets = [order[k : k + 3] for k in range(0, len(points), 3)]
    means = [np.average(points[b], axis=0, weights=weights[b]) for b in buckets]
    return CoordinateMedian()(np.array(means), [weights[b].sum() for b in buckets]).point


def radius(points: NDArray[Any]) -> float:
    return 0.5 * points.shape[1] ** 0.5


CASES: dict[str, tuple[Callable[[NDArray[Any]], ClearAggregator], Reference]] = {
    "MeaMed": (lambda _: MeaMed(F), lambda p, w: slow_near_median(p, w, len(p) - F)),
    "Bulyan": (lambda _: Bulyan(F), slow_bulyan),
    "mixing": (
        lambda _: NearestNeighborMixing(F, TrimmedMean(F / M)),
        lambda p, w: TrimmedMean(F / M)(slow_mixed(p, w), w).point,
    ),
    "mixing, complete vectors": (
        lambda _: NearestNeighborMixing(F, NormClipping(quantile=0.5)),
        lambda p, w: NormClipping(quantile=0.5)(slow_mixed(p, w), w).point,
    ),
    "bucketing": (lambda _: Bucketing(3, CoordinateMedian(), 7), slow_buckets),
    "clipping": (lambda p: CenteredClipping(radius(p), 3), slow_clipping),
    "clipping from a start": (
        lambda p: CenteredClipping(radius(p), 3, np.ones(p.shape[1])),
        lambda p, w: slow_clipping(p, w, 1),
    ),
}
NAMES = list(CASES)
EQUIVARIANT = [
    name for name in NAMES if "clipping" not in name and name != "mixing, complete vectors"
]
UNORDERED = [name for name in NAMES if name != "bucketing"]


def cloud(d: int, dtype: Any = np.float64) -> NDArray[Any]:
    rng = np.random.default_rng(d)
    return (rng.standard_normal((M, d)) * rng.uniform(0.5, 2, (M, 1))).astype(dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("d", "dtype"), [(SMALL, np.float64), (LARGE, np.float32)])
def test_like_a_slow_reference(name: str, weighted: bool, d: int, dtype: Any) -> None:
    points = cloud(d, dtype)
    weights = np.random.default_rng(1).integers(1, 6, M).astype(float) if weighted else np.ones(M)
    make, reference = CASES[name]
    result = make(points)(points, weights).point
    assert result.dtype == points.dtype
    expected = reference(points.astype(np.float64), weights)
    np.testing.assert_allclose(result, expected, atol=20 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("name", UNORDERED)
def test_the_order_of_the_points_does_not_matter(name: str) -> None:
    points, weights = cloud(LARGE, np.float32), np.arange(1.0, M + 1)
    order = np.random.default_rng(2).permutation(M)
    aggregator = CASES[name][0](points)
    result = aggregator(points[order], weights[order]).point
    np.testing.assert_allclose(result, aggregator(points, weights).point, atol=2e-6)


@pytest.mark.parametrize("name", EQUIVARIANT)
def test_moved_points_give_the_moved_aggregate(name: str) -> None:
    points = cloud(LARGE)
    aggregator = CASES[name][0](points)
    result = aggregator(points + 100, np.arange(1, M + 1)).point
    np.testing.assert_allclose(result, aggregator(points, np.arange(1, M + 1)).point + 100)


def test_clipping_moves_with_its_start() -> None:
    points, start = cloud(LARGE), cloud(LARGE)[0]
    result = CenteredClipping(20.0, 2, start + 100)(points + 100).point
    np.testing.assert_allclose(result, CenteredClipping(20.0, 2, start)(points).point + 100)


@pytest.mark.parametrize("name", [*EQUIVARIANT, "clipping"])
@pytest.mark.parametrize("huge", [1e4, 1e15, 1e30])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("d", [SMALL, LARGE])
def test_huge_points_do_not_carry_the_aggregate_away(
    name: str, huge: float, together: bool, d: int
) -> None:
    points = cloud(d, np.float32)
    honest = points[F:].astype(np.float64)
    points[:F] = huge if together else huge * np.array([[1], [-1]])
    reach = max(float(np.linalg.norm(a - b)) for a in honest for b in honest)
    result = CASES[name][0](points)(points).point.astype(np.float64)
    assert np.linalg.norm(result - honest.mean(axis=0)) < reach


@pytest.mark.parametrize("m", [3, 4, 11])
def test_nothing_is_corrupted_nothing_is_left_out(m: int) -> None:
    points, weights = cloud(SMALL)[:m], np.arange(1, m + 1)
    mean = np.average(points, axis=0, weights=weights)
    for aggregator in (MeaMed(0), Bulyan(0), NearestNeighborMixing(0, Krum(0))):
        np.testing.assert_allclose(aggregator(points, weights).point, mean, atol=1e-14)
    np.testing.assert_allclose(CenteredClipping(1e6)(points, weights).point, mean, atol=1e-14)


@pytest.mark.parametrize(
    "aggregator",
    [
        NearestNeighborMixing(F, Krum(F)),
        NearestNeighborMixing(F, Bucketing(2, geometric_median, 5)),
        Bucketing(3, geometric_median, 5),
        Bucketing(2, NearestNeighborMixing(1, MultiKrum(1)), 5),
        CenteredClipping(1.0, steps=4),
        CenteredClipping(1.0, steps=4, start=np.full(SMALL, 9.0)),
    ],
    ids=lambda aggregator: type(aggregator).__name__,
)
def test_weights_add_up_to_the_aggregate(aggregator: ClearAggregator) -> None:
    points = cloud(SMALL)
    points[4] = np.nan
    result = aggregator(points, np.arange(1, M + 1), on_bad="drop")
    assert result.weights is not None
    assert result.weights[4] == 0
    start = 9.0 if getattr(aggregator, "start", None) is not None else 0.0
    rest = start * (1 - result.weights.sum())
    np.testing.assert_allclose(result.weights @ np.nan_to_num(points) + rest, result.point)


def test_a_seed_repeats_the_order_and_a_generator_goes_on() -> None:
    points = cloud(SMALL)
    fixed = Bucketing(3, CoordinateMedian(), 3)
    going = Bucketing(3, CoordinateMedian(), np.random.default_rng(3))
    first, second = (going(points).point for _ in range(2))
    np.testing.assert_array_equal(fixed(points).point, first)
    np.testing.assert_array_equal(fixed(points).point, first)
    assert not np.allclose(first, second)


def test_copies_of_a_point_are_chosen_and_mixed() -> None:
    points = np.ones((11, 3))
    points[:2] = 1e20
    mixed = NearestNeighborMixing(2, TrimmedMean(2 / 11))
    for aggregator in (MeaMed(2), Bulyan(2), mixed):
        np.testing.assert_allclose(aggregator(points, range(1, 12)).point, 1)


@pytest.mark.parametrize(
    "aggregator",
    [MeaMed(5), Bulyan(5), NearestNeighborMixing(5, TrimmedMean(0.2))],
    ids=lambda aggregator: type(aggregator).__name__,
)
def test_the_points_are_not_copied(aggregator: ClearAggregator) -> None:
    points = np.random.default_rng(0).standard_normal((25, 800_000), dtype=np.float32)
    tracemalloc.start()
    try:
        aggregator(points)
        assert tracemalloc.get_traced_memory()[1] < 0.6 * points.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MeaMed(-1), "corrupted must be .* from 0 on, not -1"),
        (lambda: Bulyan(True), "corrupted must be .* not True"),
        (lambda: NearestNeighborMixing(1.0, Krum(1)), "corrupted must be .* not 1.0"),  # pyright: ignore[reportArgumentType]
        (lambda: NearestNeighborMixing(1, Krum), "inner must be an aggregator, .* not <class"),  # pyright: ignore[reportArgumentType]
        (lambda: Bucketing(2, None, 1), "inner must be an aggregator, .* not None"),  # pyright: ignore[reportArgumentType]
        (lambda: Bucketing(0, Krum(1), 1), "bucket_size must be .* from 1 on, not 0"),
        (lambda: Bucketing(2, Krum(1), None), "seed must be .* from 0 on, not None"),  # pyright: ignore[reportArgumentType]
        (lambda: CenteredClipping(0.0), "clip_norm must be a positive number, not 0.0"),
        (lambda: CenteredClipping(1.0, 0), "steps must be .* from 1 on, not 0"),
    ],
)
def test_parameters_without_a_meaning(make: Callable[[], ClearAggregator], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize(
    ("aggregator", "message"),
    [
        (MeaMed(3), "corrupted=3 of 6 points is too many for MeaMed: give at most 2"),
        (NearestNeighborMixing(3, Krum(1)), "corrupted=3 of 6 points is too many"),
        (Bulyan(1), "too many for Bulyan: give at most 0, or more points"),
        (Bucketing(3, Krum(1), 1), "corrupted=1 of 2 points is too many"),
        (CenteredClipping(1.0, start=np.full(3, np.nan)), "start must be finite"),
        (CenteredClipping(1.0, start=np.ones(4)), r"start has shape \(4,\)"),
    ],
)
def test_what_does_not_fit_the_points(aggregator: ClearAggregator, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aggregator(cloud(3)[:6])


def test_bulyan_says_how_many_may_be_corrupted() -> None:
    assert [Bulyan.max_corrupted(m) for m in (1, 2, 3, 6, 7, 10, 11)] == [0, 0, 0, 0, 1, 1, 2]
