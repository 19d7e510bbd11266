"""The fixed point of sums: no total wraps around, and every rounding is within its bound."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rfa._types import Floats32
from rfa.secagg import push as module
from rfa.secagg.crypto.masks import BLOCK
from rfa.secagg.errors import ImplausibleSumError, ParameterError
from rfa.secagg.fixed_point import (
    LARGEST_COHORT,
    Contribution,
    EncodedInput,
    Encoding,
    Total,
)
from rfa.secagg.statistics import POSITIONS, STATISTICS
from rfa.secagg.words import TAIL, WORD

COHORTS = [1, 2, 3, 100, 2**20, LARGEST_COHORT]
ZERO = np.empty(0, np.float32)
UNIT = 2**96
MASS, SQUARES, WEIGHT, NEAR, COUNT = (POSITIONS[row.name] for row in STATISTICS)
KEY = bytes(range(16))
RING = 2**32


def floats(*values: float) -> Floats32:
    return np.array(values, np.float32)


def signed(words: Any) -> list[int]:
    return [int(word) for word in np.asarray(words).view(np.int32)]


def key_of(index: int) -> bytes:
    return index.to_bytes(16, "big")


def add(parts: list[EncodedInput]) -> tuple[NDArray[np.uint32], list[int]]:
    words = np.zeros(len(parts[0].words), WORD)
    for part in parts:
        words += part.words
    columns = zip(*(part.tail for part in parts), strict=True)
    return words, [sum(column) % TAIL for column in columns]


def total_of(parts: list[EncodedInput]) -> Total:
    return Encoding(len(parts)).decode(*add(parts))


def root(value: Fraction) -> Fraction:
    """The square root, rounded down to a relative 2^-150 or so."""
    digits = 400
    return Fraction(math.isqrt(math.floor(value * (1 << 2 * digits))), 1 << digits)


def steps_of(update: Floats32, v: Floats32) -> list[Fraction]:
    at = v if len(v) else np.zeros_like(update)
    return [Fraction(float(w)) - Fraction(float(a)) for w, a in zip(update, at, strict=True)]


def exact_push(contribution: Contribution, v: Floats32, nu: float) -> list[Fraction]:
    queries = steps_of(contribution.update, v)
    reach = max(Fraction(nu), root(sum((step * step for step in queries), Fraction(0))))
    return [Fraction(contribution.weight) * step / reach for step in queries]


@pytest.mark.parametrize("draw", [0, RING - 1])
@pytest.mark.parametrize("cohort", COHORTS)
def test_no_total_can_wrap_around(cohort: int, draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All push on one coordinate, however the rounding falls, and everybody the same."""

    def worst(stream: object, count: int) -> NDArray[np.uint32]:
        return np.full(count, draw, WORD)

    monkeypatch.setattr(module, "stream_words", worst)
    code = Encoding(cohort)
    for size in (1e-45, 1e-3, 1.0, 3.0, 3.4e38):
        for sign in (-1, 1):
            contribution = Contribution(floats(0, sign * size, 0))
            for nu in (1e-6, float(np.float32(size)), 1e38):
                words = signed(code.encode(contribution, ZERO, nu, KEY).words)
                sums = [cohort * word for word in words]
                assert max(map(abs, words)) <= code.scale + 1
                assert all(-RING // 2 < value < RING // 2 for value in sums)


@pytest.mark.parametrize("cohort", COHORTS)
def test_the_scale_is_the_largest_that_is_safe(cohort: int) -> None:
    scale = Encoding(cohort).scale
    assert cohort * (scale + 1) < 2**31 <= cohort * (scale + 2)
    assert scale >= 2


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("cohort", [1, 2, 3, 100])
def test_the_largest_total_is_decoded(cohort: int, sign: int) -> None:
    code = Encoding(cohort)
    contribution = Contribution(floats(sign * 1e20, 0))
    parts = [code.encode(contribution, ZERO, 1.0, key_of(index)) for index in range(cohort)]
    total = total_of(parts)
    assert total.sum.push.tolist() == [sign * cohort, 0]
    assert (total.sum.count, total.sum.weight, total.sum.near) == (cohort, cohort, 0)


def test_a_mass_below_all_digits_ends_the_round() -> None:
    """All updates 2^96 times farther than nu: the step would divide by zero."""
    part = Encoding(1).encode(Contribution(floats(3e38)), ZERO, 1.0, KEY)
    assert part.tail[MASS] == 0
    with pytest.raises(ImplausibleSumError, match="the total mass is 0"):
        total_of([part])


def test_a_liar_that_takes_the_weight_away_is_noticed() -> None:
    """A mean would divide by zero, even where the total mass is as small as the slack."""
    part = Encoding(1).encode(Contribution(floats(1e20)), ZERO, 1.0, KEY)
    part.tail[WEIGHT] = 0
    with pytest.raises(ImplausibleSumError, match="the total weight is 0"):
        total_of([part])


@pytest.mark.parametrize("cohort", [0, -1, LARGEST_COHORT + 1])
def test_cohorts_that_could_wrap_around_are_refused(cohort: int) -> None:
    with pytest.raises(ParameterError, match=f"not {cohort}"):
        Encoding(cohort)


VALUES = [0.0, 1.0, -1.0, 0.5, 3.0, -7.25, 1e-45, -1e-40, 1e30, -1e30, 3.4e38, 0.1, 1e-6]
numbers = st.one_of(st.sampled_from(VALUES), st.floats(-100, 100, width=32))
weights = st.one_of(st.sampled_from([1.0, 0.5, 2.0**-20]), st.floats(2.0**-20, 1))
radii = st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 50.0, 1e30, 1e300])


