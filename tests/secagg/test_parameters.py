"""Parameters: what is derived is safe, and what is not safe is refused with its reason."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.secagg.device.profile import Profile
from rfa.secagg.errors import ParameterError, TooManyNeighborsError
from rfa.secagg.oracle import open_round
from rfa.secagg.security import odds
from rfa.secagg.security.parameters import (
    LARGEST_COHORT,
    MAX_NEIGHBORS,
    Parameters,
    ServerModel,
    derive,
)
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms

SEMI_HONEST, MALICIOUS = ServerModel.SEMI_HONEST, ServerModel.MALICIOUS


@pytest.mark.parametrize(
    ("cohort", "marked", "expected"), [(1000, 100, (52, 28)), (10_000, 1000, (60, 32))]
)
def test_large_cohorts_need_few_neighbors(
    cohort: int, marked: int, expected: tuple[int, int]
) -> None:
    found = derive(cohort, num_colluders=marked, num_dropouts=marked)
    assert (found.degree, found.threshold) == expected
    assert found.statistical
    assert odds.exposed(cohort, marked, marked, *expected) <= 2.0**-40
    assert odds.blocked(cohort, marked, *expected) <= 2.0**-30
    certain = derive(
        cohort,
        num_colluders=marked,
        num_dropouts=marked,
        failure_bits=None,
        max_neighbors=3 * marked,
    )
    assert certain.degree >= 2 * marked + 1 > found.degree


def is_safe(found: Parameters) -> bool:
    """The inequalities of certain parameters, as the design states them."""
    n, c, f, k, t = (
        found.cohort,
        found.num_colluders,
        found.num_dropouts,
        found.degree,
        found.threshold,
    )
    semi_honest = k > c + f and t > c and k - f >= t and n - f - c >= found.min_honest >= 3
    shape = k == n - 1 or (k < n - 1 and k % 2 == 0)
    malicious = 2 * t > k + c and found.quorum <= n - f and 2 * found.quorum - n > c
    return semi_honest and shape and (found.server_model == SEMI_HONEST or malicious)


@given(
    st.integers(2, 80),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from([None, 3, 4, 10]),
    st.sampled_from(ServerModel),
)
def test_certain_parameters_are_safe_or_refused(
    n: int, c: int, f: int, h: int | None, server_model: ServerModel
) -> None:
    enough = n > (c + 2 * f + 1 if server_model == MALICIOUS else max(2, c + 1) + f)
    wanted = max(3, n // 4) if h is None else h
    try:
        found = derive(n, num_colluders=c, num_dropouts=f, min_honest=h, server_model=server_model)
    except ParameterError as error:
        assert not (enough and n - f - c >= wanted and n > 2)
        told = str(error)
        assert "ask more devices" in told or "or expect fewer that collude or drop out" in told
    else:
        assert is_safe(found)
        assert (found.cohort, found.num_colluders, found.num_dropouts) == (n, c, f)
        assert (found.min_honest, found.server_model, found.statistical) == (
            wanted,
            server_model,
            False,
        )
        assert found.survivors == n - f


@given(st.integers(2, 60), st.integers(0, 12), st.integers(0, 12), st.sampled_from(ServerModel))
def test_derived_parameters_are_the_cheapest(
    n: int, c: int, f: int, server_model: ServerModel
) -> None:
    """No smaller k is accepted with any t, and with this k no smaller t."""
    try:
        found = derive(n, num_colluders=c, num_dropouts=f, min_honest=3, server_model=server_model)
    except ParameterError:
        return
    tried = [(k, t) for k in range(2, found.degree + 1) for t in range(2, k + 1)]
    for k, t in tried:
        if (k, t) < (found.degree, found.threshold):
            with pytest.raises(ParameterError):
                Parameters(n, c, f, 3, k, t, server_model)


@given(
    st.tuples(
        st.integers(2, 12),
        st.integers(0, 4),
        st.integers(0, 4),
        st.integers(2, 4),
        st.integers(2, 12),
        st.integers(2, 12),
        st.sampled_from(ServerModel),
    )
)
def test_exactly_the_safe_parameters_are_accepted(
    values: tuple[int, int, int, int, int, int, ServerModel],
) -> None:
    unchecked = object.__new__(Parameters)
    for name, value in zip(Parameters.__dataclass_fields__, (*values, False), strict=True):
        object.__setattr__(unchecked, name, value)
    if is_safe(unchecked):
        assert Parameters(*values) == unchecked
    else:
        with pytest.raises(ParameterError):
            Parameters(*values)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((LARGEST_COHORT + 1, 0, 0, 3, 2, 2), "at most 1048576 devices can be in it: ask fewer"),
        ((2**16, 9000, 9000, 3, 18002, 9001), "a device has at most 16384 neighbors"),
        ((10, 3, 4, 4, 8, 4), "3 honest ones are sure to be in it, and 4 must be: ask 11"),
        ((10, 1, 1, 3, 5, 3), "k must be even, or n - 1"),
        ((10, 1, 1, 3, 10, 3), "k must be even, or n - 1"),
        (
            (1000, 100, 100, 3, 52, 28, MALICIOUS, True),
            "a malicious server needs certain parameters",
        ),
        ((10, 1, 1, 3, 4, 5), "t must be at most k"),
        ((10, 2, 1, 3, 8, 2), "t must exceed c"),
        ((10, 1, 3, 3, 6, 4), "k - f must be at least t"),
        ((10, 1, 1, 3, 8, 4, MALICIOUS), "2 t must exceed k + c"),
        (
            (1000, 100, 100, 3, 52, 27, SEMI_HONEST, True),
            "a device could be exposed with probability",
        ),
        (
            (1000, 100, 100, 3, 20, 11, SEMI_HONEST, True),
            "a device could be exposed with probability",
        ),
        (
            (1000, 100, 100, 3, 52, 45, SEMI_HONEST, True),
            "drop-outs could block it with probability",
        ),
    ],
)
def test_unsafe_parameters_are_refused_with_their_reason(
    values: tuple[int, int, int, int, int, int], reason: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        Parameters(*values)
    assert f"is not safe: {reason}" in str(caught.value)
    n, c, f, *_ = values
    said = f"a sum over {n} devices, of which {c} may collude and {f} drop out, is not safe: "
    assert str(caught.value).startswith(said)
    assert "ask " in str(caught.value) or "rfa.secagg.derive gives" in str(caught.value)


def test_too_few_devices_are_told_how_many_it_takes() -> None:
    """Three devices: who asks for them is told in words what is missing, and what to do."""
    with pytest.raises(ParameterError) as caught:
        Terms().parameters(3)
    told = str(caught.value)
    assert "a sum over 3 devices, of which 1 may collude and 0 drop out, is not safe" in told
    assert "2 honest ones are sure to be in it, and 3 must be" in told
    assert told.endswith("these terms take 4 devices or more")


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ((1, 0, 0, 3, 2, 2), "cohort"),
        ((9, -1, 0, 3, 2, 2), "colluders"),
        ((9, 0, -1, 3, 2, 2), "dropouts"),
        ((9, 0, 0, 2, 2, 2), "honest"),
        ((9, 0, 0, 3, 0, 2), "degree"),
        ((9, 0, 0, 3, 2, 1), "threshold"),
        ((9, 0.5, 0, 3, 2, 2), "colluders"),
        ((9, 0, True, 3, 2, 2), "dropouts"),
    ],
)
def test_counts_are_whole_numbers_and_large_enough(
    values: tuple[int, int, int, int, int, int], name: str
) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be a whole number"):
        Parameters(*values)


@pytest.mark.parametrize("failure_bits", [None, 40])
@pytest.mark.parametrize("server_model", ServerModel)
def test_terms_give_safe_parameters_from_some_size_on(
    server_model: ServerModel, failure_bits: int | None
) -> None:
    terms = Terms(server_model=server_model, failure_bits=failure_bits)
    given_for: list[int] = []
    for n in range(2, 61):
        try:
            found = terms.parameters(n)
        except ParameterError as error:
            least = terms.smallest()
            assert f"these terms take {least} devices or more" in str(error)  # noqa: PT017
            continue
        given_for.append(n)
        assert is_safe(found)
        assert n * 0.1 <= found.num_colluders < n * 0.1 + 1
        assert n * 0.2 - 1 < found.num_dropouts <= n * 0.2
        assert found.min_honest == max(3, n // 4)
    assert given_for == list(range(given_for[0], 61))
    assert given_for[0] <= 8


@pytest.mark.parametrize("cohort", [100, 153, 154, 400, 5000])
def test_terms_take_parameters_by_odds_where_they_are_cheaper(cohort: int) -> None:
    certain = Terms(failure_bits=None, max_neighbors=2000).parameters(cohort)
    default = Terms().parameters(cohort)
    assert not certain.statistical
    assert default.statistical == (cohort > 153)
    assert default == certain if cohort <= 153 else default.degree < certain.degree
    strict = Terms(failure_bits=80).parameters(cohort)
    assert default.degree <= strict.degree <= certain.degree
    assert strict.holds_with(80)
    assert default.holds_with(40)
    assert default.holds_with(None) == (cohort <= 153)
    assert certain.holds_with(None)


def test_terms_ask_for_no_more_neighbors_than_devices_accept_by_default() -> None:
    """A server says so before a round, and not each device in it."""
    assert Policy().max_neighbors == Terms().max_neighbors == MAX_NEIGHBORS
    terms = Terms(0.1, 0.2, server_model=MALICIOUS)
    assert terms.parameters(1000).degree == 502
    with pytest.raises(ParameterError, match=r"k=602 neighbors .* at most 512: .* max_neighbors"):
        terms.parameters(1200)
    more = Terms(0.1, 0.2, server_model=MALICIOUS, max_neighbors=700).parameters(1200)
    assert more.degree == 602
    with pytest.raises(TooManyNeighborsError, match=r"602 neighbors: .* at most 512"):
        Policy().check_parameters(more, 1)
    Policy(max_neighbors=602).settled(0).check_parameters(more, 1)


@pytest.mark.parametrize("count", [1, 0, 2.5, "8", None])
def test_the_cap_on_neighbors_is_a_count(count: Any) -> None:
    for make in (Terms, Policy):
        with pytest.raises(ValueError, match="max_neighbors must be a whole number from 2 on"):
            make(max_neighbors=count)


def test_a_malicious_server_gets_certain_parameters_only() -> None:
    terms = Terms(0.1, 0.1, server_model=MALICIOUS)
    assert not terms.parameters(1000).statistical
    assert terms.parameters(1000) == Terms(
        0.1, 0.1, server_model=MALICIOUS, failure_bits=None
    ).parameters(1000)


@pytest.mark.parametrize("bits", [40, 60])
def test_a_second_roster_holds_with_the_odds_of_its_terms(bits: int) -> None:
    terms = Terms(failure_bits=bits)
    first = terms.parameters(400)
    assert first.statistical
    for lost in (1, first.num_dropouts // 2, first.num_dropouts):
        second = terms.without(first, lost)
        assert second.holds_with(bits)
        assert second.survivors == first.survivors
        assert second.honest == first.honest
    with pytest.raises(ParameterError, match="81 of 400 devices are lost"):
        terms.without(first, first.num_dropouts + 1)


@pytest.mark.parametrize("bits", [39, 0, -1, 40.5, "40", True])
def test_failures_more_probable_than_2_to_the_minus_40_are_not_offered(bits: Any) -> None:
    for make in (Terms, Policy):
        with pytest.raises(ParameterError, match="failure_bits must be a whole number from 40 on"):
            make(failure_bits=bits)


@pytest.mark.parametrize("shares", [(0.5, 0.4, 0.2), (-0.1, 0, 0), (0, math.nan, 0), (0, 0, 1.1)])
def test_terms_are_shares(shares: tuple[float, float, float]) -> None:
    with pytest.raises(ParameterError):
        Terms(*shares)


def tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """The chance of at least so many marked among those drawn, exactly."""
    ways = sum(
        math.comb(marked, hits) * math.comb(population - marked, drawn - hits)
        for hits in range(least, drawn + 1)
    )
    return Fraction(ways, math.comb(population, drawn))


@given(st.integers(8, 300), st.data())
def test_odds_are_the_hypergeometric_ones(n: int, data: st.DataObject) -> None:
    c, f = data.draw(st.integers(0, n // 3)), data.draw(st.integers(0, n // 3))
    k = 2 * data.draw(st.integers(1, (n - 2) // 2))
    t = data.draw(st.integers(1, k))
    opened, split = tail(n - 1, c, k, t), tail(n, c + f, k // 2, k // 2)
    exact = min(1.0, float(n * (opened + split)))
    assert odds.exposed(n, c, f, k, t) == pytest.approx(exact, rel=1e-9, abs=1e-300)
    stuck = min(1.0, float(n * tail(n - 1, f, k, k - t + 1)))
    assert odds.blocked(n, f, k, t) == pytest.approx(stuck, rel=1e-9, abs=1e-300)


def test_odds_are_those_of_random_orders() -> None:
    """Devices with t marked neighbors, counted in 20,000 orders, within 5 standard errors."""
    n, marked, k, t, trials = 40, 8, 12, 7, 20_000
    rng = np.random.default_rng(5)
    orders = rng.permuted(np.tile(np.arange(n) < marked, (trials, 1)), axis=1).astype(int)
    around = sum(np.roll(orders, shift, axis=1) for shift in range(-k // 2, k // 2 + 1)) - orders
    exposed = ((around >= t) & (orders == 0)).sum(axis=1)
    found = exposed.mean() * n / (n - marked)
    error = exposed.std() / math.sqrt(trials) * n / (n - marked)
    exact = n * float(tail(n - 1, marked, k, t))
    assert abs(found - exact) <= 5 * error
    assert odds.blocked(n, marked, k, k - t + 1) == pytest.approx(exact)
    assert (exposed > 0).mean() <= exact


@pytest.mark.parametrize("server_model", ["malicious", 7, None])
def test_the_server_model_is_one_of_two(server_model: Any) -> None:
    with pytest.raises(ParameterError, match=r"server_model must be ServerModel\.SEMI_HONEST or"):
        Terms(server_model=server_model)
    with pytest.raises(ValueError, match=r"server_model must be ServerModel\.SEMI_HONEST or"):
        Policy(server_model=server_model)


@pytest.mark.parametrize("device", [-1, 1 << 64, 1.5, "a", None])
def test_the_number_of_a_device_fits_a_message(device: Any) -> None:
    with pytest.raises(ParameterError, match="the number of a device must be"):
        Profile(device)


@pytest.mark.parametrize(
    "values",
    [
        {"number": 0},
        {"number": "a"},
        {"queries": 1.5},
        {"dim": 1 << 40},
        {"max_share": 2},
        {"max_share": -1},
        {"statistics": {"median"}},
        {"basis": bytes(31)},
        {"basis": "0" * 32},
    ],
)
def test_rounds_without_a_meaning_are_refused(values: dict[str, Any]) -> None:
    how: dict[str, Any] = {"number": 1, "queries": 1, "dim": 3, "max_share": 0.0} | values
    with pytest.raises(ParameterError):
        open_round(how.pop("number"), Terms(), **how)


@pytest.mark.parametrize("flag", ["yes", "no", 1, None])
def test_equal_weights_are_true_or_false(flag: Any) -> None:
    """A text such as "no" would else be taken for the opposite, or for an error of another kind."""
    with pytest.raises(ParameterError, match="equal_weights must be True or False, not"):
        open_round(1, Terms(), queries=1, dim=3, equal_weights=flag)
    with pytest.raises(ValueError, match="any_point must be True or False, not"):
        Policy(any_point=flag)
