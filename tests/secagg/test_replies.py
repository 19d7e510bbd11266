"""What devices send that they should not: it costs them their place, and nobody else anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.secagg.crypto import shares
from rfa.secagg.crypto.shares import PRIME
from rfa.secagg.device import sharing as module
from rfa.secagg.errors import (
    BadShareError,
    ImplausibleSumError,
    OutOfStageError,
    TooFewDevicesError,
)
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import MaskedInput, UnmaskShares
from rfa.secagg.oracle import SecureOracle, open_round
from rfa.secagg.security.parameters import derive
from rfa.secagg.security.policy import Policy
from rfa.secagg.server.requests import Outbox
from rfa.secagg.statistics import POSITIONS
from tests.secagg.party import SMALL, Party, contributions, exactly, masked, party, same

NU = 1.5


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
    unmasked = table.unmasked()
    ask(np.zeros(3), NU)
    unmasked(np.zeros(3), NU)
    assert same(ask.last, unmasked.last)
    assert isinstance(ask.server.faults[stranger], OutOfStageError)


def test_replies_of_another_kind_session_or_masked_sum_are_named() -> None:
    table, other = party(6), party(6)
    mixed = dict(zip(sorted(table.devices), ["session", "kind", "masked_sum"], strict=False))
    other.oracle()(np.zeros(3), NU)
    replayed = {device: reply for device, _, reply in masked(other)}

    def mixing(outbox: Outbox):
        for device, reply in table.carry(outbox):
            message = decode(reply)
            if isinstance(message, MaskedInput) and device in mixed:
                wrong = MaskedInput(
                    message.session, message.masked_sum + 1, message.tail, message.words
                )
                yield (
                    device,
                    {
                        "session": replayed[device],
                        "kind": UnmaskShares(message.session, 0, ()).encode(),
                        "masked_sum": wrong.encode(),
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
        "masked_sum": "OutOfStageError",
    }


def corrupting(table: Party, liars: set[int]) -> SecureOracle:
    """Devices that open wrong shares."""

    def malicious(outbox: Outbox):
        for device, reply in table.carry(outbox):
            message = decode(reply)
            if isinstance(message, UnmaskShares) and device in liars:
                wrong = tuple(bytes([0]) + share[:0:-1] for share in message.shares)
                yield device, UnmaskShares(message.session, message.masked_sum, wrong).encode()
            else:
                yield device, reply

    return SecureOracle(table.opening, table.terms, table.parts, malicious, table.known)


def test_corrupted_shares_are_found_by_the_commitments_and_done_without() -> None:
    parameters = derive(11, num_colluders=2, num_dropouts=4, min_honest=3)
    table = party(11, exactly(parameters))
    few, many = set(sorted(table.devices)[:2]), set(sorted(table.devices)[:7])
    ask, unmasked = corrupting(table, few), table.unmasked()
    ask(np.zeros(3), NU)
    unmasked(np.zeros(3), NU)
    assert same(ask.last, unmasked.last)
    with pytest.raises(BadShareError, match="cannot be opened"):
        corrupting(party(11, exactly(parameters)), many)(np.zeros(3), NU)


def test_a_part_that_counts_twice_is_noticed() -> None:
    """A device that lies adds 2 to the count: the total is not plausible."""
    table = party(6)
    liar = min(table.devices)

    def adding(outbox: Outbox):
        for device, reply in table.carry(outbox):
            message = decode(reply)
            if isinstance(message, MaskedInput) and device == liar:
                tail = list(message.tail)
                tail[4] = (tail[4] - 1) % (1 << 128)
                yield device, MaskedInput(message.session, 0, tuple(tail), message.words).encode()
            else:
                yield device, reply

    ask = SecureOracle(table.opening, table.terms, table.parts, adding, table.known)
    with pytest.raises(ImplausibleSumError):
        ask(np.zeros(3), NU)


def test_a_dealer_of_numbers_that_are_no_shares_gets_nobody_else_blamed() -> None:
    """Honest holders say so before the survivors are closed: the dealer is named, and they not."""
    table = party(6, queries=2)
    dealer = min(table.devices)
    honest = module.split

    def no_shares(secret: bytes, **how: Any) -> list[int]:
        return [PRIME + 7] * len(honest(secret, **how))

    def dealing(outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        for device, request in outbox:
            module.split = no_shares if device == dealer else honest
            yield from table.carry(iter([(device, request)]))
        module.split = honest

    ask = SecureOracle(table.opening, table.terms, table.parts, dealing, table.known)
    with pytest.raises(BadShareError, match=f"neighbors of device {dealer} could not unseal"):
        ask(np.zeros(3), NU)
    assert set(ask.server.faults) == {dealer}
    assert {dispute.dealer for dispute in ask.server.disputes} == {dealer}


def test_an_abort_tells_what_devices_in_this_process_refused() -> None:
    table = party(6, policy=Policy(min_cohort=20))
    with pytest.raises(TooFewDevicesError, match=r"6 refused; device \d+ said: a cohort"):
        SecureOracle(table.opening, table.terms, table.parts, table.exchange, table.known)(
            np.zeros(3), NU
        )


@pytest.mark.parametrize("reply", [None, "text", 5])
def test_what_is_no_bytes_is_no_reply(reply: Any) -> None:
    table = party(6)

    def carrying(outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        for device, answer in table.carry(outbox):
            yield device, reply if device == 5 else answer

    ask = SecureOracle(table.opening, table.terms, table.parts, carrying, table.known)
    assert ask(np.zeros(3), NU).count == 5
    assert "a message is bytes" in str(ask.server.faults[5])


def test_a_liar_is_asked_last_once_it_was_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One corrupted share costs one search, not one for each of the liar's neighbors."""
    parameters = derive(40, num_colluders=8, num_dropouts=8)
    table = party(40, exactly(parameters))
    liar = min(table.devices)
    tried: list[int] = []
    real = shares.combine

    def counting(given: Any, **how: Any) -> bytes:
        tried.append(len(given))
        return real(given, **how)

    monkeypatch.setattr(shares, "combine", counting)
    ask = corrupting(table, {liar})
    ask(np.zeros(3), NU)
    assert 40 < len(tried) < 40 + 2 * 16


