"""The table of statistics: what its rows say holds for what devices send."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.oracle import Sum
from rfa.secagg.fixed_point import LARGEST_COHORT
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
from rfa.secagg.words import TAIL

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
    assert named - {"push", "objective"} == set(POSITIONS)
    assert all(row.at_most in {None, *POSITIONS} for row in STATISTICS)
    assert METRIC.sensitivity == math.ldexp(1, 33)
