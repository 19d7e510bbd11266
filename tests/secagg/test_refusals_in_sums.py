"""Every refusal of a device in its masked sums, from the attacker's side."""

from __future__ import annotations

import os

import numpy as np
import pytest

from rfa.secagg import errors
from rfa.secagg.crypto.keys import sign
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.round import Roster, SumRequest, SurvivorList, Unmask, UnmaskShares
from rfa.secagg.messages.values import read_bitmap, write_bitmap
from rfa.secagg.security.policy import Policy
from rfa.secagg.transcript import digest
from tests.secagg.attack import (
    NU,
    STAGES,
    TERMS,
    altered,
    at_stage,
    reach,
    refuses,
    victim_of,
    victim_position,
)
from tests.secagg.party import MALICIOUS, contributions, party


def test_it_refuses_a_radius_below_its_floor() -> None:
    _, device, request = at_stage(SumRequest, policy=Policy(min_nu=0.1, honest_per_query=0))
    for nu in (0.05, 0.0, -1.0):
        refuses(device, altered(request, nu=nu), errors.SmallRadiusError, "from 0.1 on")


def test_it_refuses_a_point_of_another_dimension_or_not_finite() -> None:
    _, device, request = at_stage(SumRequest)
    refuses(device, altered(request, v=np.ones(4, "<f4")), errors.WrongDimensionError)
    refuses(device, altered(request, v=np.full(3, np.nan, "<f4")), errors.NotCanonicalError)
    refuses(device, altered(request, v=np.zeros(3, "<f4")), errors.NotCanonicalError)


def test_it_answers_one_query_a_masked_sum_and_replays_the_same_bytes() -> None:
    _, device, request = at_stage(SumRequest)
    reply = device.receive(request)
    for changes in [{"v": np.full(3, 2, "<f4")}, {"nu": 2.0}, {"alive": b"\xff\x03"}]:
        if altered(request, **changes) != request:
            refuses(device, altered(request, **changes), errors.AskedTwiceError)
    assert device.receive(request) == reply
    refuses(device, altered(request, masked_sum=1), errors.OutOfStageError)


def alive_without(request: bytes, *gone: int) -> bytes:
    members = read_bitmap(decode_as(SumRequest, request).alive, 10) - set(gone)
    return altered(request, alive=write_bitmap(members, 10))


def test_it_refuses_a_masked_sum_without_itself_or_with_too_many_drop_outs() -> None:
    table, device, request = at_stage(SumRequest)
    victim = victim_position(table)
    others = [place for place in range(10) if place != victim]
    refuses(device, alive_without(request, victim), errors.SurvivorsError, "is impossible")
    refuses(device, alive_without(request, *others[:3]), errors.TooManyDropoutsError, "at most 2")
    refuses(device, altered(request, alive=b"\xff\xff"), errors.NotCanonicalError)
    refuses(device, altered(request, sealed=()), errors.NotCanonicalError, "sealed shares")


def test_nobody_comes_back_in_a_later_masked_sum() -> None:
    """Who did not survive a masked sum cannot be in the next."""
    table = party(contributions(10, 3), TERMS, queries=2)
    box = reach(table, Unmask)
    victim = victim_of(table)
    device = table.devices[victim]
    gone = (victim_position(table) + 5) % 10
    device.receive(altered(box[victim], survivors=write_bitmap({*range(10)} - {gone}, 10)))
    everyone = SumRequest(
        table.opening.session, 1, 1, NU, 0, write_bitmap(range(10), 10), (), np.ones(3, "<f4")
    )
    refuses(device, everyone.encode(), errors.SurvivorsError, "is impossible")


def test_the_phases_of_a_query_with_a_limit_come_in_order_at_the_same_point() -> None:
    _, device, request = at_stage(SumRequest, max_share=0.9)
    refuses(device, altered(request, vector=1), errors.OutOfStageError, "wrong phase")
    refuses(device, altered(request, mass=1), errors.OutOfStageError, "wrong phase")
    _, device, request = at_stage(SumRequest, max_share=0.9, masked_sum=1)
    refuses(device, altered(request, vector=0), errors.OutOfStageError, "wrong phase")
    refuses(device, altered(request, mass=0), errors.OutOfStageError, "wrong phase")
    moved = altered(request, v=np.full(3, 2, "<f4"))
    refuses(device, moved, errors.AskedTwiceError, "changed within a query")
    refuses(device, altered(request, nu=2.0), errors.AskedTwiceError, "changed within a query")
    refuses(device, altered(request, mass=11 << 96), errors.NotCanonicalError, "total mass")
    device.receive(request)


def test_a_refusal_by_the_limit_ends_the_round_so_it_tells_one_bit() -> None:
    """Or a server could find a device's mass by asking with one total after another."""
    _, device, request = at_stage(SumRequest, max_share=0.9, masked_sum=1)
    with pytest.raises(errors.ShareLimitError, match="would weigh more"):
        device.receive(altered(request, mass=1))
    for again in (request, altered(request, mass=5 << 96), altered(request, mass=1)):
        refuses(device, again, errors.OutOfStageError, "has left the round")
    assert device.memory.masks == device.memory.seeds == device.memory.incoming == ()


def test_it_opens_one_set_of_shares_a_masked_sum_so_never_both_kinds() -> None:
    """The second request asks for the other kind of share of a neighbor."""
    table, device, request = at_stage(Unmask)
    reply = device.receive(request)
    victim = victim_position(table)
    flipped = write_bitmap({*range(10)} - {(victim + 1) % 10}, 10)
    refuses(device, altered(request, survivors=flipped), errors.AskedTwiceError)
    assert device.receive(request) == reply
    assert len(set(decode_as(UnmaskShares, reply).shares)) == len(
        decode_as(UnmaskShares, reply).shares
    )


