"""The secrets of a device in a fast round: for what they are used, and when they are gone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from rfa.secagg.device import sharing
from rfa.secagg.device.memory import GONE
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.round import FirstSum
from rfa.secagg.security.terms import Terms
from tests.secagg.attack import victim_of
from tests.secagg.fast_round import MODELS, SILENT, first_sum
from tests.secagg.party import equals, party

EACH_MODEL = pytest.mark.parametrize("terms", MODELS.values(), ids=list(MODELS))


@EACH_MODEL
def test_secrets_are_dealt_over_one_roster_each(
    terms: Terms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who stays in the first roster could open what a device uses in the second."""
    dealt: list[bytes] = []
    split = sharing.split

    def noting(secret: bytes, **how: Any) -> Any:
        dealt.append(secret)
        return split(secret, **how)

    at = first_sum(terms, queries=3)
    at.deliver({victim_of(at.table)})
    with monkeypatch.context() as patch:
        patch.setattr(sharing, "split", noting)
        at.victim.receive(at.request)
        at.victim.receive(at.second(set(at.table.devices) - {SILENT}))
    assert len(dealt) == 12
    real = [secret for secret in dealt if secret != GONE]
    assert len(real) == len(set(real)) == 11, "all but the mask's secret of the first sum"


@EACH_MODEL
def test_no_key_seals_twice_under_one_nonce(terms: Terms, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the second roster is the first one again, in the same order."""
    used: list[tuple[bytes, int]] = []
    seal = sharing.seal

    def noting(key: bytes, number: int, plain: bytes, bound: bytes) -> bytes:
        used.append((key, number))
        return seal(key, number, plain, bound)

    at = first_sum(terms, queries=2)
    at.deliver({victim_of(at.table)})
    with monkeypatch.context() as patch:
        patch.setattr(sharing, "seal", noting)
        at.victim.receive(at.request)
        first = decode_as(FirstSum, at.request).roster
        at.victim.receive(dataclasses.replace(first, masked_sum=2).encode())
    assert len(used) == len(set(used)) == 4 * at.first.degree


@EACH_MODEL
def test_what_a_device_needs_no_more_is_gone_from_its_memory(terms: Terms) -> None:
    table = party(equals(10, 3), terms, fast=True, noise=1.0, queries=2)
    ask, device = table.oracle(), table.devices[5]
    ask(np.zeros(3), 1.5)
    memory = device.memory
    assert memory.sealing == GONE
    assert [secret == GONE for secret in memory.masks] == [True, False, True, True]
    assert [secret == GONE for secret in memory.seeds] == [True, False, True, True]
    assert GONE not in {memory.noise, memory.rounding}
    ask(np.zeros(3), 1.5)
    assert device.over
    memory = device.memory
    assert {*memory.masks, *memory.seeds, memory.noise, memory.rounding} == {GONE}
    assert not memory.incoming
    assert not memory.shares


@EACH_MODEL
def test_a_second_roster_leaves_no_secret_of_the_first(terms: Terms) -> None:
    at = first_sum(terms, queries=2).regroup()
    memory = at.victim.memory
    assert memory.sealing != GONE
    assert memory.masks[0] == memory.seeds[0] == GONE
    at.deliver()
    memory = at.victim.memory
    assert memory.sealing == GONE
    assert [secret == GONE for secret in memory.masks] == [True, True, False, False]
    assert [secret == GONE for secret in memory.seeds] == [True, True, False, False]
