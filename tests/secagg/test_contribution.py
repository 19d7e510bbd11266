"""What a device may bring, what a total may be, and how a point travels."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.secagg.errors import ImplausibleSumError, ParameterError
from rfa.secagg.fixed_point import (
    Contribution,
    Encoding,
    NotFiniteError,
)
from rfa.secagg.messages.values import as_sent
from rfa.secagg.statistics import POSITIONS, STATISTICS, weighs_more

ONES = np.ones(3, np.float32)
CANARY = 123456.789
UNIT = 2**96
MASS, SQUARES, WEIGHT, NEAR, COUNT = (POSITIONS[row.name] for row in STATISTICS)


def with_canary(value: float) -> Any:
    return np.array([CANARY, value, 1.0], np.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_makes_the_device_abstain(value: float) -> None:
    with pytest.raises(NotFiniteError, match="the device abstains") as caught:
        Contribution(with_canary(value))
    assert "123456" not in str(caught.value)


@pytest.mark.parametrize("weight", [0.0, -0.5, np.nextafter(1.0, 2), CANARY, np.nan, np.inf])
def test_weights_are_above_0_and_at_most_1(weight: float) -> None:
    with pytest.raises(ParameterError, match="above 0 and at most 1") as caught:
        Contribution(ONES, weight)
    assert "123456" not in str(caught.value)


@pytest.mark.parametrize("metric", [np.nan, np.inf, -np.inf, 2.0**32 + 1, -CANARY * 1e9])
def test_metrics_that_are_too_large_are_refused_by_their_place(metric: float) -> None:
    with pytest.raises(NotFiniteError, match="metric 1 must be") as caught:
        Contribution(ONES, 1.0, (CANARY, metric))
    assert "123456" not in str(caught.value)


@pytest.mark.parametrize(
    "update",
    [
        np.array([CANARY, 1.0]),
        np.array([123456, 1]),
        np.array([[CANARY]], np.float32),
        np.array(CANARY, np.float32),
        np.empty(0, np.float32),
        np.array([CANARY], np.complex64),
    ],
)
def test_updates_are_vectors_of_float32(update: Any) -> None:
    with pytest.raises(ParameterError, match="an update is a numpy vector of float32") as caught:
        Contribution(update)
    assert "123456" not in str(caught.value)


def test_what_a_device_brings_is_in_no_repr() -> None:
    contribution = Contribution(with_canary(1.0), 0.123456, (CANARY,))
    part = Encoding(2).encode(contribution, np.empty(0, np.float32), 1e6, bytes(16))
    secrets = [str(number) for number in (*part.tail, *part.words.tolist()) if number > 9]
    for text in (repr(contribution), str(contribution), repr(part), str(part)):
        assert "123456" not in text
        assert not any(secret in text for secret in secrets)


def fine() -> list[int]:
    """The tail of a total of two devices, one of them near."""
    tail = [0] * 5
    tail[MASS], tail[SQUARES], tail[WEIGHT] = UNIT, UNIT // 2, 2 * UNIT
    tail[NEAR], tail[COUNT] = 1, 2
    return tail


def push_of(length: float) -> Any:
    words = np.zeros(4, np.int32)
    words[2] = round(length * Encoding(2).scale)
    return words.view(np.uint32)


def test_a_plausible_total_is_accepted() -> None:
    total = Encoding(2).decode(push_of(-0.9), fine())
    assert total.sum.push == pytest.approx([0, 0, -0.9, 0], abs=1e-9)
    assert (total.sum.mass, total.sum.squares, total.sum.weight) == (1.0, 0.5, 2.0)


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (COUNT, 0, "the total count is 0, of at most 2"),
        (COUNT, 3, "the total count is 3, of at most 2"),
        (COUNT, 2**128 - 1, "the total count is -1, of at most 2"),
        (MASS, 0, "the total mass is 0.0, of"),
        (MASS, 2**128 - UNIT, "the total mass is -1.0, of"),
        (MASS, 2 * UNIT + UNIT // 2**20, "the total mass is 2.00000"),
        (WEIGHT, 2 * UNIT + UNIT // 2**20, "the total weight is 2.00000"),
        (NEAR, 3, "the total near is 3, of at most 2"),
        (NEAR, 2**128 - 1, "the total near is -1, of at most 2"),
        (SQUARES, UNIT + UNIT // 2**20, "the total squares is 1.00000"),
        (SQUARES, 0, "the total squares is 0"),
        (SQUARES, 2**128 - 1, "the total squares is -"),
    ],
)
def test_totals_that_no_honest_devices_have_are_refused(
    place: int, value: int, reason: str
) -> None:
    tail = fine()
    tail[place] = value
    with pytest.raises(ImplausibleSumError) as caught:
        Encoding(2).decode(push_of(0.5), tail)
    assert reason in str(caught.value)


def test_a_push_that_is_longer_than_the_weights_is_refused() -> None:
    tail = fine()
    tail[WEIGHT] = UNIT
    Encoding(2).decode(push_of(1.0), tail)
    for length in (1.00001, -1.00001, 1.9):
        with pytest.raises(ImplausibleSumError, match=r"the push is 1.*long"):
            Encoding(2).decode(push_of(length), tail)


def test_a_point_is_rounded_to_float32() -> None:
    sent = as_sent(np.array([0.1, -2.0, 1e-50]), 3)
    assert sent.dtype == np.dtype("<f4")
    assert sent.tolist() == [float(np.float32(0.1)), -2.0, 0.0]


@pytest.mark.parametrize("v", [np.zeros(3), [0, 0, 0], np.array([0.0, -0.0, 1e-60])])
def test_zero_travels_as_an_empty_vector(v: Any) -> None:
    assert as_sent(v, 3).shape == (0,)


@pytest.mark.parametrize(
    "v",
    [
        [1.0, np.nan, 0.0],
        [np.inf, 0.0, 0.0],
        [0.0, -np.inf, 0.0],
        [1e39, 0.0, 0.0],
        [0.0, 0.0, -3.5e38],
        [1.0, 2.0],
        [1.0, 2.0, 3.0, 4.0],
        [[1.0, 2.0, 3.0]],
        [],
        1.0,
    ],
)
def test_points_that_cannot_travel_are_refused(v: Any) -> None:
    with pytest.raises(ValueError, match="v must be 3 finite numbers that float32 can hold"):
        as_sent(np.array(v), 3)


@given(st.integers(0, 2**97), st.integers(1, 2**117), st.floats(0, 1))
def test_weights_are_compared_exactly(mass: int, total: int, max_share: float) -> None:
    most = Fraction(max_share) * total
    whole = most.numerator // most.denominator
    assert not weighs_more(whole, total, max_share)
    assert weighs_more(whole + 1, total, max_share)
    assert weighs_more(mass, total, max_share) == (mass > whole)


@pytest.mark.parametrize("update", [None, [1.0, 2.0], "abc", 3.0])
def test_what_is_no_array_is_no_update(update: Any) -> None:
    with pytest.raises(ParameterError, match="a numpy vector of float32"):
        Contribution(update)


@pytest.mark.parametrize(("weight", "metrics"), [("1", ()), (None, ()), (1, ("a",)), (1, (None,))])
def test_weights_and_metrics_are_numbers(weight: Any, metrics: Any) -> None:
    with pytest.raises(ParameterError, match="are numbers"):
        Contribution(np.ones(3, np.float32), weight, metrics)
