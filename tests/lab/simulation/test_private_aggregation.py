"""Aggregators on sums in the lab: parts of a cohort, and the radius that is learned."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from rfa.aggregators import RFA, AdaptiveRadius
from rfa.aggregators.registry import build_private
from rfa.errors import OracleStoppedError
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import aggregate, split_cohort
from rfa.lab.simulation.rounds import evaluate
from rfa.lab.simulation.secure import aggregate_securely
from rfa.numerics.plain_oracle import PlainOracle
from rfa.oracle import RecordingOracle, Sum
from rfa.secagg import Moment, Stage
from tests.lab.simulation.lab import play, tiny_devices
from tests.tiny import lax

WAYS: list[dict[str, Any]] = [
    {},
    {"schedule": "accelerated", "budget": 4},
    {"schedule": "sub-cohorts"},
    {"groups": 3},
    {"groups": 3, "aggregator": "rfa-one-step"},
    {"groups": 3, "aggregator": "fedavg"},
    {"groups": 3, "aggregator": "centered-clipping:budget=2"},
    {"aggregator": "bucketing", "groups": 3},
    {"aggregator": "centered-clipping"},
    {"aggregator": "adaptive-clipping"},
]
BUDGETS = (1, 2, 3, 6)
LEARNED = AdaptiveRadius(0.4)


def settings(**values: Any) -> Settings:
    return Settings.where_taken(
        "emnist-linear", devices_per_round=24, early_stop=0.0, **lax(values)
    )


def cohort() -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    updates = (rng.standard_normal((24, 40)) / 6 + 0.1).astype(np.float32)
    return updates, rng.uniform(0.3, 1, 24)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_in_the_clear_in_the_ring_and_by_the_protocol(way: dict[str, Any]) -> None:
    updates, weights = cohort()
    before = build_private(settings(**way).aggregation).init() and LEARNED
    plain, after = aggregate(updates, weights, settings(**way), 5, before)
    (ring, ring_after), (real, real_after) = (
        aggregate_securely(updates, weights, settings(secure=secure, **way), 5, before)
        for secure in ("unmasked", "on")
    )
    assert np.array_equal(ring.point, real.point)
    assert np.linalg.norm(ring.point - plain.point) < 2e-5 * np.linalg.norm(plain.point)
    assert ring.calls == plain.calls
    assert after == ring_after == real_after
    assert (after is None) == (before is None)
    if before is not None:
        assert ring.near == plain.near
        assert after == LEARNED.after(plain.near or 0.0)


@pytest.mark.parametrize("groups", [1, 3])
def test_blocks_in_the_clear_in_the_ring_and_by_the_protocol(groups: int) -> None:
    """Votes are coins in part, so that the radii of the next round are not those in the clear."""
    updates, weights = cohort()
    way = {"aggregator": "block-clipping:size=4", "groups": groups}
    plain, _ = aggregate(updates, weights, settings(**way), 5)
    (ring, ring_after), (real, real_after) = (
        aggregate_securely(updates, weights, settings(secure=secure, **way), 5)
        for secure in ("unmasked", "on")
    )
    assert np.array_equal(ring.point, real.point)
    assert np.linalg.norm(ring.point - plain.point) < 2e-5 * np.linalg.norm(plain.point)
    assert ring_after == real_after
    assert len(ring_after.levels) == 10


def test_parts_are_disjoint_and_differ_from_round_to_round() -> None:
    how = settings(schedule="sub-cohorts", budget=5)
    first, second = split_cohort(24, how, 0), split_cohort(24, how, 1)
    assert sorted(row for part in first for row in part) == list(range(24))
    assert [len(part) for part in first] == [5, 5, 5, 5, 4]
    assert first != second
    assert first == split_cohort(24, how, 0)
    assert len(split_cohort(3, how, 0)) == 3


def test_groups_tell_their_median_nearness_and_their_worst_certificate() -> None:
    updates, weights = cohort()
    how = settings(groups=3, aggregator="rfa-one-step")
    groups = split_cohort(24, how, 0)
    updates[groups[0]] *= 100
    updates[groups[1][:4]] *= 100
    sums = [PlainOracle(updates[g], weights[g] / weights.max())(np.zeros(40), 1.0) for g in groups]
    found, after = aggregate(updates, weights, how, 0, AdaptiveRadius(1.0))
    assert [total.near for total in sums] == [0, 4, 8]
    assert found.near == 1 / 2
    assert found.certificate == max(total.certificate() for total in sums)
    assert after == AdaptiveRadius(1.0).after(1 / 2)


def test_of_an_extrapolation_the_sum_before_counts_too() -> None:
    totals = iter(PlainOracle(np.eye(3) * size)(np.zeros(3), 0.5) for size in (9.0, 1.0))

    def tell(_v: Any, _nu: Any) -> Sum:
        return next(totals)

    ask = RecordingOracle(tell)
    first, second = ask(np.zeros(3), 0.5), ask(np.zeros(3), 0.5)
    assert first.certificate() > second.certificate()
    assert RFA(schedule="accelerated").certificate(ask) == first.certificate()
    assert RFA().certificate(ask) == second.certificate()


def test_means_in_groups_are_clipped_under_secure_sums_only() -> None:
    updates, weights = cohort()
    plain, _ = aggregate(1000 * updates, weights, settings(aggregator="bucketing"))
    ring, _ = aggregate_securely(
        1000 * updates, weights, settings(aggregator="bucketing", secure="unmasked"), 0
    )
    assert np.linalg.norm(ring.point) < 101 < np.linalg.norm(plain.point)
    told, _ = aggregate(1000 * updates, weights, settings(aggregator="bucketing", clip_norm=100.0))
    assert np.linalg.norm(ring.point - told.point) < 2e-5 * np.linalg.norm(told.point)


def test_devices_of_sub_cohorts_answer_once_so_that_a_malicious_server_is_allowed() -> None:
    updates, weights = cohort()
    how = settings(
        secure="on", server_model="malicious", schedule="sub-cohorts", colluder_fraction=0.0
    )
    assert (how.layout.parts, how.layout.queries, how.layout.calls) == (3, 1, 3)
    assert aggregate_securely(updates, weights, how, 0, LEARNED)[0].calls == 3


@pytest.mark.parametrize("stage", [Stage.OPEN, Stage.SUM])
def test_a_group_that_is_lost_does_not_end_the_round(
    monkeypatch: pytest.MonkeyPatch, stage: Stage
) -> None:
    """Seven of its eight devices never join, or leave when they are asked."""
    updates, weights = cohort()
    how = settings(secure="unmasked", groups=3)
    groups = split_cohort(24, how, 0)

    def lost(count: int) -> None:
        rows = (row for group in groups[:count] for row in group[:7])
        gone = dict.fromkeys(rows, Moment(0, stage))

        def drawn(*_: object) -> dict[int, Moment]:
            return gone

        monkeypatch.setattr("rfa.lab.simulation.secure.draw_losses", drawn)

    lost(1)
    outcome, after = aggregate_securely(updates, weights, how, 0, LEARNED)
    assert np.isfinite(outcome.point).all()
    assert after != LEARNED
    lost(2)
    with pytest.raises(OracleStoppedError, match="only 1 of 3 groups"):
        aggregate_securely(updates, weights, how, 0, LEARNED)


def test_the_radius_becomes_half_the_median_distance() -> None:
    devices = tiny_devices(aggregator="rfa-one-step", devices_per_round=24)
    state, _, engine = play(devices, 25)
    updates = engine.pool.train(state.model, state.round, devices.sample(state.round))
    half = float(np.median(np.linalg.norm(updates, axis=1))) / 2
    assert 0.7 < state.aggregator.nu / half < 1.4


@functools.cache
def accuracy(corruption: str = "none", **values: Any) -> float:
    rho = 0.0 if corruption == "none" else 0.25
    how: dict[str, Any] = {"devices_per_round": 24, "learning_rate": 0.02, **values}
    devices = tiny_devices(corruption=corruption, rho=rho, **how)
    state, _, engine = play(devices, 20)
    return evaluate(state, engine).test_accuracy


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("attack", ["zero-update", "anchor"])
def test_devices_that_sit_where_steps_start_fail(attack: str, budget: int) -> None:
    """At every budget, end to end: with the radius that is learned RFA learns as without them."""
    clean = accuracy(budget=budget)
    assert clean > 0.8
    assert accuracy(attack, budget=budget) > clean - 0.1
    if budget > 2:  # one step from a mean that was moved is not enough
        assert accuracy(attack, budget=budget, start="mean") > clean - 0.1


def test_they_succeed_against_a_radius_that_is_too_small() -> None:
    assert accuracy("zero-update", budget=3, nu=1e-6) < accuracy(budget=3) - 0.2
    assert accuracy("anchor", budget=3, nu=1e-6, start="mean") < accuracy(budget=3) - 0.2
