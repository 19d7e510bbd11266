"""Rounds that begin with their first sum: keys came in the round before, for one use."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.secagg.errors import ParameterError, TooFewDevicesError
from rfa.secagg.in_process import Losses
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.sizes import traffic
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.terms import Terms
from tests.secagg.ahead_round import FIRST_SUM, NU, ahead_party
from tests.secagg.party import MALICIOUS, SMALL, contributions, party, same
from tests.secagg.test_fast import LAST, asked
from tests.secagg.test_protocol import check_sum, play
from tests.secagg.view import broken, determined
from tests.thorough import part_or_all

FURTHER = ["SumRequest", "Unmask"]


def check_ahead(count: int, terms: Terms, lost: Losses, queries: int = 1, **how: Any) -> int:
    """Play a round with drop-outs; how many sums came of it, none of which tells too much."""
    table = ahead_party(count, terms, queries=queries, lost=lost, **how)
    totals = play(table, queries)
    assert all(same(*pair) for pair in totals)
    known = determined(table.said, table.known, ahead=table.keys)
    known = sorted(known, key=lambda one: one.masked_sum)
    assert not broken(known, 3)
    for one in known[len(totals) :]:  # too few opened it, but enough shares: the very sum, no more
        assert table.opening.query_of(one.masked_sum) == len(totals)
        assert len(one.members) >= terms.parameters(count).survivors
    for one, (total, _) in zip(known, totals, strict=False):
        assert total is not None
        assert len(one.members) == total.sum.count
        check_sum(table.parts, one.members, total, table.opening.query_of(one.masked_sum))
    return len(totals)


@pytest.mark.parametrize("queries", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_without_losses_the_numbers_are_those_of_a_long_round_to_the_bit(
    queries: int, noise: float
) -> None:
    table = ahead_party(12, queries=queries, noise=noise)
    pairs = play(table, queries)
    assert len(pairs) == queries
    assert all(same(*pair) for pair in pairs)
    for device in table.devices:
        assert asked(table, device) == ["OpenFirstSum", "Unmask", *FURTHER * (queries - 1)]


def test_each_round_may_ask_for_the_keys_of_the_next() -> None:
    table = ahead_party(10)
    ask = table.oracle(ask_ahead=True)
    ask(np.zeros(3), NU)
    fresh = ask.server.keys_ahead
    assert fresh.keys() == table.keys.keys()
    once = {key for keys in table.keys.values() for key in keys.all_keys}
    again = {key for keys in fresh.values() for key in keys.all_keys}
    assert not once & again


@pytest.mark.parametrize("queries", [1, 2])
def test_a_loss_at_the_first_sum_takes_a_second_roster(queries: int) -> None:
    table = ahead_party(12, queries=queries, lost={5: FIRST_SUM})
    pairs = play(table, queries)
    assert len(pairs) == queries
    assert all(same(*pair) for pair in pairs)
    assert asked(table, max(table.devices)) == ["OpenFirstSum", "Roster", *FURTHER * queries]
    known = determined(table.said, table.known, ahead=table.keys)
    assert {one.members for one in known} == {frozenset(table.devices) - {5}}


def test_devices_of_a_second_roster_send_their_keys_too() -> None:
    table = ahead_party(12, lost={5: FIRST_SUM})
    ask = table.oracle(ask_ahead=True)
    assert ask(np.zeros(3), NU).count == 11
    assert set(ask.server.keys_ahead) == set(table.devices) - {5}


def test_every_subset_of_five_at_every_moment() -> None:
    devices = sorted(contributions(5, 3))
    sums = 0
    for number in (0, 1, 2, 4, 5, 6, 7):
        for size in range(6):
            for gone in itertools.combinations(devices, size):
                lost = dict.fromkeys(gone, Moment.numbered(number))
                sums += check_ahead(5, SMALL, lost)
    assert sums > 10


@part_or_all("each", 7, 1)
def test_every_mix_of_moments_for_five(each: int) -> None:
    """Two queries: five devices are lost at any mix of moments."""
    devices = sorted(contributions(5, 3))
    moments = map(Moment.numbered, [1, 2, 5, 7, 8, 11, LAST])
    mixes = itertools.combinations_with_replacement(moments, 5)
    for when in itertools.islice(mixes, 0, None, each):
        check_ahead(5, SMALL, dict(zip(devices, when, strict=True)), queries=2)


def test_losses_at_the_first_sum_and_in_the_second_roster() -> None:
    wide = Terms(
        colluder_fraction=0.0,
        max_dropout_fraction=0.3,
        min_honest_fraction=0.3,
        honest_per_query=0,
    )
    first, *others = sorted(contributions(7, 3))
    sums: list[int] = []
    for other, number in itertools.product(others, (4, 8, 9, 10, 11, 13, LAST)):
        lost = {first: FIRST_SUM, other: Moment.numbered(number)}
        sums.append(check_ahead(7, wide, lost, queries=2))
    assert set(sums) == {1, 2}


@pytest.mark.parametrize("terms", [SMALL, Terms(honest_per_query=0)], ids=["small", "default"])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_random_drop_outs_of_thirty(terms: Terms, data: st.DataObject) -> None:
    devices = sorted(contributions(30, 3))
    gone = data.draw(st.lists(st.sampled_from(devices), unique=True, max_size=12))
    lost = {device: Moment.numbered(data.draw(st.integers(0, 19))) for device in gone}
    check_ahead(30, terms, lost, queries=3)


def test_too_many_losses_at_the_first_sum_end_the_round() -> None:
    devices = sorted(contributions(10, 3))
    table = ahead_party(10, lost=dict.fromkeys(devices[:4], FIRST_SUM))
    ask = table.oracle()
    with pytest.raises(TooFewDevicesError, match="6 of 10 devices answered the first sum: 4 of 10"):
        ask(np.zeros(3), NU)
    assert not ask.server.opened
    assert not determined(table.said, table.known, ahead=table.keys)


def test_a_first_input_that_comes_too_late_stays_hidden() -> None:
    table = ahead_party(8)
    late = min(table.devices)

    def losing(outbox: Any):
        for device, reply in table.carry(outbox):
            if device != late or type(decode(reply)).__name__ != "FirstInput":
                yield device, reply

    ask = table.oracle()
    ask._exchange = losing  # pyright: ignore[reportPrivateUsage]
    assert ask(np.zeros(3), NU).count == 7
    known = determined(table.said, table.known, ahead=table.keys)
    assert [one.members for one in known] == [frozenset(table.devices) - {late}]


@pytest.mark.parametrize(("terms", "how"), [(SMALL, {"fast": False}), (MALICIOUS, {"fast": True})])
def test_long_rounds_and_a_malicious_server_have_no_keys_ahead(
    terms: Terms, how: dict[str, Any]
) -> None:
    table = party(10, terms, **how)
    ask = SecureOracle(table.opening, terms, table.parts, table.carry, table.known, ask_ahead=True)
    ask(np.zeros(3), NU)
    assert not ask.server.keys_ahead
    with pytest.raises(ParameterError, match="if it is fast, and the server is semi-honest"):
        SecureOracle(table.opening, terms, [], table.carry, table.known, keys_ahead={})


def test_keys_are_asked_for_with_the_last_sum_alone() -> None:
    table = party(10, queries=3, fast=True)
    ask = SecureOracle(table.opening, table.terms, table.parts, table.carry, ask_ahead=True)
    for step in range(3):
        assert not ask.server.keys_ahead
        ask(np.full(3, float(step)), NU)
    assert len(ask.server.keys_ahead) == 10


def test_a_device_that_is_lost_when_the_sum_is_opened_has_sent_no_keys() -> None:
    gone = sorted(contributions(10, 3))[0]
    table = party(10, fast=True, lost={gone: Moment(0, Stage.UNMASK)})
    ask = SecureOracle(table.opening, table.terms, table.parts, table.carry, ask_ahead=True)
    ask(np.zeros(3), NU)
    assert set(ask.server.keys_ahead) == set(table.devices) - {gone}


@pytest.mark.parametrize("queries", [1, 3])
def test_bytes_are_those_that_are_planned_with(queries: int) -> None:
    table = ahead_party(10, queries=queries)
    ask = table.oracle(ask_ahead=True)
    for step in range(queries):
        ask(np.full(3, float(step)), NU)
    wanted = traffic(
        ask.server.parameters, queries=queries, dim=3, metrics=1, fast=True, ahead=True
    )
    for device in table.devices:
        said = [(asked, reply or b"") for name, asked, reply in table.said if name == device]
        down, up = (sum(map(len, side)) for side in zip(*said, strict=True))
        assert (down, up, len(said)) == (wanted.down, wanted.up, wanted.exchanges)
