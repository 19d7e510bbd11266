"""What a charge means as epsilon: against grids, the closed form, and the exact Gaussian."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.errors import InvalidValueError
from rfa.privacy import epsilon_of, rho_of
from tests.privacy.exact import gaussian_delta, gaussian_epsilon

charges = st.floats(1e-8, 1e3)
deltas = st.floats(1e-15, 0.4)


def on_a_grid(rho: float, delta: float) -> float:
    """Proposition 12 of Canonne, Kamath and Steinke (2020), by trying 200,000 orders."""
    t = np.exp(np.linspace(-20, 30, 200_001))
    a = 1 + t
    values = a * rho + np.log(1 / (a * delta)) / t + np.log1p(-1 / a)
    return max(0.0, float(values.min()))


@given(rho=charges, delta=deltas)
def test_epsilon_is_the_least_over_all_orders(rho: float, delta: float) -> None:
    found, tried = epsilon_of(rho, delta), on_a_grid(rho, delta)
    assert found == pytest.approx(tried, rel=1e-6, abs=1e-9)
    assert found <= tried + 1e-9
    assert found <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@given(rho=charges, delta=deltas, more=st.floats(1.001, 10))
def test_epsilon_grows_with_the_charge_and_falls_with_delta(
    rho: float, delta: float, more: float
) -> None:
    assert epsilon_of(more * rho, delta) >= epsilon_of(rho, delta)
    assert epsilon_of(rho, min(0.5, more * delta)) <= epsilon_of(rho, delta)


@given(epsilon=st.floats(1e-3, 100), delta=deltas)
def test_rho_is_the_largest_charge_of_an_epsilon(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon, delta)
    assert epsilon_of(rho, delta) <= epsilon
    assert epsilon_of(rho * (1 + 1e-9), delta) > epsilon


@given(rho=st.floats(1e-4, 20), delta=st.floats(1e-12, 1e-2))
def test_it_is_above_what_gaussian_noise_exactly_costs_and_not_by_much(
    rho: float, delta: float
) -> None:
    """A wrong sign or a forgotten term of the conversion would be below, or far above."""
    mu = math.sqrt(2 * rho)
    assert gaussian_delta(epsilon_of(rho, delta), mu) <= delta * (1 + 1e-9)
    exact = gaussian_epsilon(mu, delta)
    assert epsilon_of(rho, delta) <= 1.35 * exact + 0.05


@pytest.mark.parametrize(
    ("rho", "delta", "epsilon"),
    [
        (0.5, 1e-5, 4.728387),
        (0.1, 1e-6, 2.1419389),
        (2.0, 1e-5, 10.724824),
        (0.01, 1e-9, 0.81017447),
        (30.0, 1e-3, 56.836497),
        (0.0, 1e-5, 0.0),
    ],
)
def test_some_numbers_in_forty_digits(rho: float, delta: float, epsilon: float) -> None:
    """The same formula minimized with mpmath."""
    assert epsilon_of(rho, delta) == pytest.approx(epsilon, rel=1e-7)


@pytest.mark.parametrize("rho", [-1, math.nan, math.inf, "1", True])
def test_what_is_no_charge_is_refused(rho: float) -> None:
    with pytest.raises(InvalidValueError, match="rho must be a number from 0 on"):
        epsilon_of(rho, 1e-5)


@pytest.mark.parametrize("delta", [0, 1, 1.5, -1e-5, 1e-16, math.nan])
def test_what_is_no_delta_is_refused(delta: float) -> None:
    for ask in (lambda: epsilon_of(1.0, delta), lambda: rho_of(1.0, delta)):
        with pytest.raises(InvalidValueError, match="delta must be"):
            ask()
    with pytest.raises(InvalidValueError, match="epsilon must be a positive number"):
        rho_of(0, 1e-5)
