"""DnC, FLAME, SignGuard and FLTrust, against references from their papers in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rfa.aggregators.clear import FLAME, ClearAggregator, DnC, FLTrust, ServerAlone, SignGuard
from rfa.numerics.clustering import majority_cluster, mean_shift

Floats = NDArray[np.float64]

M, F = 21, 6
SMALL, LARGE = 40, 20_000


def cohort(d: int, seed: int = 0, *, shift: float = 0.5) -> NDArray[np.float32]:
    """Honest updates around a common one; the first F are turned, and of other lengths."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(d)
    points = shift * common + rng.standard_normal((M, d)) * rng.uniform(0.5, 1.5, (M, 1))
    points[:F] = -common * rng.uniform(0.3, 4, (F, 1)) + 0.1 * rng.standard_normal((F, d))
    return points.astype(np.float32)


def weights_of(weighted: bool) -> Floats:
    return np.random.default_rng(1).integers(1, 6, M).astype(float) if weighted else np.ones(M)


def slow_dnc(points: Floats, weights: Floats, aggregator: DnC) -> Floats:
    rng = np.random.default_rng(aggregator.seed)
    good = set(range(len(points)))
    for _ in range(aggregator.iterations):
        size = min(aggregator.coordinates, points.shape[1])
        chosen = np.sort(rng.choice(points.shape[1], size, replace=False))
        some = points[:, chosen] - points[:, chosen].mean(axis=0)
        direction = np.linalg.svd(some, full_matrices=False)[2][0]
        scores = (some @ direction) ** 2
        good &= set(np.argsort(scores)[: len(points) - F].tolist())
    rows = sorted(good)
    return np.average(points[rows], axis=0, weights=weights[rows])


def slow_clusters(distances: Floats, at_most: float) -> list[set[int]]:
    """The components of the graph of short distances, by walking along them."""
    left, found = set(range(len(distances))), list[set[int]]()
    while left:
        reached, ahead = set[int](), [left.pop()]
        while ahead:
            point = ahead.pop()
            reached.add(point)
            ahead += [j for j in left if distances[point, j] <= at_most]
            left -= set(ahead)
        found.append(reached)
    return found


def slow_majority(distances: Floats) -> list[int]:
    """The cluster that is longest of more than half of the points, as the scale shrinks."""
    for scale in np.unique(distances):
        for cluster in slow_clusters(distances, scale):
            if 2 * len(cluster) > len(distances):
                return sorted(cluster)
    raise AssertionError


def slow_flame(points: Floats, weights: Floats, aggregator: FLAME) -> Floats:
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    rows = slow_majority(1 - units @ units.T)
    norms = np.linalg.norm(points, axis=1)
    median = float(np.median(norms))
    clipped: Floats = points * np.minimum(1, median / norms)[:, None]
    rng: np.random.Generator = np.random.default_rng(aggregator.seed)
    count: int = points.shape[1]
    noise = rng.standard_normal(count)
    mean: Floats = np.average(clipped[rows], axis=0, weights=weights[rows])
    return mean + aggregator.noise * median * noise


def slow_labels(features: Floats, quantile: float) -> list[int]:
    """Mean shift with a flat kernel, one point at a time."""
    apart = [np.sort(np.linalg.norm(features - one, axis=1)) for one in features]
    width = np.mean([row[max(1, int(len(features) * quantile)) - 1] for row in apart])
    modes: list[tuple[int, Floats]] = []
    for one in features:
        mode = one
        for _ in range(500):
            mode = features[np.linalg.norm(features - mode, axis=1) <= width].mean(axis=0)
        modes.append((-int((np.linalg.norm(features - mode, axis=1) <= width).sum()), mode))
    kept: list[Floats] = []
    for _, mode in sorted(modes, key=lambda pair: pair[0]):
        if all(np.linalg.norm(mode - other) > width for other in kept):
            kept.append(mode)
    return [
        int(np.argmin([float(np.linalg.norm(one - mode)) for mode in kept])) for one in features
    ]


def slow_signguard(points: Floats, weights: Floats, aggregator: SignGuard) -> Floats:
    rng, d = np.random.default_rng(aggregator.seed), points.shape[1]
    norms = np.linalg.norm(points, axis=1)
    median = float(np.median(norms))
    chosen = points[:, rng.choice(d, max(1, round(0.1 * d)), replace=False)]
    features = np.array([[(row > 0).mean(), (row == 0).mean(), (row < 0).mean()] for row in chosen])
    labels = slow_labels(features, 0.5)
    largest = max(sorted(set(labels)), key=labels.count)
    rows = [i for i in range(len(points)) if labels[i] == largest and 0.1 <= norms[i] / median <= 3]
    clipped: Floats = points * np.minimum(1, median / norms)[:, None]
    return np.average(clipped[rows], axis=0, weights=weights[rows])


