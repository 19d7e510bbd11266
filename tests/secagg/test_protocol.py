"""Whole rounds: the sum over the survivors, integer for integer, or nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.oracle import OracleStopped
from rfa.secagg.encoding import Contribution, Encoding, Total
from rfa.secagg.errors import (
    BadShareError,
    ImplausibleSumError,
    OutOfStageError,
    ParameterError,
    SurvivorsChangedError,
    TooFewDevicesError,
)
from rfa.secagg.messages import Masked, Opened, decode, decode_as
from rfa.secagg.parameters import Terms, derive
from rfa.secagg.protocol import Losses, SecureOracle
from rfa.secagg.server import Outbox
from tests.secagg.party import LYING, SMALL, Party, contributions, exactly, party
from tests.secagg.view import broken, determined

NU = 1.5
TINY = Terms(colluders=0.0, dropouts=0.3, honest=0.3)


def outcome(ask: Callable[[], object]) -> str:
    """What became of a sum: nothing, or the name of what ended it."""
    try:
        ask()
    except (OracleStopped, ParameterError) as error:
        return type(error).__name__
    return ""


def play(at_table: Party, steps: int) -> list[tuple[Total | None, Total | None]]:
    """The totals of the protocol and of the ring, step by step, at a v that moves."""
    made: list[tuple[Total | None, Total | None]] = []
    dim = at_table.opening.dim
    try:
        secure = at_table.oracle()
    except (OracleStopped, ParameterError) as error:
        assert outcome(at_table.ring) == type(error).__name__
        return []
    ring = at_table.ring()
    assert ring.parameters == secure.server.parameters
    for step in range(steps):
        v = step * np.linspace(-1, 1, dim)
        ends = [outcome(lambda ask=ask: ask(v, NU)) for ask in (secure, ring)]
        assert ends[0] == ends[1]
        if ends[0]:
            break
        made.append((secure.last, ring.last))
    return made


def same(ours: Total | None, ideal: Total | None) -> bool:
    assert ours is not None
    assert ideal is not None
    scalars = ("mass", "weight", "near", "count", "squares")
    return (
        np.array_equal(ours.sum.push, ideal.sum.push)
        and all(getattr(ours.sum, name) == getattr(ideal.sum, name) for name in scalars)
        and ours.metrics == ideal.metrics
        and ours.mass == ideal.mass
    )


def check_round(count: int, terms: Terms, lost: Losses, steps: int = 1) -> int:
    """Play a round with drop-outs; how many sums came of it."""
    table = party(count, terms, steps=steps, lost=lost)
    totals = play(table, steps)
    assert all(same(*pair) for pair in totals)
    known = determined(table.said, table.known)
    assert len(known) == len(totals), "an aborted step reveals a sum"
    for one, (total, _) in zip(sorted(known, key=lambda one: one.turn), totals, strict=True):
        assert total is not None
        assert len(one.members) == total.sum.count
        check_sum(table.parts, one.members, total, one.turn)
    return len(totals)


def check_sum(
    parts: Mapping[int, Contribution | None], members: frozenset[int], total: Total, step: int
) -> None:
    """The total is the float64 sum over the survivors, up to rounding."""
    push, mass, dim = 0.0, 0.0, len(total.sum.push)
    v = np.float32(step * np.linspace(-1, 1, dim)).astype(np.float64)
    for device in members:
        part = parts[device]
        assert part is not None
        reach = part.update.astype(np.float64) - v
        beta = part.weight / max(NU, float(np.linalg.norm(reach)))
        push, mass = push + beta * reach, mass + NU * beta
    scale = Encoding(len(parts)).scale
    assert np.abs(total.sum.push - push).max() < len(members) / scale
    assert total.sum.mass == pytest.approx(mass, rel=1e-12)
    metrics = np.sum([part.metrics for one in members if (part := parts[one])], axis=0)
    assert total.metrics == pytest.approx(tuple(metrics), rel=1e-12)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_way_of_losing_devices_of_a_small_cohort(count: int) -> None:
    """Each of up to four devices is lost at any place, or never."""
    sums = 0
    for when in itertools.product([0, 1, 2, 4, 99], repeat=count):
        devices = sorted(contributions(count, 3))
        sums += check_round(count, TINY, dict(zip(devices, when, strict=True)))
    assert sums or count == 2  # too few for two shares of a secret


@pytest.mark.parametrize("terms", [SMALL, LYING], ids=["curious", "lying"])
def test_every_subset_of_five_at_every_stage(terms: Terms) -> None:
    devices = sorted(contributions(5, 3))
    sums = 0
    for place in (0, 1, 2, 3, 4):
        for size in range(6):
            for gone in itertools.combinations(devices, size):
                sums += check_round(5, terms, dict.fromkeys(gone, place))
    assert sums > 10


@pytest.mark.parametrize("terms", [SMALL, LYING], ids=["curious", "lying"])
def test_every_mix_of_stages_for_five(terms: Terms) -> None:
    """Two steps: five devices are lost at any mix of places."""
    devices = sorted(contributions(5, 3))
    for when in itertools.combinations_with_replacement([0, 1, 2, 4, 5, 7, 99], 5):
        check_round(5, terms, dict(zip(devices, when, strict=True)), steps=2)


@pytest.mark.parametrize("terms", [SMALL, LYING, Terms()], ids=["curious", "lying", "default"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_random_drop_outs_of_thirty(terms: Terms, data: st.DataObject) -> None:
    devices = sorted(contributions(30, 3))
    gone = data.draw(st.lists(st.sampled_from(devices), unique=True, max_size=12))
    lost = {device: data.draw(st.integers(0, 10)) for device in gone}
    check_round(30, terms, lost, steps=3)


def test_a_limit_on_weights_takes_two_turns_a_step_and_the_ring_agrees() -> None:
    table = party(contributions(8, 4), limit=0.9, steps=2)
    totals = play(table, 2)
    assert len(totals) == 2
    assert all(same(*pair) for pair in totals)
    assert max(decode_as(Masked, reply).turn for _, _, reply in masked(table)) == 3


def masked(table: Party) -> list[tuple[int, bytes, bytes]]:
    return [
        (device, request, reply)
        for device, request, reply in table.said
        if reply is not None and isinstance(decode(reply), Masked)
    ]


def test_a_device_over_the_limit_refuses_and_the_round_stops() -> None:
    """One device sits on v, the others are far: its share of the step is over the limit."""
    parts = contributions(10, 4)
    first = min(parts)
    parts[first] = Contribution(np.zeros(4, np.float32), 1.0, (1.0,))
    for device in parts:
        if device != first:
            parts[device] = Contribution(np.full(4, 1e3, np.float32), 1.0, (1.0,))
    table = party(parts, limit=0.2)
    ask = table.oracle()
    with pytest.raises(SurvivorsChangedError):
        ask(np.zeros(4), 0.1)
    assert type(table.exchange.refused[first]).__name__ == "WeightLimitError"
    with pytest.raises(SurvivorsChangedError):
        table.ring()(np.zeros(4), 0.1)


def test_a_drop_out_between_steps_ends_the_round_and_the_sum_before_stands() -> None:
    devices = sorted(contributions(10, 3))
    table = party(10, steps=3, lost={devices[0]: 5})
    assert len(play(table, 3)) == 1
    table = party(10, steps=3, lost={devices[0]: 4})
    assert len(play(table, 3)) == 1, "it opened nothing, but was in the first sum"


def test_many_who_leave_together_do_not_end_the_round() -> None:
    """h + c devices or more leave between two steps: h of them are honest."""
    terms = Terms(colluders=0.0, dropouts=0.5, honest=0.2)
    devices = sorted(contributions(20, 3))
    few, many = (dict.fromkeys(devices[:count], 5) for count in (3, 4))
    assert len(play(party(20, terms, steps=2, lost=few), 2)) == 1
    assert len(play(party(20, terms, steps=2, lost=many), 2)) == 2
    assert not broken(determined((t := party(20, terms, steps=2, lost=many)).said, t.known), 4)


def test_a_part_that_comes_after_its_device_was_declared_dead_stays_hidden() -> None:
    """The key of a drop-out is opened; its self-mask still hides what it sent too late."""
    table = party(6)
    late = min(table.devices)

    def losing(outbox: Outbox):
        for device, reply in table.carry(outbox):
            if device != late or not isinstance(decode(reply), Masked):
                yield device, reply

    ask = SecureOracle(table.opening, table.terms, table.parts, losing, table.known)
    assert ask(np.zeros(3), NU).count == 5
    assert late in {device for device, _, _ in masked(table)}
    known = determined(table.said, table.known)
    assert [one.members for one in known] == [frozenset(table.devices) - {late}]


@pytest.mark.parametrize("stage", range(4))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_malformed_reply_costs_its_device_only(stage: int, data: st.DataObject) -> None:
    table = party(6)
    bad, seen = min(table.devices), 0

    def garbling(outbox: Outbox):
        nonlocal seen
        for device, reply in table.carry(outbox):
            wrong = reply
            if device == bad and seen == stage:
                wrong = data.draw(garbled(reply))
            yield device, wrong
        seen += 1

    ask = SecureOracle(table.opening, table.terms, table.parts, garbling, table.known)
    total = ask(np.zeros(3), NU)
    assert set(ask.server.faults) == {bad}
    assert total.count == (6 if stage == 3 else 5)


def garbled(reply: bytes) -> st.SearchStrategy[bytes]:
    """Replies that are not as they should be, whatever the bytes."""
    cut = st.integers(0, len(reply) - 1).map(lambda size: reply[:size])
    longer = st.binary(min_size=1, max_size=40).map(lambda more: reply + more)
    other = st.integers(0, 20).map(lambda at: reply[:at] + bytes([reply[at] ^ 1]) + reply[at + 1 :])
    return st.one_of(cut, longer, other, st.binary(max_size=100))


def test_a_reply_that_comes_twice_or_unasked_changes_nothing() -> None:
    table = party(6)
    stranger = 10**6

    def doubling(outbox: Outbox):
        for device, reply in table.carry(outbox):
            yield device, reply
            yield device, reply
            yield stranger, reply

    ask = SecureOracle(table.opening, table.terms, table.parts, doubling, table.known)
    ring = table.ring()
    ask(np.zeros(3), NU)
    ring(np.zeros(3), NU)
    assert same(ask.last, ring.last)
    assert isinstance(ask.server.faults[stranger], OutOfStageError)


def test_replies_of_another_kind_session_or_turn_are_named() -> None:
    table, other = party(6), party(6)
    mixed = dict(zip(sorted(table.devices), ["session", "kind", "turn"], strict=False))
    other.oracle()(np.zeros(3), NU)
    replayed = {device: reply for device, _, reply in masked(other)}

    def mixing(outbox: Outbox):
        for device, reply in table.carry(outbox):
            message = decode(reply)
            if isinstance(message, Masked) and device in mixed:
                wrong = Masked(message.session, message.turn + 1, message.tail, message.words)
                yield (
                    device,
                    {
                        "session": replayed[device],
                        "kind": Opened(message.session, 0, ()).encode(),
                        "turn": wrong.encode(),
                    }[mixed[device]],
                )
            else:
                yield device, reply

    ask = SecureOracle(table.opening, table.terms, table.parts, mixing, table.known)
    with pytest.raises(TooFewDevicesError):
        ask(np.zeros(3), NU)
    names = {mixed[device]: type(error).__name__ for device, error in ask.server.faults.items()}
    assert names == {
        "session": "OtherSessionError",
        "kind": "OutOfStageError",
        "turn": "OutOfStageError",
    }


def corrupting(table: Party, liars: set[int]) -> SecureOracle:
    """Devices that open wrong shares."""

    def lying(outbox: Outbox):
        for device, reply in table.carry(outbox):
            message = decode(reply)
            if isinstance(message, Opened) and device in liars:
                wrong = tuple(bytes([0]) + share[:0:-1] for share in message.shares)
                yield device, Opened(message.session, message.turn, wrong).encode()
            else:
                yield device, reply

    return SecureOracle(table.opening, table.terms, table.parts, lying, table.known)


def test_corrupted_shares_are_found_by_the_commitments_and_done_without() -> None:
    parameters = derive(9, colluders=2, dropouts=4, honest=2)
    table = party(9, exactly(parameters))
    few, many = set(sorted(table.devices)[:2]), set(sorted(table.devices)[:7])
    ask, ring = corrupting(table, few), table.ring()
    ask(np.zeros(3), NU)
    ring(np.zeros(3), NU)
    assert same(ask.last, ring.last)
    with pytest.raises(BadShareError, match="what device"):
        corrupting(party(9, exactly(parameters)), many)(np.zeros(3), NU)


def test_a_device_that_abstains_is_not_in_the_cohort() -> None:
    parts: dict[int, Contribution | None] = {**contributions(6, 3)}
    parts[5] = None
    table = party(parts)
    ask = table.oracle()
    assert ask(np.zeros(3), NU).count == 5
    assert "abstains" in str(ask.server.faults[5])
    assert ask.server.parameters.cohort == 5


def test_the_server_refuses_questions_without_a_meaning() -> None:
    ask = party(6).oracle()
    for v in (np.zeros(2), np.full(3, np.nan), np.full(3, 1e39)):
        with pytest.raises(ValueError, match="v must be 3 finite numbers"):
            ask(v, NU)
    with pytest.raises(ValueError, match="nu must be a positive number"):
        ask(np.zeros(3), 0.0)
    assert ask(np.zeros(3), NU).count == 6
    with pytest.raises(OracleStopped, match="all 1 turns"):
        ask(np.zeros(3), NU)


def test_a_part_that_counts_twice_is_noticed() -> None:
    """A device inside the ring adds 2 to the count: the total is not plausible."""
    table = party(6)
    liar = min(table.devices)

    def adding(outbox: Outbox):
        for device, reply in table.carry(outbox):
            message = decode(reply)
            if isinstance(message, Masked) and device == liar:
                tail = list(message.tail)
                tail[4] = (tail[4] - 1) % (1 << 128)
                yield device, Masked(message.session, 0, tuple(tail), message.words).encode()
            else:
                yield device, reply

    ask = SecureOracle(table.opening, table.terms, table.parts, adding, table.known)
    with pytest.raises(ImplausibleSumError):
        ask(np.zeros(3), NU)


def test_nobody_joins() -> None:
    table = party(3, lost=dict.fromkeys(contributions(3, 3), 0))
    with pytest.raises(TooFewDevicesError, match="no device joined"):
        table.oracle()