@pytest.mark.parametrize("equal", [False, True])
def test_a_total_that_no_equal_devices_have_is_noticed_where_weights_are_equal(equal: bool) -> None:
    """A liar says that three more are near than the mass allows, so that nu would shrink."""
    parts = {
        device: dataclasses.replace(
            part, update=(8 * part.update).astype(np.float32), weight=1.0, equal_weights=equal
        )
        for device, part in contributions(6, 3).items()
    }
    table = party(parts)
    table.opening = open_round(1, SMALL, queries=1, dim=3, metrics=1, equal_weights=equal)
    liar, place = min(table.devices), POSITIONS["near"] - equal  # the weight does not travel

    def adding(outbox: Outbox):
        for device, reply in table.carry(outbox):
            message = decode(reply)
            if isinstance(message, MaskedInput) and device == liar:
                tail = list(message.tail)
                tail[place] = (tail[place] + 3) % (1 << 128)
                yield device, dataclasses.replace(message, tail=tuple(tail)).encode()
            else:
                yield device, reply

    honest = table.unmasked()(np.zeros(3), NU)
    near = honest.need("near") + 3
    assert near <= 6
    assert 2 * honest.need("mass") < near
    ask = SecureOracle(table.opening, table.terms, table.parts, adding, table.known)
    if not equal:
        assert ask(np.zeros(3), NU).near == near
        return
    with pytest.raises(ImplausibleSumError, match=r"mass is .*, with .* devices near"):
        ask(np.zeros(3), NU)
