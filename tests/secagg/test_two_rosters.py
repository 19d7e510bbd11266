"""What a malicious server gets who goes on to the next query with two rosters of a fast round.

Some devices move to a second roster, a quorum of which lets them go on. The others go on in the
first one, are told that those dropped out, and open their mask keys of the next query. If these
were in use in the second roster, where self-masks are opened, a device would stand alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from rfa.secagg.crypto.graph import rank
from rfa.secagg.crypto.keys import agree, public_of
from rfa.secagg.crypto.masks import Mask, add_masks
from rfa.secagg.crypto.shares import recover
from rfa.secagg.fixed_point import Encoding
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.round import (
    SEALED_SIZE,
    MaskedInput,
    Roster,
    ShareKeys,
    SumRequest,
    SurvivorList,
    SurvivorSignature,
    Unmask,
    UnmaskShares,
)
from rfa.secagg.messages.values import read_share, write_bitmap
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.server.table import Table, form_table
from rfa.secagg.transcript import context_of, pair_mask_key, point_of, self_mask_key
from tests.secagg.fast_round import FastRound, first_sum
from tests.secagg.party import contributions, exactly, party

FIRST = Parameters(10, 0, 4, 3, 9, 5, ServerModel.MALICIOUS)
SECOND = Parameters(6, 0, 0, 3, 2, 2, ServerModel.MALICIOUS)
MOVED = range(4)
"""The places in the second roster of those who move there; the others never hear of it."""


@dataclass
class Roll:
    """A roster of which some devices answer.

    Attributes:
        at: the round.
        table: the roster.
        there: the places of those who answer.
        shares: what they opened, by masked sum and dealer: (holder, share).
        inputs: their masked inputs, by masked sum and place.
        requests: what they were asked, by masked sum.
    """

    at: FastRound
    table: Table
    there: Collection[int]

    def __post_init__(self) -> None:
        self.shares: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.inputs: dict[tuple[int, int], MaskedInput] = {}
        self.requests: dict[int, SumRequest] = {}

    @property
    def opening(self) -> OpenRound:
        return self.at.table.opening

    def say(self, place: int, message: Message) -> bytes:
        name = self.table.keys[place].device
        return self.at.table.devices[name].receive(message.encode())

    def sealed(self, place: int, masked_sum: int) -> tuple[bytes, ...]:
        """What was dealt to a device; garbage of those who never dealt."""
        around = self.table.cohort.neighbors(place)
        return tuple(
            self.table.sealed_for(place, [other], masked_sum)[0]
            if other in self.table.deals
            else bytes(SEALED_SIZE)
            for other in around
        )

    def query(self, masked_sum: int, survivors: Collection[int]) -> None:
        """Ask for a masked sum of all, and open it over those who are said to have survived."""
        n, session = self.table.cohort.parameters.cohort, self.opening.session
        bitmap, everyone = write_bitmap(survivors, n), write_bitmap(range(n), n)
        signatures: list[tuple[int, bytes]] = []
        for place in self.there:
            sealed, v = self.sealed(place, masked_sum), np.zeros(0, "<f4")
            asked = SumRequest(session, masked_sum, 1, 1.5, 0, everyone, sealed, v)
            self.requests[masked_sum] = asked
            masked = decode_as(MaskedInput, self.say(place, asked))
            self.inputs[masked_sum, place] = masked
        for place in self.there:
            reply = self.say(place, SurvivorList(session, masked_sum, bitmap))
            signatures.append((place, decode_as(SurvivorSignature, reply).signature))
        for place in self.there:
            reply = self.say(place, Unmask(session, masked_sum, bitmap, tuple(sorted(signatures))))
            opened = decode_as(UnmaskShares, reply).shares
            for dealer, share in zip(self.table.cohort.neighbors(place), opened, strict=True):
                if (number := read_share(share)) is not None:
                    self.shares.setdefault((masked_sum, dealer), []).append((place, number))

    def secret(self, masked_sum: int, dealer: int, public: bytes | None = None) -> bytes:
        """A secret from the shares that were opened: a key, or the seed of a self-mask."""
        sizes = self.table.cohort.parameters
        shares = {
            rank(holder, dealer, sizes.cohort, sizes.degree): share
            for holder, share in self.shares[masked_sum, dealer]
        }
        secret, _ = recover(
            shares,
            threshold=sizes.threshold,
            is_secret=lambda found: public is None or public_of(found) == public,
        )
        return secret


def attack() -> tuple[Roll, Roll]:
    """The two rosters after their sums of the second query."""
    table = party(contributions(10, 3), exactly(FIRST), queries=2, fast=True)
    at = first_sum(exactly(FIRST), table=table, point=np.zeros(3))
    at.unmask()
    whole = at.server._formed()  # pyright: ignore[reportPrivateUsage]
    start = table.opening.sums_from(0)[-1] + 1
    small = form_table(table.opening, whole.keys[:6], SECOND, start)
    moved = {small.keys[place].device for place in MOVED}
    for device, request in at.box.items():
        if device not in moved:
            table.devices[device].receive(request)
    second = Roll(at, small, MOVED)
    for device, roster in small.rosters():
        if device in moved:
            reply = table.devices[device].receive(roster)
            place = small.devices(small.everyone).index(device)
            small.deals[place] = decode_as(ShareKeys, reply)
    for masked_sum in table.opening.sums_from(start)[:2]:
        second.query(masked_sum, range(6))
    stay = [place for place, keys in enumerate(whole.keys) if keys.device not in moved]
    first = Roll(at, whole, stay)
    first.query(1, stay)
    return first, second


def places(roll: Roll, devices: Sequence[int]) -> list[int]:
    names = [keys.device for keys in roll.table.keys]
    return [names.index(device) for device in devices]


def test_what_is_opened_in_one_roster_takes_no_mask_off_in_the_other() -> None:
    first, second = attack()
    victim, around = 1, (0, 2)  # all of them moved, and k = 2
    names = [second.table.keys[place].device for place in (victim, *around)]
    masked_sum = max(number for number, _ in second.inputs)
    opened = [
        first.secret(1, place, first.table.keys[place].mask_keys[1])
        for place in places(first, names)
    ]
    public = {second.table.keys[place].mask_keys[masked_sum] for place in (victim, *around)}
    assert not {public_of(secret) for secret in opened} & public
    seed = second.secret(masked_sum, victim)  # two of two neighbors opened it
    asked = second.requests[masked_sum]
    context = context_of(second.table.cohort.digest, asked, point_of(asked.v, asked.nu))
    masks: list[Mask] = [(self_mask_key(seed, context), False)]
    for other in around:
        (agreed,) = agree(opened[0], [second.table.keys[other].mask_keys[masked_sum]])
        masks.append((pair_mask_key(agreed, context, victim, other), victim >= other))
    masked = second.inputs[masked_sum, victim]
    words, tail = masked.words.copy(), list(masked.tail)
    add_masks(words, tail, masks)
    encoding = Encoding.of(second.opening, SECOND)
    count = tail[[row.name for row in encoding.rows].index("count")]
    assert count != 1, "with its own keys, the input of one device would lie there"
    assert decode_as(Roster, second.at.table.devices[names[0]].memory.roster).masked_sum == 2
