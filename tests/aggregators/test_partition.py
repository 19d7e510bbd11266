"""Aggregators from sums: clipping, sub-cohorts, groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import rfa
from rfa.aggregators import RFA, CenteredClipping, Groups, Layout, Mean, SubCohorts
from rfa.aggregators.clipping import centered_clipping, clipped_mean
from rfa.aggregators.partition import center_of_groups, sub_cohorts
from rfa.oracle import RecordingOracle, Sum, SumOracle, stopped_oracle
from tests.clouds import Points, clouds, radii

Floats = NDArray[np.float64]
ZERO = np.zeros(8)


def cohort(m: int = 60) -> Floats:
    return np.random.default_rng(3).standard_normal((m, 8)) / np.sqrt(8) + 1


def parts_of(points: Floats, parts: int) -> list[RecordingOracle]:
    return [RecordingOracle(rfa.PlainOracle(rows)) for rows in np.array_split(points, parts)]


def silent() -> RecordingOracle:
    return RecordingOracle(stopped_oracle(rfa.OracleStoppedError()))


def step_of(ask: SumOracle) -> Floats:
    return rfa.weiszfeld(ask, ZERO, nu=0.5, steps=3)


@given(clouds(), radii)
def test_centered_clipping_is_its_definition(cloud: Points, radius: float) -> None:
    ask, start = rfa.PlainOracle(cloud.points, cloud.alpha), cloud.points[0] / 2
    v = start
    for _ in range(3):
        off = cloud.points - v
        length = np.maximum(np.linalg.norm(off, axis=1), np.finfo(float).tiny)
        v = v + cloud.alpha @ (off * np.minimum(1, radius / length)[:, None]) / cloud.alpha.sum()
    found = centered_clipping(ask, start, clip_norm=radius, steps=3)
    np.testing.assert_allclose(found, v, atol=1e-9 * (1 + np.abs(cloud.points).max()))


def test_clipping_moves_no_farther_than_its_radius() -> None:
    points = np.vstack([cohort(), np.full((40, 8), 1e12)])
    found = centered_clipping(rfa.PlainOracle(points), ZERO, clip_norm=0.3, steps=4)
    assert np.linalg.norm(found) <= 4 * 0.3


def test_a_mean_that_cuts_nothing_is_the_mean() -> None:
    found = clipped_mean(rfa.PlainOracle(cohort()), 8, clip_norm=100.0)
    np.testing.assert_allclose(found, cohort().mean(axis=0), rtol=1e-12)


def test_one_sub_cohort_is_one_step() -> None:
    ask = rfa.PlainOracle(cohort())
    np.testing.assert_allclose(
        sub_cohorts([ask], ZERO, nu=0.5), rfa.one_step(ask, 8, nu=0.5), rtol=1e-12
    )


def test_parts_that_are_alike_are_weighted_by_their_masses() -> None:
    asks = parts_of(cohort(), 2)
    first = asks[0](ZERO, 0.5)
    v = 0.5 * first.push / first.need("mass")
    second = asks[1](v, 0.5)
    image = v + 0.5 * second.push / second.need("mass")
    wanted = (first.need("mass") * v + second.need("mass") * image) / (
        first.need("mass") + second.need("mass")
    )
    np.testing.assert_allclose(sub_cohorts(asks, ZERO, nu=0.5), wanted, rtol=1e-12)


def test_each_sub_cohort_is_asked_once() -> None:
    asks = parts_of(cohort(), 4)
    sub_cohorts(asks, ZERO, nu=0.5)
    assert [ask.calls for ask in asks] == [1, 1, 1, 1]


def test_sub_cohorts_beat_one_step_at_the_same_cost() -> None:
    """Many devices, a start far from the median: several short looks are worth more than one."""
    rng = np.random.default_rng(5)
    wins = 0
    for _ in range(20):
        points = rng.standard_normal((300, 8)) / np.sqrt(8) + 1
        points[:75] = -5.0
        rng.shuffle(points)
        best = rfa.geometric_median(points, nu=0.1).point
        once = rfa.one_step(rfa.PlainOracle(points), 8, nu=0.1)
        parts = sub_cohorts(parts_of(points, 3), ZERO, nu=0.1)
        wins += bool(np.linalg.norm(parts - best) < np.linalg.norm(once - best))
    assert wins >= 18


def test_a_sub_cohort_without_a_sum_is_left_out() -> None:
    asks = parts_of(cohort(), 3)
    found = sub_cohorts([asks[0], silent(), asks[2]], ZERO, nu=0.5)
    np.testing.assert_array_equal(found, sub_cohorts([asks[0], asks[2]], ZERO, nu=0.5))


@pytest.mark.parametrize("asks", [[], [silent(), silent()]])
def test_no_sub_cohort_with_a_sum_is_an_error(asks: Sequence[SumOracle]) -> None:
    with pytest.raises(rfa.OracleStoppedError):
        sub_cohorts(asks, ZERO, nu=0.5)


@given(st.integers(1, 4), st.floats(1, 1e9))
def test_liars_in_a_minority_of_groups_move_the_center_little(liars: int, size: float) -> None:
    """Nine groups; in up to four one device answers whatever it likes."""
    asks = parts_of(cohort(90), 9)
    without = center_of_groups(asks, step_of)
    lied = [_lies(ask, size) if number < liars else ask for number, ask in enumerate(asks)]
    moved = np.linalg.norm(center_of_groups(lied, step_of) - without)
    alone = np.linalg.norm(step_of(_lies(rfa.PlainOracle(cohort(90)), 1e6)) - without)
    assert moved < 2 < alone


def test_a_liar_in_one_group_of_all_is_lost_only_with_groups() -> None:
    with pytest.raises(rfa.OracleStoppedError, match="only 2 of 4 groups"):
        center_of_groups([*parts_of(cohort(), 2), silent(), silent()], step_of)


def test_groups_that_are_not_finite_give_nothing() -> None:
    asks = [*parts_of(cohort(), 1), *(_lies(ask, np.nan) for ask in parts_of(cohort(), 3))]
    with pytest.raises(rfa.OracleStoppedError, match="only 1 of 4 groups"):
        center_of_groups(asks, lambda ask: rfa.one_step(ask, 8, nu=0.5))


def test_sums_without_weight_or_mass_are_refused() -> None:
    total = replace(rfa.PlainOracle(cohort())(ZERO, 0.5), weight=0.0, mass=0.0)

    def empty(_v: Floats, _nu: Any) -> Sum:
        return total

    with pytest.raises(ValueError, match="the weight of 60 devices is"):
        centered_clipping(empty, ZERO, clip_norm=1.0, steps=2)
    with pytest.raises(ValueError, match="the mass of 60 devices at v is"):
        sub_cohorts([empty], ZERO, nu=0.5)


def _lies(ask: SumOracle, size: float) -> RecordingOracle:
    return RecordingOracle(lambda v, nu: replace(ask(v, nu), push=np.full(8, size)))


def test_sub_cohorts_of_rfa_are_its_steps_over_parts() -> None:
    asks = parts_of(cohort(), 3)
    result, _ = SubCohorts(RFA(budget=3, nu=0.5))(asks, 8)
    np.testing.assert_array_equal(result.point, sub_cohorts(parts_of(cohort(), 3), ZERO, nu=0.5))
    assert result.calls == 3, "parts wait for each other"


def test_groups_take_the_inner_aggregator_in_each() -> None:
    inner = RFA(budget=3, nu=0.5)
    result, _ = Groups(inner, 3)(parts_of(cohort(), 3), 8)
    wanted = center_of_groups(parts_of(cohort(), 3), step_of)
    np.testing.assert_array_equal(result.point, wanted)
    assert result.calls == 3, "groups are asked at the same time"


def test_groups_learn_one_radius_from_the_median_of_all() -> None:
    """Each group alone would say otherwise: the state moves once a round, by their median."""
    inner = RFA(budget=1)
    points = np.concatenate([cohort(30), 1e3 * cohort(30), 1e3 * cohort(30)])
    _, state = Groups(inner, 3)(parts_of(points, 3), 8)
    assert state == inner.init().after(0.0)  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SubCohorts(RFA(start="mean")), "give start=current, not mean"),
        (lambda: SubCohorts(RFA(schedule="accelerated")), "give schedule=plain"),
        (
            lambda: SubCohorts(Mean()),  # pyright: ignore[reportArgumentType]
            "not of Mean",
        ),
        (lambda: Groups(SubCohorts(RFA()), 3), "splits a cohort itself"),
        (lambda: Groups(Mean(), 0), "whole number from 1"),
        (
            lambda: Groups("rfa", 3),  # pyright: ignore[reportArgumentType]
            "not of 'rfa'",
        ),
    ],
)
def test_compositions_that_make_no_sense_are_refused(make: Any, words: str) -> None:
    with pytest.raises(rfa.RfaError, match=words):
        make()


def test_layouts_say_what_a_round_costs() -> None:
    assert SubCohorts(RFA(budget=4)).layout(100) == Layout(parts=4, queries=1, sequential=True)
    assert SubCohorts(RFA(budget=4)).layout(100).calls == 4
    assert Groups(RFA(budget=4), 5).layout(100) == Layout(parts=5, queries=4)
    assert Groups(RFA(budget=4), 5).layout(100).calls == 4
    assert CenteredClipping(budget=2).layout(9) == Layout(queries=2)