def slow_fltrust(points: Floats, weights: Floats, aggregator: FLTrust) -> Floats:
    own = np.asarray(aggregator.reference, np.float64)
    total, trusts = np.zeros(points.shape[1]), 0.0
    for point, weight in zip(points, weights, strict=True):
        length = np.linalg.norm(point)
        trust = max(0.0, float(point @ own / length / np.linalg.norm(own))) * weight
        total += trust * np.linalg.norm(own) / length * point
        trusts += trust
    return total / trusts


CASES: dict[str, tuple[Callable[[Any], ClearAggregator], Callable[..., Floats]]] = {
    "dnc": (lambda _: DnC(F), slow_dnc),
    "dnc, three times a few coordinates": (
        lambda _: DnC(F, iterations=3, coordinates=25, seed=4),
        slow_dnc,
    ),
    "flame": (lambda _: FLAME(seed=3), slow_flame),
    "flame without noise": (lambda _: FLAME(0.0), slow_flame),
    "signguard": (lambda _: SignGuard(seed=2), slow_signguard),
    "fltrust": (lambda points: FLTrust(points[F:].mean(axis=0)), slow_fltrust),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [SMALL, LARGE])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_like_its_paper(name: str, weighted: bool, d: int, seed: int) -> None:
    make, reference = CASES[name]
    points, weights = cohort(d, seed), weights_of(weighted)
    aggregator = make(points)
    expected = reference(points.astype(np.float64), weights, aggregator)
    result = aggregator(points, weights)
    assert result.point.dtype == np.float32
    np.testing.assert_allclose(result.point, expected, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("huge", [1e4, 1e15, 1e30])
def test_huge_points_do_not_carry_the_aggregate_away(name: str, huge: float) -> None:
    points = cohort(SMALL, shift=2)
    honest = points[F:].astype(np.float64)
    reference = points[F:].mean(axis=0)
    points[:F] = np.float32(huge) * points[0]  # of different ones DnC keeps one near their mean
    aggregator = FLTrust(reference) if name == "fltrust" else CASES[name][0](points)
    result = aggregator(points).point.astype(np.float64)
    reach = max(float(np.linalg.norm(a - b)) for a in honest for b in honest)
    assert np.linalg.norm(result - honest.mean(axis=0)) < reach


@pytest.mark.parametrize("name", CASES)
def test_one_device_zeros_and_points_that_are_not_finite(name: str) -> None:
    points = cohort(SMALL)
    make = CASES[name][0]
    one = (DnC(0) if "dnc" in name else make(points))(points[:1])
    assert np.isfinite(one.point).all()
    zeros = np.zeros_like(points)
    assert not np.asarray((FLAME(0.0) if "flame" in name else make(points))(zeros).point).any()
    points[3], points[15, 2] = np.nan, np.inf
    dropped = make(cohort(SMALL))(points, on_bad="drop")
    assert dropped.dropped == (3, 15)
    assert np.isfinite(dropped.point).all()
    with pytest.raises(ValueError, match=r"points \[3, 15\] are not finite"):
        make(cohort(SMALL))(points)
    with pytest.raises(ValueError, match="points"):
        make(cohort(SMALL))(points[:0])


@pytest.mark.parametrize("name", CASES)
def test_weights_add_up_to_the_aggregate_and_models_keep_their_form(name: str) -> None:
    points = cohort(SMALL).astype(np.float64)
    aggregator = FLAME(0.0) if "flame" in name else CASES[name][0](points)
    result = aggregator(points, np.arange(1, M + 1))
    assert result.weights is not None
    np.testing.assert_allclose(result.weights @ points, result.point, atol=1e-12)
    models = [{"a": row[:7].reshape(7, 1), "b": row[7:]} for row in points]
    if name != "fltrust":
        split = aggregator(models, np.arange(1, M + 1)).point
        np.testing.assert_allclose(np.append(split["a"], split["b"]), result.point, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_majority_cluster_is_that_of_a_walk_along_short_distances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 25))
    points = rng.integers(0, 6, (count, 2)).astype(float)  # many distances are equal
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert majority_cluster(distances, count // 2 + 1).tolist() == slow_majority(distances)


@pytest.mark.parametrize("seed", range(20))
def test_mean_shift_like_one_point_at_a_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.dirichlet((5, 1, 5), int(rng.integers(1, 30)))
    if seed % 2:
        features[: len(features) // 3] = (0.9, 0.1, 0)
    labels, slow = mean_shift(features, 0.5), slow_labels(features, 0.5)
    pairs = set(zip(labels.tolist(), slow, strict=True))
    assert len(pairs) == len(set(labels.tolist())) == len(set(slow))


def test_a_seed_repeats_and_a_generator_goes_on() -> None:
    points = cohort(SMALL)
    for kind in (FLAME, SignGuard):
        fixed, going = kind(seed=3), kind(seed=np.random.default_rng(3))
        first = going(points).point
        np.testing.assert_array_equal(fixed(points).point, first)
        np.testing.assert_array_equal(fixed(points).point, first)
    noise = FLAME(seed=np.random.default_rng(3))
    assert not np.array_equal(noise(points).point, noise(points).point)


def test_signguard_leaves_out_lengths_that_are_not_usual() -> None:
    points = cohort(SMALL)[F:]
    points[0] *= 1e-3
    points[1] *= 50
    weights = SignGuard(quantile=1.0)(points).weights
    assert weights is not None
    assert (weights == 0).tolist() == [True, True, *(len(points) - 2) * [False]]


def test_the_server_alone_ignores_all_points() -> None:
    points, own = np.full((4, 3), 1e9), np.array([1.0, -2.0, 0.5])
    result = ServerAlone(own)(points)
    assert np.array_equal(result.point, own)
    assert result.weights is not None
    assert not result.weights.any()


def test_fltrust_trusts_nobody_who_turns_away() -> None:
    points = cohort(SMALL)
    opposed = FLTrust(-points[0])(np.tile(points[0], (3, 1)))
    assert opposed.weights is not None
    assert not opposed.weights.any()
    assert not np.asarray(opposed.point).any()
    same = FLTrust(points[0])(1000 * points[:1])
    np.testing.assert_allclose(same.point, points[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DnC(2, iterations=0), "iterations must be .* from 1 on, not 0"),
        (lambda: DnC(2, coordinates=0), "coordinates must be .* from 1 on, not 0"),
        (lambda: DnC(2, filter_fraction=-1), "filter_fraction must be a positive number, not -1"),
        (lambda: DnC(2, seed=-1), "seed must be .* from 0 on, not -1"),
        (lambda: FLAME(-1.0), "noise must be .* not -1.0"),
        (lambda: SignGuard(low=4.0), "low must be at most high, not 4.0 above 3.0"),
        (lambda: SignGuard(fraction=1.5), "fraction must be at most 1, not 1.5"),
        (lambda: SignGuard(quantile=0.0), "quantile must be a positive number, not 0.0"),
        (lambda: FLTrust(examples=0), "examples must be .* from 1 on, not 0"),
        (
            lambda: FLTrust()(np.ones((2, 3))),
            "FLTrust needs the server's own",
        ),
        (lambda: ServerAlone()(np.ones((2, 3))), "ServerAlone needs .*: give it as reference"),
        (lambda: FLTrust(np.full(3, np.nan))(np.ones((2, 3))), "reference must be finite"),
        (lambda: FLTrust(np.ones(4))(np.ones((2, 3))), r"reference has shape \(4,\)"),
    ],
)
def test_wrong_values_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("count", [3, 10, 30])
@pytest.mark.filterwarnings("error")
def test_points_that_are_all_the_same_are_one_cluster(count: int) -> None:
    """Their bandwidth is 0, and the mean of equal features is not always the feature."""
    for third in (0.1, 0.3, 0.7):
        assert not mean_shift(np.full((count, 3), third), 0.5).any()
    halves = np.repeat([[0.1, 0.2, 0.7], [0.7, 0.2, 0.1]], count, axis=0)
    assert mean_shift(halves, 0.5).tolist() == [0] * count + [1] * count
    point = cohort(SMALL)[-1]
    same = SignGuard()(np.tile(point, (count, 1)))
    np.testing.assert_allclose(same.point, point, rtol=1e-5)


@pytest.mark.filterwarnings("error")
def test_flame_takes_a_point_that_is_nearly_zero_for_zero() -> None:
    points = cohort(SMALL)
    points[0] = 0
    without = FLAME(noise=0.0)(points).point
    points[0] = 1e-42
    np.testing.assert_array_equal(FLAME(noise=0.0)(points).point, without)
