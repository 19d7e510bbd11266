"""Budgets, charges of devices, and the noise that a budget asks for."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rfa.errors import InvalidValueError
from rfa.privacy import Budget, Charges, NoisySum, epsilon_of, multiplier_for, rho_of

devices = st.integers(0, 2**64 - 1)
charges = st.floats(0, 10)


@given(queries=st.integers(1, 3000), epsilon=st.floats(0.1, 50), data=st.data())
@settings(max_examples=60)
def test_the_noise_of_a_budget_is_the_least_and_is_never_refused(
    queries: int, epsilon: float, data: st.DataObject
) -> None:
    cohort = data.draw(st.integers(3, 100_000))
    honest = data.draw(st.integers(max(1, cohort // 2), cohort))
    dim = data.draw(st.integers(1, 10**7))
    sent = {"mass": data.draw(st.booleans()), "near": data.draw(st.booleans())}
    budget = Budget(epsilon, data.draw(st.sampled_from([1e-8, 1e-5, 1e-3])))
    try:
        z = multiplier_for(budget, queries=queries, cohort=cohort, honest=honest, dim=dim, **sent)
    except InvalidValueError:
        assume(False)
        return
    rho, spent = NoisySum(cohort, honest, z, dim, **sent).rho, 0.0
    for _ in range(queries):  # as a device adds them up
        assert spent + rho <= budget.rho
        spent += rho
    assert epsilon_of(spent, budget.delta) <= epsilon
    try:
        less = NoisySum(cohort, honest, z * (1 - 1e-6), dim, **sent)
    except InvalidValueError:
        return  # whole numbers hold no sum with less noise
    assert queries * less.rho > budget.rho * (1 - 1e-8)


@pytest.mark.parametrize(("queries", "effective"), [(100, 6.4), (300, 11.0)])
def test_an_epsilon_of_8_over_100_rounds(queries: int, effective: float) -> None:
    """With one sum a round, and with three; mass, near and rounding take a little more."""
    z = multiplier_for(Budget(8), queries=queries, cohort=1000, honest=700, dim=1)
    assert 1 / math.sqrt(2 * NoisySum(1000, 700, z, 1).rho) == pytest.approx(effective, abs=0.05)
    assert z == pytest.approx(effective / 0.944, rel=0.01)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"dim": 10**12}, "epsilon=1 cannot be had for 10 sums .* Ask more devices per round"),
        ({"queries": 10**9}, "cannot be had for 1000000000 sums"),
        ({"cohort": 3, "honest": 3, "queries": 10**6}, "with all the noise that fits it is"),
        ({"queries": 0}, "queries must be a whole number from 1 on"),
        ({"honest": 101}, "honest=101 is more than the cohort"),
        ({"honest": 0}, "honest must be"),
        ({"dim": 0}, "dim must be"),
        ({"cohort": 1 << 25, "honest": 1 << 24}, "fewer devices per sum"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_would_help(
    values: dict[str, Any], what: str
) -> None:
    usual: dict[str, Any] = {"queries": 10, "cohort": 100, "honest": 70, "dim": 100}
    with pytest.raises(InvalidValueError, match=what):
        multiplier_for(Budget(1.0), **{**usual, **values})


def test_a_large_budget_takes_the_least_noise_that_whole_numbers_hold() -> None:
    z = multiplier_for(Budget(1e9), queries=1, cohort=1000, honest=700, dim=10)
    with pytest.raises(InvalidValueError, match="too little"):
        NoisySum(1000, 700, z * (1 - 1e-9), 10)


def test_many_devices_have_less_digits_for_their_noise_and_still_a_budget() -> None:
    z = multiplier_for(Budget(2.0), queries=50, cohort=1 << 20, honest=1 << 19, dim=10**6)
    assert NoisySum(1 << 20, 1 << 19, z, 10**6).std < 2048


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (1, 0), (1, 1), ("8", 0.1)])
def test_what_is_no_budget_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidValueError, match="must be"):
        Budget(epsilon, delta)


@given(rounds=st.lists(st.tuples(st.sets(devices, max_size=6), charges), max_size=8))
def test_each_device_is_charged_for_its_rounds_alone(
    rounds: list[tuple[set[int], float]],
) -> None:
    spent, expected = Charges(), dict[int, float]()
    for cohort, rho in rounds:
        before = spent
        spent = spent.after(cohort, rho)
        assert all(before.of(i) == expected.get(i, 0.0) for i in cohort), "the old ones stay"
        expected.update({i: expected.get(i, 0.0) + rho for i in cohort})
    assert dict(spent.charges) == expected
    assert spent.largest == max(expected.values(), default=0.0)
    assert spent.epsilon(1e-6) == epsilon_of(spent.largest, 1e-6)


@given(st.dictionaries(devices, charges, max_size=10))
def test_charges_survive_a_checkpoint_to_the_bit(expected: dict[int, float]) -> None:
    spent = Charges(tuple(expected.items()))
    assert Charges.unpack(json.loads(json.dumps(spent.pack()))) == spent
    assert pickle.loads(pickle.dumps(spent)) == spent  # noqa: S301
    assert hash(spent) == hash(Charges(tuple(reversed(expected.items()))))


def test_unequal_participation_stops_the_device_that_spent_most() -> None:
    budget = Budget(2.0)
    rho = budget.rho / 3
    spent = Charges().after([1, 2], rho).after([1], rho).after([1, 3], rho * (1 - 1e-12))
    assert spent.overspent([1, 2, 3], rho, budget) == (1,)
    assert spent.overspent([2, 3, 4], rho, budget) == ()
    assert spent.overspent([4], 4 * rho, budget) == (4,)
    assert spent.epsilon(budget.delta) == pytest.approx(2.0, abs=1e-6)
    assert spent.of(99) == 0.0


@pytest.mark.parametrize(
    ("packed", "what"),
    [
        ({}, "lists of devices and of rho"),
        ({"devices": [1], "rho": 3}, "lists of devices and of rho"),
        ({"devices": [1, 2], "rho": [0.1]}, "2 devices and 1 charges"),
        ({"devices": [1, 1], "rho": [0.1, 0.2]}, "name a device twice"),
        ({"devices": [1], "rho": [-0.1]}, "the charge of device 1 must be"),
        ({"devices": [1], "rho": [math.nan]}, "the charge of device 1 must be"),
        ({"devices": ["1"], "rho": [0.1]}, "device must be a whole number"),
    ],
)
def test_what_is_no_checkpoint_of_charges_is_refused(
    packed: dict[str, list[float]], what: str
) -> None:
    with pytest.raises(InvalidValueError, match=what):
        Charges.unpack(packed)


def test_a_charge_without_meaning_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="rho must be"):
        Charges().after([1], -1.0)
    with pytest.raises(InvalidValueError, match="name each device once"):
        Charges().after([1, 1], 0.1)


def test_a_budget_is_what_its_charge_says() -> None:
    assert Budget(8.0).rho == rho_of(8.0, 1e-5)
