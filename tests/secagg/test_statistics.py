"""The table of statistics: what its rows say holds for what devices send."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.oracle import REACH, Sum
from rfa.secagg.fixed_point import LARGEST_COHORT, Contribution, Encoding
from rfa.secagg.statistics import (
    METRIC,
    POSITIONS,
    STATISTICS,
    LocalFacts,
    Statistic,
    decode_all,
    encode_all,
    implausible,
)
from rfa.secagg.words import TAIL, WORD
from tests.clouds import Points, clouds, radii

ROWS = (*STATISTICS, METRIC)


def facts_of(weight: float, share: float, near: bool) -> LocalFacts:
    return LocalFacts(weight, weight * share, near)


facts = st.builds(facts_of, st.floats(0, 1, exclude_min=True), st.floats(0, 1), st.booleans())


@given(facts)
def test_no_value_is_beyond_its_bounds(local: LocalFacts) -> None:
    for row in STATISTICS:
        assert row.least <= row.value(local) <= row.largest
        assert row.units(row.least) <= row.units(row.value(local)) <= row.units(row.largest)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_no_total_wraps_around(row: Statistic) -> None:
    assert row.fits(LARGEST_COHORT)
    assert not row.fits(TAIL)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_sensitivity_is_how_far_apart_two_values_can_be(row: Statistic) -> None:
    apart = row.decode((row.encode(row.largest) - row.encode(row.least)) % TAIL)
    assert row.sensitivity == apart
    assert row.sensitivity == pytest.approx(row.largest - row.least)


@given(st.lists(facts, min_size=1, max_size=5), st.lists(st.floats(-9, 9), max_size=3))
def test_totals_of_honest_devices_are_plausible(
    devices: list[LocalFacts], metrics: list[float]
) -> None:
    tails = [encode_all(local, metrics) for local in devices]
    tail = [sum(column) % TAIL for column in zip(*tails, strict=True)]
    totals, sums = decode_all(tail)
    assert totals["count"] == len(devices)
    assert sums == pytest.approx([len(devices) * metric for metric in metrics])
    if totals["mass"] * totals["weight"] > 0:
        assert not implausible(totals, len(devices))


def test_every_statistic_of_a_sum_is_in_the_table() -> None:
    named = {item.name for item in dataclasses.fields(Sum)}
    assert named - {"push", "objective", "noise", "votes"} == set(POSITIONS)
    assert all(row.at_most in {None, *POSITIONS} for row in STATISTICS)
    assert METRIC.sensitivity == math.ldexp(1, 33)


@given(
    st.lists(
        st.one_of(
            st.floats(0, 1e12),
            st.floats(0.99, 1.01),
            st.sampled_from([0.0, 0.5, 1.0, 2.0, math.nextafter(2.0, 3.0), 1e-300, 4.0, 1e12]),
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([1e-12, 1e-6, 0.1, 1.0, 3.7, 1e9]),
)
def test_no_total_of_equal_honest_devices_is_refused(ratios: list[float], nu: float) -> None:
    """Devices of weight 1 at any distances, as they compute mass and near."""
    distances = [ratio * nu for ratio in ratios]
    locals_ = [
        LocalFacts(1.0, min(1.0, nu / r) if r > 0 else 1.0, r <= REACH * nu) for r in distances
    ]
    tails = [encode_all(local, ()) for local in locals_]
    totals, _ = decode_all([sum(column) % TAIL for column in zip(*tails, strict=True)])
    assert not implausible(totals, len(ratios), equal=True)
    assert not implausible(totals, len(ratios) + 3, equal=True)


@given(clouds(equal=True), radii, st.integers(-6, 6))
def test_no_sum_of_equal_honest_devices_is_refused(points: Points, nu: float, scale: int) -> None:
    encoding = Encoding(len(points.points), equal_weights=True)
    radius = nu * 10.0**scale
    words, tail = np.zeros(points.points.shape[1], WORD), [0] * len(STATISTICS)
    for row, update in enumerate(points.points):
        contribution = Contribution(update.astype(np.float32))
        part = encoding.encode(contribution, np.zeros(0, "<f4"), radius, row.to_bytes(16, "big"))
        words += part.words
        tail = [(a + b) % TAIL for a, b in zip(tail, part.tail, strict=True)]
    encoding.decode(words, tail)


TEN = {"mass": 6.0, "squares": 4.2, "weight": 10.0, "near": 6.0, "count": 10.0}
"""Ten devices of weight 1 that are as they should be."""


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"squares": 3.59}, "masses of 6.0 have more"),  # below those of even masses
        ({"weight": 9.5}, "devices of weight 1 is 9.5"),
        ({"near": 1.0, "squares": 3.7}, "mass is 6.0, with 1.0 of 10.0 devices near"),
        ({"near": 10.0, "mass": 4.9}, "mass is 4.9, with 10.0 of 10.0"),
        ({"squares": 3.63}, "squares are 3.63, from"),  # even, but near ones are not far ones
        ({"near": 4.0, "squares": 5.2}, "squares are 5.2, from"),  # above 0, 1/2 and 1 masses
    ],
)
def test_each_check_of_equal_weights_catches_a_liar_that_the_others_miss(
    lie: dict[str, float], reason: str
) -> None:
    assert not implausible(TEN, 10, equal=True)
    assert reason in implausible(TEN | lie, 10, equal=True)
    assert bool(implausible(TEN | lie, 10)) == ("have more" in reason)


@given(
    st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.floats(0, 1)
)
def test_the_bounds_on_equal_weights_are_met(counts: tuple[int, int], share: float) -> None:
    """Masses as even, and as uneven, as they can be: neither is refused, and a little more is."""
    count, near = counts
    even = [(1 + share) / 2] * near + [1 / 2] * (count - near)
    uneven = [1.0] * near + [0.0] * (count - near)
    for masses, beyond in ((even, -1e-9), (uneven, 1e-9)):
        totals = {"mass": sum(masses), "weight": float(count), "near": near, "count": count}
        squares = sum(mass**2 for mass in masses)
        if not totals["mass"]:
            continue
        assert not implausible({**totals, "squares": squares}, count, equal=True)
        assert implausible({**totals, "squares": squares + beyond}, count, equal=True)
