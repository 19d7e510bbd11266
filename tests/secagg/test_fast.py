"""Fast rounds: the first sum with the roster, over all of it; or over those who are left."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.secagg.errors import SurvivorsChangedError, TooFewDevicesError
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.security.terms import Terms
from tests.secagg.party import MALICIOUS, SMALL, Party, contributions, equals, party, same
from tests.secagg.test_protocol import NU, check_round, play
from tests.secagg.view import broken, determined
from tests.thorough import part_or_all

MODELS = pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])
LAST = 99


def asked(table: Party, device: int) -> list[str]:
    """What a device was asked, in order."""
    return [type(decode(request)).__name__ for one, request, _ in table.said if one == device]


@MODELS
@pytest.mark.parametrize("queries", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_without_losses_a_fast_round_gives_the_numbers_of_a_long_one_to_the_bit(
    terms: Terms, queries: int, noise: float
) -> None:
    how: dict[str, Any] = {"queries": queries, "noise": noise}
    count = equals(12, 3) if noise else contributions(12, 3)
    fast, slow = (play(party(count, terms, fast=fast, **how), queries) for fast in (True, False))
    assert len(fast) == len(slow) == queries
    for (ours, ideal), (long, _) in zip(fast, slow, strict=True):
        assert same(ours, ideal)
        assert same(ours, long)


@MODELS
@pytest.mark.parametrize("queries", [1, 2, 3])
def test_a_device_answers_three_requests_and_two_or_three_for_each_further_query(
    terms: Terms, queries: int
) -> None:
    table = party(8, terms, queries=queries, fast=True)
    assert len(play(table, queries)) == queries
    further = ["SumRequest", "SurvivorList", "Unmask"]
    further = [name for name in further if name != "SurvivorList" or terms is MALICIOUS]
    for device in table.devices:
        assert asked(table, device) == ["OpenRound", "FirstSum", "Unmask", *further * (queries - 1)]


@MODELS
def test_a_loss_at_the_first_sum_takes_a_second_roster_and_the_longer_way(terms: Terms) -> None:
    table = party(12, terms, queries=2, fast=True, lost={5: Moment(0, Stage.ROSTER)})
    pairs = play(table, 2)
    assert len(pairs) == 2
    assert all(same(*pair) for pair in pairs)
    further = ["SumRequest", "SurvivorList", "Unmask"]
    further = [name for name in further if name != "SurvivorList" or terms is MALICIOUS]
    begin = ["OpenRound", "FirstSum", "Roster"]
    assert asked(table, max(table.devices)) == begin + 2 * further
    known = determined(table.said, table.known)
    assert [one.masked_sum for one in known] == [2, 3]
    assert {one.members for one in known} == {frozenset(table.devices) - {5}}


@MODELS
def test_a_second_roster_has_the_least_sum_of_the_first(terms: Terms) -> None:
    """What is lost at the first sum and after it counts together."""
    whole = terms.parameters(20)
    devices = sorted(contributions(20, 3))
    table = party(20, terms, fast=True, lost=dict.fromkeys(devices[:2], Moment(0, Stage.ROSTER)))
    ask = table.oracle()
    assert ask(np.zeros(3), NU).count == 18
    left = ask.server.parameters
    assert (left.cohort, left.num_dropouts) == (18, whole.num_dropouts - 2)
    assert (left.survivors, left.num_colluders) == (whole.survivors, whole.num_colluders)
    assert left.min_honest == whole.min_honest


@MODELS
def test_every_subset_of_five_at_every_moment(terms: Terms) -> None:
    devices = sorted(contributions(5, 3))
    sums = 0
    for number in (0, 1, 2, 4, 5, 6, 7):
        for size in range(6):
            for gone in itertools.combinations(devices, size):
                lost = dict.fromkeys(gone, Moment.numbered(number))
                sums += check_round(5, terms, lost, fast=True)
    assert sums > 10


@MODELS
def test_losses_at_the_first_sum_and_in_the_second_roster(terms: Terms) -> None:
    """One of seven is lost at the first sum, and any other one at any moment after it."""
    wide = Terms(
        colluder_fraction=0.0,
        max_dropout_fraction=0.3,
        min_honest_fraction=0.3,
        server_model=terms.server_model,
        honest_per_query=0,
    )
    first, *others = sorted(contributions(7, 3))
    sums: list[int] = []
    for other, number in itertools.product(others, (4, 8, 9, 10, 11, 13, LAST)):
        lost = {first: Moment(0, Stage.ROSTER), other: Moment.numbered(number)}
        sums.append(check_round(7, wide, lost, queries=2, fast=True))
    assert set(sums) == {1, 2}


@pytest.mark.usefixtures("checked_once")
@MODELS
@part_or_all("each", 7, 1)
def test_every_mix_of_moments_for_five(terms: Terms, each: int) -> None:
    """Two queries: five devices are lost at any mix of moments."""
    devices = sorted(contributions(5, 3))
    moments = map(Moment.numbered, [0, 1, 2, 5, 7, 8, 11, LAST])
    mixes = itertools.combinations_with_replacement(moments, 5)
    for when in itertools.islice(mixes, 0, None, each):
        check_round(5, terms, dict(zip(devices, when, strict=True)), queries=2, fast=True)


@pytest.mark.parametrize(
    "terms",
    [SMALL, MALICIOUS, Terms(honest_per_query=0)],
    ids=["semi_honest", "malicious", "default"],
)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_random_drop_outs_of_thirty(terms: Terms, data: st.DataObject) -> None:
    devices = sorted(contributions(30, 3))
    gone = data.draw(st.lists(st.sampled_from(devices), unique=True, max_size=12))
    lost = {device: Moment.numbered(data.draw(st.integers(0, 19))) for device in gone}
    check_round(30, terms, lost, queries=3, fast=True)


def test_a_large_cohort_under_parameters_by_odds_is_formed_anew() -> None:
    devices = sorted(contributions(160, 3))
    lost = dict.fromkeys(devices[::20], Moment(0, Stage.ROSTER))
    assert Terms().parameters(160).statistical
    assert check_round(160, Terms(), lost, fast=True) == 1


@MODELS
def test_too_many_losses_at_the_first_sum_end_the_round(terms: Terms) -> None:
    devices = sorted(contributions(10, 3))
    lost = dict.fromkeys(devices[:4], Moment(0, Stage.ROSTER))
    table = party(10, terms, fast=True, lost=lost)
    with pytest.raises(TooFewDevicesError, match="6 of 10 devices answered the first sum: 4 of 10"):
        table.oracle()(np.zeros(3), NU)
    assert not determined(table.said, table.known)


def test_a_drop_out_between_queries_ends_a_fast_round_and_the_sum_before_stands() -> None:
    devices = sorted(contributions(10, 3))
    for moment in (Moment(0, Stage.UNMASK), Moment(1, Stage.SUM)):
        table = party(10, queries=3, fast=True, lost={devices[0]: moment})
        ask = table.oracle()
        assert ask(np.zeros(3), NU).count == 10
        with pytest.raises(SurvivorsChangedError):
            ask(np.ones(3), NU)


@MODELS
def test_a_first_input_that_comes_too_late_stays_hidden(terms: Terms) -> None:
    """The device answered, the server did not hear of it, and the others went on without it."""
    table = party(8, terms, fast=True)
    late = min(table.devices)
    said: list[str] = []

    def losing(outbox: Any):
        for device, reply in table.carry(outbox):
            said.append(type(decode(reply)).__name__)
            if device != late or said[-1] != "FirstInput":
                yield device, reply

    ask = table.oracle()
    ask._exchange = losing  # pyright: ignore[reportPrivateUsage]
    assert ask(np.zeros(3), NU).count == 7
    assert said.count("FirstInput") == 8
    known = determined(table.said, table.known)
    assert [one.members for one in known] == [frozenset(table.devices) - {late}]
    assert not broken(known, 3)