def test_it_refuses_survivors_who_cannot_be() -> None:
    table, device, request = at_stage(Unmask)
    victim = victim_position(table)
    others = [place for place in range(10) if place != victim]
    for members, error in [
        (others, errors.SurvivorsError),
        ([victim, *others[3:]], errors.TooManyDropoutsError),
        ([victim], errors.TooManyDropoutsError),
        ([], errors.SurvivorsError),
    ]:
        refuses(device, altered(request, survivors=write_bitmap(members, 10)), error)
    refuses(device, altered(request, survivors=b"\xff"), errors.NotCanonicalError)


def test_a_change_of_survivors_between_queries_is_not_opened() -> None:
    table, device, request = at_stage(Unmask, masked_sum=1)
    victim = victim_position(table)
    for size in (1, 2):
        gone = {(victim + 1 + index) % 10 for index in range(size)}
        changed = altered(request, survivors=write_bitmap({*range(10)} - gone, 10))
        refuses(device, changed, errors.SurvivorsError, f"{size} devices left")
    device.receive(request)


def test_a_malicious_server_needs_a_quorum_under_the_same_survivors() -> None:
    table, device, request = at_stage(Unmask, terms=MALICIOUS)
    unmask = decode_as(Unmask, request)
    quorum = (10 + 1) // 2 + 1
    few = unmask.signatures[: quorum - 2]
    refuses(device, altered(request, signatures=few), errors.DisagreementError, "are needed")
    same = unmask.signatures[:1] * 9
    refuses(device, altered(request, signatures=same), errors.NotCanonicalError, "one for each")
    strangers = tuple((place + 100, signature) for place, signature in unmask.signatures)
    refuses(device, altered(request, signatures=strangers), errors.DisagreementError)
    forged = tuple((place, os.urandom(64)) for place, _ in unmask.signatures)
    refuses(device, altered(request, signatures=forged), errors.DisagreementError)
    victim = victim_position(table)
    others = altered(request, survivors=write_bitmap({*range(10)} - {(victim + 1) % 10}, 10))
    refuses(device, others, errors.DisagreementError, "that this device signed")
    device.receive(request)


def test_it_signs_survivors_once_and_opens_nothing_unsigned() -> None:
    table, device, request = at_stage(SurvivorList, terms=MALICIOUS)
    message = decode_as(SurvivorList, request)
    early = Unmask(message.session, 0, message.survivors, ()).encode()
    refuses(device, early, errors.OutOfStageError)
    reply = device.receive(request)
    victim = victim_position(table)
    other = write_bitmap({*range(10)} - {(victim + 1) % 10}, 10)
    refuses(device, altered(request, survivors=other), errors.AskedTwiceError)
    assert device.receive(request) == reply


def test_signatures_of_another_masked_sum_do_not_count() -> None:
    table, device, request = at_stage(Unmask, terms=MALICIOUS, masked_sum=1)
    old = [
        (place, sign(table.identities[name], digest(b"survivors", b"", b"")))
        for place, name in enumerate(sorted(table.identities))
    ]
    refuses(device, altered(request, signatures=tuple(old)), errors.DisagreementError)


@pytest.mark.parametrize("now", STAGES)
def test_messages_out_of_stage_of_another_session_or_no_messages(now: type[Message]) -> None:
    table, device, request = at_stage(now, terms=MALICIOUS)
    if now is not OpenRound:
        other = altered(request, session=os.urandom(16))
        refuses(device, other, errors.OtherSessionError)
    for stage in STAGES:
        if stage is now:
            continue
        _, _, foreign = at_stage(stage, terms=MALICIOUS, number=2)
        moved = altered(foreign, session=table.opening.session)
        if stage is SurvivorList:  # all survived there too: the same bytes would be a retry
            moved = altered(moved, survivors=b"\xff\x01")
        if (stage, now) == (OpenRound, Roster):  # only keys have left: a later round may begin
            earlier = altered(moved, round=1, queries=1)
            refuses(device, earlier, errors.ReplayedRoundError)
        elif STAGES.index(stage) < STAGES.index(now):
            refuses(device, moved, errors.AskedTwiceError)
        else:
            refuses(device, moved, errors.OutOfStageError)
    for junk in (b"", request[:-1], request + b"\0", os.urandom(50)):
        refuses(device, junk, errors.MessageError)
    device.receive(request)


def test_an_oversized_message_is_refused_before_it_is_read() -> None:
    _, device, request = at_stage(OpenRound, policy=Policy(max_message_bytes=100))
    refuses(device, request + bytes(200), errors.OversizedError, "longer than 112")


def test_what_devices_send_is_nothing_that_they_can_be_asked() -> None:
    table, device, _ = at_stage(SumRequest)
    refuses(device, UnmaskShares(table.opening.session, 0, ()).encode(), errors.OutOfStageError)


def test_after_the_last_masked_sum_nothing_is_answered() -> None:
    table, device, request = at_stage(Unmask, queries=1)
    device.receive(request)
    more = SumRequest(
        table.opening.session, 1, 1, NU, 0, write_bitmap(range(10), 10), (), np.ones(3, "<f4")
    )
    refuses(device, more.encode(), errors.OutOfStageError)