@st.composite
def sum_requests(draw: st.DrawFn) -> tuple[list[Contribution], Floats32, float]:
    """Devices with duplicates among them, a point that may be one of them, and a radius."""
    dim, count = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    vectors = st.lists(numbers, min_size=dim, max_size=dim)
    rows = draw(st.lists(vectors, min_size=count, max_size=count))
    rows[-1] = draw(st.sampled_from(rows))
    contribution = [Contribution(floats(*row), draw(weights)) for row in rows]
    v = draw(st.sampled_from([[], *rows, draw(vectors)]))
    return contribution, floats(*v), draw(radii)


@given(sum_requests(), st.binary(min_size=16, max_size=16))
def test_each_word_is_off_by_less_than_a_unit(
    asked: tuple[list[Contribution], Floats32, float], key: bytes
) -> None:
    contribution, v, nu = asked
    code = Encoding(100)
    words = signed(code.encode(contribution[0], v, nu, key).words)
    for word, push in zip(words, exact_push(contribution[0], v, nu), strict=True):
        assert abs(word - code.scale * push) < 1
        assert word == 0 or word * push > 0 or abs(code.scale * push) < 1


@given(sum_requests())
def test_totals_are_those_of_the_devices(
    asked: tuple[list[Contribution], Floats32, float],
) -> None:
    contribution, v, nu = asked
    cohort = len(contribution)
    code = Encoding(cohort)
    masses: list[Fraction] = []
    near = 0
    for one in contribution:
        square = sum((step * step for step in steps_of(one.update, v)), Fraction(0))
        reach = 2 * Fraction(nu)
        assume(not 0 < abs(square / reach**2 - 1) < 1e-12)
        near += square <= reach**2
        masses.append(Fraction(one.weight) * min(1, Fraction(nu) / max(root(square), Fraction(nu))))
    assume(sum(masses) > Fraction(2 * cohort, UNIT))
    total = total_of([code.encode(one, v, nu, key_of(i)) for i, one in enumerate(contribution)])
    slack = Fraction(1, 2**43)
    assert (total.sum.count, total.sum.near) == (cohort, near)
    assert total.mass / UNIT == total.sum.mass
    weight = float(sum(Fraction(one.weight) for one in contribution))
    assert total.sum.weight == pytest.approx(weight, rel=1e-15, abs=cohort * 2.0**-96)
    low = sum(masses) * (1 - slack) - Fraction(cohort, UNIT)
    assert low <= Fraction(total.mass, UNIT) <= sum(masses)
    squares = sum(mass * mass for mass in masses)
    high = squares * (1 + 2 * slack) + Fraction(cohort, UNIT)
    assert squares <= Fraction(total.sum.need("squares")) <= high
    pushes = [exact_push(one, v, nu) for one in contribution]
    for found, column in zip(total.sum.push, zip(*pushes, strict=True), strict=True):
        assert abs(Fraction(float(found)) - sum(column)) <= Fraction(cohort, code.scale)


