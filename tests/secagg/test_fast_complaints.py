"""Shares of a first sum that do not unseal, and first inputs that are no good."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from rfa.secagg.errors import (
    BadShareError,
    ComplaintsError,
    NotCanonicalError,
    SignatureError,
    WrongDimensionError,
)
from rfa.secagg.messages.opening import Message
from rfa.secagg.messages.round import FirstInput, UnmaskShares
from rfa.secagg.messages.values import NO_SHARE
from rfa.secagg.server.complaints import Dispute
from tests.secagg.party import MALICIOUS, exactly, party
from tests.secagg.test_complaints import (
    COUNT,
    NU,
    PARAMETERS,
    Spoil,
    neighbors,
    right,
    spoilt,
    unmasks,
)
from tests.secagg.view import determined


def garbling(dealer: int, ranks: Iterable[int]) -> Spoil:
    """A dealer whose sealed shares for some of its neighbors, by rank, are garbage."""
    chosen = set(ranks)

    def spoil(device: int, message: Message) -> Message:
        if device != dealer or not isinstance(message, FirstInput):
            return message
        sealed = [bytes(len(s)) if i in chosen else s for i, s in enumerate(message.sealed)]
        return dataclasses.replace(message, sealed=tuple(sealed))

    return spoil


def test_a_dealer_of_garbage_to_all_is_named_when_the_first_sum_is_opened() -> None:
    table = party(COUNT, exactly(PARAMETERS), fast=True)
    dealer = min(table.devices)
    ask = spoilt(table, garbling(dealer, range(6)))
    with pytest.raises(BadShareError, match=f"6 neighbors of device {dealer} could not unseal"):
        ask(np.zeros(3), NU)
    assert set(ask.server.faults) == {dealer}
    assert isinstance(ask.server.faults[dealer], ComplaintsError)
    assert ask.server.disputes == {Dispute(dealer, other) for other in neighbors(ask, dealer)}
    assert not determined(table.said, table.known), "its self-mask stays on the sum"


@pytest.mark.parametrize("ranks", [[0], [0, 2, 5]])
def test_a_dealer_of_some_garbage_is_in_dispute_and_the_sum_is_right(ranks: list[int]) -> None:
    """Only more complaints than can collude name it."""
    table = party(COUNT, exactly(PARAMETERS), fast=True)
    dealer = min(table.devices)
    ask = spoilt(table, garbling(dealer, ranks))
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert unmasks(table) == COUNT
    said = {Dispute(dealer, neighbors(ask, dealer)[rank]) for rank in ranks}
    assert {dispute.holder for dispute in ask.server.disputes} <= set(neighbors(ask, dealer))
    assert {dispute.dealer for dispute in ask.server.disputes} == {dealer}
    assert len(ask.server.disputes) == len(said)
    assert (dealer in ask.server.faults) == (len(ranks) > PARAMETERS.num_colluders)


def test_a_liar_who_says_that_it_has_no_shares_is_in_dispute_with_all() -> None:
    table = party(COUNT, exactly(PARAMETERS), fast=True)
    liar = min(table.devices)

    def spoil(device: int, message: Message) -> Message:
        if device == liar and isinstance(message, UnmaskShares):
            return dataclasses.replace(message, shares=(NO_SHARE,) * len(message.shares))
        return message

    ask = spoilt(table, spoil)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert ask.server.disputes == {Dispute(other, liar) for other in neighbors(ask, liar)}
    assert not ask.server.faults


def short(message: FirstInput) -> FirstInput:
    return dataclasses.replace(message, words=message.words[:-1])


def bare(message: FirstInput) -> FirstInput:
    return dataclasses.replace(message, tail=message.tail[:-1])


def without_shares(message: FirstInput) -> FirstInput:
    return dataclasses.replace(message, sealed=message.sealed[:-1])


def without_commitment(message: FirstInput) -> FirstInput:
    return dataclasses.replace(message, commitments=())


@pytest.mark.parametrize("how", [short, bare, without_shares, without_commitment])
def test_a_bad_first_input_costs_its_sender_only(how: Callable[[FirstInput], FirstInput]) -> None:
    table = party(COUNT, exactly(PARAMETERS), fast=True)
    liar = min(table.devices)

    def spoil(device: int, message: Message) -> Message:
        bad = device == liar and isinstance(message, FirstInput)
        return how(message) if bad and isinstance(message, FirstInput) else message

    ask = spoilt(table, spoil)
    assert ask(np.zeros(3), NU).count == COUNT - 1
    assert isinstance(ask.server.faults.pop(liar), WrongDimensionError)
    assert not ask.server.faults
    (known,) = determined(table.said, table.known)
    assert known.members == frozenset(table.devices) - {liar}


def test_a_first_sum_is_opened_with_signatures_where_the_server_is_malicious() -> None:
    """They are for receipts: who signs something else does not count among those who opened."""
    table = party(COUNT, MALICIOUS, fast=True)
    liar = min(table.devices)

    def spoil(device: int, message: Message) -> Message:
        if device == liar and isinstance(message, UnmaskShares):
            return dataclasses.replace(message, signature=bytes(64))
        return message

    ask = spoilt(table, spoil)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert isinstance(ask.server.faults.pop(liar), SignatureError)
    assert not ask.server.faults


def test_wrong_numbers_of_shares_and_other_masked_sums_cost_their_sender_only() -> None:
    table = party(COUNT, exactly(PARAMETERS), fast=True)
    liar, other = sorted(table.devices)[:2]

    def spoil(device: int, message: Message) -> Message:
        if device == liar and isinstance(message, UnmaskShares):
            return dataclasses.replace(message, shares=message.shares[:-1])
        if device == other and isinstance(message, UnmaskShares):
            return dataclasses.replace(message, masked_sum=1)
        return message

    ask = spoilt(table, spoil)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert set(ask.server.faults) == {liar, other}


@pytest.mark.parametrize("wrong", [1, 2])
def test_wrong_shares_of_a_first_sum_do_no_harm_below_the_bound(wrong: int) -> None:
    table = party(COUNT, exactly(PARAMETERS), fast=True)
    liars = sorted(table.devices)[:wrong]

    def spoil(device: int, message: Message) -> Message:
        if device in liars and isinstance(message, UnmaskShares):
            shares: Any = tuple(bytes(32) + b"\x07" for _ in message.shares)
            return dataclasses.replace(message, shares=shares)
        return message

    ask = spoilt(table, spoil)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert not {fault for fault in ask.server.faults.values() if type(fault) is NotCanonicalError}
