"""The laws of draws against exact fractions, also for populations where log-factorials fail."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.numerics.draws import binomial_tail, deviance, first_above, tail


def exact_tail(least: int, marked: int, drawn: int, population: int) -> Fraction:
    ways = sum(
        math.comb(marked, k) * math.comb(population - marked, drawn - k)
        for k in range(max(0, least), min(marked, drawn) + 1)
    )
    return Fraction(ways, math.comb(population, drawn))


@given(population=st.integers(1, 250), data=st.data())
def test_every_tail_has_nearly_all_of_its_digits(population: int, data: st.DataObject) -> None:
    marked = data.draw(st.integers(0, population))
    drawn = data.draw(st.integers(1, population))
    least = data.draw(st.integers(-1, drawn + 1))
    exact = float(exact_tail(least, marked, drawn, population))
    assert tail(least, marked, drawn, population) == pytest.approx(exact, rel=1e-11, abs=1e-14)


@pytest.mark.parametrize("population", [10**6, 10**12, 10**15, 2**53])
@pytest.mark.parametrize("fraction", [1e-3, 0.1, 0.49])
@pytest.mark.parametrize("drawn", [10, 60, 400])
def test_a_large_population_costs_no_digits(population: int, fraction: float, drawn: int) -> None:
    """Differences of log-factorials are wrong by 0.4% at 10^12, and by a factor at 10^15."""
    marked = math.floor(fraction * population)
    mean = drawn * fraction
    for least in {1, math.ceil(mean + 1), math.ceil(mean + 4 * math.sqrt(mean) + 2)}:
        exact = float(exact_tail(least, marked, drawn, population))
        assert tail(least, marked, drawn, population) == pytest.approx(exact, rel=1e-11)


@given(population=st.integers(2, 300), accepted=st.floats(1e-12, 1), data=st.data())
def test_the_first_tail_above_a_probability_is_found(
    population: int, accepted: float, data: st.DataObject
) -> None:
    """Whether a bound decides it or a sum: trying one by one finds the same."""
    marked = data.draw(st.integers(0, population))
    counts = st.tuples(st.integers(0, population + 1), st.integers(1, population))
    asked = data.draw(st.lists(counts, min_size=1, max_size=20))
    tails = [tail(least, marked, drawn, population) for least, drawn in asked]
    expected = next((place for place, value in enumerate(tails) if value > accepted), None)
    least, drawn = np.asarray(asked, np.float64).T
    assert first_above(accepted, least, marked, drawn, population) == expected


@given(draws=st.integers(1, 120), share=st.integers(0, 256), data=st.data())
def test_the_binomial_tail(draws: int, share: int, data: st.DataObject) -> None:
    least, probability = data.draw(st.integers(-1, draws + 1)), share / 256
    p = Fraction(share, 256)
    exact = sum(
        math.comb(draws, k) * p**k * (1 - p) ** (draws - k) for k in range(max(0, least), draws + 1)
    )
    assert binomial_tail(least, draws, probability) == pytest.approx(
        float(exact), rel=1e-10, abs=1e-14
    )


def test_a_huge_population_is_as_good_as_putting_back() -> None:
    drawn = tail(30, 10**14, 100, 10**15)
    assert drawn == pytest.approx(binomial_tail(30, 100, 0.1), rel=1e-10)


@given(expected=st.floats(1e-3, 1e15), part=st.floats(-1e-3, 1e-3))
def test_the_deviance_of_close_numbers_keeps_its_digits(expected: float, part: float) -> None:
    count = expected * (1 + part)
    apart = Fraction(count) / Fraction(expected) - 1
    series = float(apart**2 / 2 - apart**3 / 6 + apart**4 / 12 - apart**5 / 20 + apart**6 / 30)
    found = float(deviance(np.asarray(count), np.asarray(expected)))
    assert found == pytest.approx(expected * series, rel=1e-9, abs=1e-300)