@pytest.mark.parametrize("draw", [0, 1, RING // 2, RING - 1])
@pytest.mark.parametrize("cohort", COHORTS)
def test_no_draw_rounds_by_more_than_a_unit(
    cohort: int, draw: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the last digits of a float64, in which words and draws are added."""

    def drawn(stream: object, count: int) -> NDArray[np.uint32]:
        return np.full(count, draw, WORD)

    monkeypatch.setattr(module, "stream_words", drawn)
    code = Encoding(cohort)
    for update in (floats(3, -4, 0, 1e-3), floats(-1, 1, 0.1, 7), floats(0, 0, 0, -2)):
        for nu in (1e-3, 1.0, 100.0):
            contribution = Contribution(update, 0.7)
            words = signed(code.encode(contribution, ZERO, nu, KEY).words)
            for word, push in zip(words, exact_push(contribution, ZERO, nu), strict=True):
                assert abs(word - code.scale * push) <= 1 + Fraction(code.scale, 2**51)


def test_an_update_at_twice_the_radius_is_near() -> None:
    contribution = Contribution(floats(6, -8))
    for nu, near in ((np.nextafter(5.0, 0), 0), (5.0, 1), (np.nextafter(5.0, 6), 1)):
        assert Encoding(3).encode(contribution, ZERO, float(nu), KEY).tail[NEAR] == near


def test_blocks_are_rounded_independently() -> None:
    update = np.ones(2 * BLOCK, np.float32)
    words = Encoding(50).encode(Contribution(update), ZERO, 1.0, KEY).words
    assert len(set(words.tolist())) == 2
    up = float((words > words.min()).mean())
    alike = float((words[:BLOCK] == words[BLOCK:]).mean())
    assert abs(alike - (up**2 + (1 - up) ** 2)) < 5 * 0.5 / math.sqrt(BLOCK)


def test_rounding_is_right_on_average() -> None:
    """Within 5 standard errors over 3000 rounding keys, for each coordinate."""
    code, trials = Encoding(7), 3000
    contribution = Contribution(
        np.random.default_rng(1).standard_normal(12).astype(np.float32), 0.7
    )
    exact = [float(code.scale * push % 1) for push in exact_push(contribution, ZERO, 2.0)]
    floors = [math.floor(code.scale * push) for push in exact_push(contribution, ZERO, 2.0)]
    drawn = [signed(code.encode(contribution, ZERO, 2.0, key_of(i)).words) for i in range(trials)]
    above = np.array(drawn) - np.array(floors)
    assert set(above.flat) == {0, 1}
    for share, found in zip(exact, above.mean(axis=0), strict=True):
        assert abs(found - share) <= 5 * math.sqrt(share * (1 - share) / trials)


def test_the_error_of_a_total_is_as_stated() -> None:
    cohort, dim = 12, 20_000
    code, rng = Encoding(cohort), np.random.default_rng(2)
    updates = rng.standard_normal((cohort, dim)).astype(np.float32)
    parts = [code.encode(Contribution(w), ZERO, 1.0, key_of(i)) for i, w in enumerate(updates)]
    wide = updates.astype(np.float64)
    exact = (wide / np.linalg.norm(wide, axis=1)[:, None]).sum(axis=0)
    error = total_of(parts).sum.push - exact
    stated = math.sqrt(cohort / 6) / code.scale
    assert float(error.std()) == pytest.approx(stated, rel=0.02)
    assert abs(float(error.mean())) <= 5 * stated / math.sqrt(dim)
    assert np.abs(error).max() < cohort / code.scale


@given(weights, st.sampled_from([1e-3, 1.0, 1e6]))
def test_within_the_radius_mass_is_rounded_down_and_squares_up(weight: float, nu: float) -> None:
    tail = Encoding(3).encode(Contribution(floats(0, nu / 2), weight), ZERO, nu, KEY).tail
    exact = Fraction(weight)
    assert exact * (1 - Fraction(1, 2**43)) - Fraction(1, UNIT) <= Fraction(tail[MASS], UNIT)
    assert Fraction(tail[MASS], UNIT) < exact
    assert exact**2 < Fraction(tail[SQUARES], UNIT)
    assert Fraction(tail[SQUARES], UNIT) <= exact**2 * (1 + Fraction(1, 2**42)) + Fraction(1, UNIT)
    assert Fraction(tail[WEIGHT], UNIT) <= exact < Fraction(tail[WEIGHT] + 1, UNIT)
    assert (tail[NEAR], tail[COUNT], len(tail)) == (1, 1, len(STATISTICS))


@given(weights, st.floats(1e-6, 4.9))
def test_beyond_the_radius_mass_is_rounded_down_and_squares_up(weight: float, nu: float) -> None:
    """The distance is 5."""
    tail = Encoding(3).encode(Contribution(floats(3, -4), weight), ZERO, nu, KEY).tail
    exact = Fraction(weight) * Fraction(nu) / 5
    assert Fraction(tail[MASS], UNIT) <= exact
    assert Fraction(tail[SQUARES], UNIT) >= exact**2
    assert tail[NEAR] == (2 * nu >= 5)


METRIC = st.floats(-(2.0**32), 2.0**32)


@given(st.lists(st.tuples(METRIC, METRIC), min_size=1, max_size=5))
def test_metrics_may_be_negative_and_fractional(rows: list[tuple[float, float]]) -> None:
    code = Encoding(len(rows))
    parts = [code.encode(Contribution(floats(1), 1, row), ZERO, 1.0, KEY) for row in rows]
    for found, column in zip(total_of(parts).metrics, zip(*rows, strict=True), strict=True):
        exact = sum(map(Fraction, column))
        assert abs(Fraction(found) - exact) <= Fraction(len(rows), 2**65) + abs(exact) / 2**52


@settings(max_examples=60)
@given(sum_requests())
def test_zero_may_travel_as_an_empty_vector(
    asked: tuple[list[Contribution], Floats32, float],
) -> None:
    contribution, _, nu = asked
    code = Encoding(5)
    empty = code.encode(contribution[0], ZERO, nu, KEY)
    explicit = code.encode(contribution[0], np.zeros_like(contribution[0].update), nu, KEY)
    assert empty.words.tolist() == explicit.words.tolist()
    assert empty.tail == explicit.tail


def test_a_phase_without_vectors_has_the_same_scalars() -> None:
    code, contribution = Encoding(4), Contribution(floats(3, 4), 0.25, (1.5,))
    whole = code.encode(contribution, floats(1, 1), 0.5, KEY)
    scalars = code.encode(contribution, floats(1, 1), 0.5, KEY, vector=False)
    assert (len(whole.words), len(scalars.words)) == (2, 0)
    assert scalars.tail == whole.tail


@settings(max_examples=20)
@given(st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7]), st.integers(0, 2**32))
def test_long_vectors_are_as_short_ones(dim: int, seed: int) -> None:
    """Blocks follow on each other: every word is within a unit of its push."""
    update = np.random.default_rng(seed).standard_normal(dim).astype(np.float32)
    v, code = np.roll(update, 1), Encoding(50)
    words = code.encode(Contribution(update), v, 1.0, KEY).words.view(np.int32)
    step = update.astype(np.float64) - v
    assert np.abs(words - code.scale * step / np.linalg.norm(step)).max() < 1
