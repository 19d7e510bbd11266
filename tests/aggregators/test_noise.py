"""Aggregators on sums with noise, whose totals may be what no devices add up to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import rfa
from rfa.aggregators import RFA, CenteredClipping, Groups, Mean, OneStepRFA, SubCohorts
from rfa.aggregators.adaptive_radius import AdaptiveRadius
from rfa.aggregators.base import SumAggregator, near_noise, nearness
from rfa.aggregators.registry import ENTRIES, Context, build, build_private
from rfa.aggregators.weiszfeld import image_of, mass_of
from rfa.errors import InvalidValueError
from rfa.oracle import RecordingOracle, Sum, SumOracle

Floats = NDArray[np.float64]
FINE: list[SumAggregator[Any]] = [
    RFA(budget=3),
    RFA(budget=2, start="mean"),
    OneStepRFA(),
    OneStepRFA(nu=0.5),
    Mean(clip_norm=1.0),
    Mean(clip_norm=None),
    CenteredClipping(),
    SubCohorts(RFA(budget=3, nu=1.0)),
    Groups(OneStepRFA(nu=1.0), 3),
    Groups(Mean(clip_norm=1.0), 3),
]


def cohort(m: int = 60, dim: int = 8) -> Floats:
    return np.random.default_rng(3).standard_normal((m, dim)) / np.sqrt(dim) + 1


def noisy(oracle: SumOracle, change: Callable[[Sum], dict[str, Any]]) -> SumOracle:
    """An oracle whose totals are changed, and said to hold noise; squares are not told."""

    def ask(v: Floats, nu: Any) -> Sum:
        total = oracle(v, nu)
        told: dict[str, Any] = {"squares": None, "weight": float(total.count), "noise": 1.0}
        return replace(total, **told | change(total))

    return ask


def sum_of(mass: float, near: float = 5, noise: float = 1.0) -> Sum:
    return Sum(np.ones(4), mass, 10.0, near, 10, None, noise=noise)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_a_noisy_mass_is_brought_back_to_what_a_mass_can_be(mass: float, noise: float) -> None:
    found = mass_of(sum_of(mass, noise=noise))
    least = max(1.0, min(6 * noise, 2.5))
    assert least <= found <= 10
    if least <= mass <= 10:
        assert found == mass
    assert mass_of(sum_of(mass, noise=0.0)) == mass, "exact sums stay what they are"


@pytest.mark.parametrize("mass", [-7.0, 0.0, 0.3])
def test_a_mass_that_is_noise_alone_makes_a_finite_step(mass: float) -> None:
    step = image_of(np.zeros(4), sum_of(mass), 0.5)
    assert np.allclose(step, 0.5 / 2.5), "as where half of ten devices are near"
    assert np.linalg.norm(image_of(np.zeros(4), sum_of(mass), 0.5, max_step=0.1)) <= 0.1 + 1e-12
    if mass <= 0:
        with pytest.raises(InvalidValueError, match="nothing to average"):
            image_of(np.zeros(4), sum_of(mass, noise=0.0), 0.5)


@pytest.mark.parametrize(("near", "share"), [(-20.0, 0.0), (3.0, 0.3), (25.0, 1.0)])
def test_a_noisy_count_of_those_near_is_a_fraction_of_the_devices(
    near: float, share: float
) -> None:
    oracle = RecordingOracle(lambda v, nu: sum_of(5.0, near))
    oracle(np.zeros(4), 1.0)
    assert nearness([oracle]) == pytest.approx(share)
    state = OneStepRFA().next_state([oracle], OneStepRFA().init())
    assert state is not None
    assert (state.nu > 0.1) is (share < 0.5)


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
def test_a_radius_is_learned_from_counts_with_noise(noise: float) -> None:
    distances = 3 * np.exp(0.3 * np.random.default_rng(1).standard_normal(99))
    found: list[float] = []
    for seed in range(20):
        rng, radius = np.random.default_rng(seed), AdaptiveRadius()
        for _ in range(80):
            near = float((distances <= radius.nu).mean()) + noise * rng.standard_normal()
            radius = radius.after(min(max(near, 0.0), 1.0), noise)
        found.append(math.log(radius.nu / np.median(distances)))
    assert abs(np.mean(found)) < 0.3
    assert np.std(found) < 0.4


@given(st.lists(st.floats(0, 1), max_size=100), st.floats(0.5, 100))
def test_counts_that_are_noise_alone_hardly_move_the_radius(
    counts: list[float], noise: float
) -> None:
    radius = AdaptiveRadius()
    for near in counts:
        radius = radius.after(near, noise)
    assert abs(math.log(radius.nu / 0.1)) <= len(counts) * 0.1 / noise + 1e-9


def test_how_far_a_count_is_off_is_known_from_the_sum() -> None:
    oracles = [RecordingOracle(lambda v, nu: sum_of(5.0, 4.0, noise=2.0)) for _ in range(2)]
    assert near_noise(oracles) == 0.0, "before there are sums"
    for oracle in oracles:
        oracle(np.zeros(4), 1.0)
    assert near_noise(oracles) == pytest.approx(10 * 2.0 / 10)
    exact = RecordingOracle(rfa.PlainOracle(cohort()))
    exact(np.zeros(8), 1.0)
    assert near_noise([exact]) == 0.0


def parts_for(aggregator: SumAggregator[Any], points: Floats) -> list[Floats]:
    return np.array_split(points, aggregator.layout(len(points)).parts)


@pytest.mark.parametrize("aggregator", FINE, ids=repr)
def test_noise_that_is_next_to_nothing_changes_next_to_nothing(
    aggregator: SumAggregator[Any],
) -> None:
    aggregator.check_noise()
    points, rng = cohort(), np.random.default_rng(1)

    def little(total: Sum) -> dict[str, Any]:
        return {"push": total.push + 1e-9 * rng.standard_normal(8), "noise": 1e-9}

    exact, _ = aggregator([rfa.PlainOracle(part) for part in parts_for(aggregator, points)], 8)
    oracles = [noisy(rfa.PlainOracle(part), little) for part in parts_for(aggregator, points)]
    found, _ = aggregator(oracles, 8)
    assert np.allclose(found.point, exact.point, rtol=1e-7)
    assert found.certificate is None, "noise proves nothing"
    assert found.calls == exact.calls


@pytest.mark.parametrize("aggregator", FINE, ids=repr)
@given(seed=st.integers(0, 1000), scale=st.floats(0.1, 1000))
def test_whatever_the_noise_the_aggregate_is_finite_and_bounded(
    aggregator: SumAggregator[Any], seed: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)

    def much(total: Sum) -> dict[str, Any]:
        return {
            "push": total.push + scale * rng.standard_normal(8),
            "mass": total.need("mass") + 3 * scale * rng.standard_normal(),
            "near": total.need("near") + 10 * scale * rng.standard_normal(),
        }

    state = None
    for _ in range(5):
        oracles = [noisy(rfa.PlainOracle(part), much) for part in parts_for(aggregator, cohort())]
        result, state = aggregator(oracles, 8, state)
        assert np.isfinite(result.point).all()
        assert result.near is None or 0 <= result.near <= 1


def test_the_mean_of_sums_with_noise_is_right_on_average() -> None:
    points, rng = cohort(), np.random.default_rng(2)
    aggregator = Mean(clip_norm=10.0)
    steps: list[Floats] = []
    for _ in range(4000):
        ask = noisy(
            rfa.PlainOracle(points), lambda total: {"push": total.push + rng.standard_normal(8)}
        )
        steps.append(aggregator([ask], 8)[0].point)
    off = np.mean(steps, axis=0) - points.mean(axis=0)
    assert np.abs(off).max() < 5 * 10 / 60 / math.sqrt(4000)


@pytest.mark.parametrize(
    ("aggregator", "says"),
    [
        (RFA(schedule="accelerated"), "schedule=accelerated .* give schedule=plain"),
        (RFA(early_stop=1e-6), "early_stop=1e-06 .* give early_stop=0"),
        (Groups(RFA(schedule="accelerated"), 3), "schedule=accelerated .* give schedule=plain"),
    ],
    ids=repr,
)
def test_what_needs_exact_sums_says_so(aggregator: SumAggregator[Any], says: str) -> None:
    with pytest.raises(InvalidValueError, match=says):
        aggregator.check_noise()


@pytest.mark.parametrize("text", ["fedavg", "sgd", "bucketing:groups=3", "rfa:start=mean"])
def test_means_under_noise_clip_to_a_length_that_is_given(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"give clip_norm.*or take adaptive-clipping"):
        build(text, context=Context(noise=True))
    more = "," if ":" in text else ":"
    build_private(f"{text}{more}clip_norm=0.5", context=Context(noise=True)).check_noise()


def test_all_other_private_aggregators_are_fine() -> None:
    for name in ("rfa", "rfa-one-step", "centered-clipping", "adaptive-clipping"):
        assert ENTRIES[name].is_private
        build_private(name, context=Context(noise=True)).check_noise()
