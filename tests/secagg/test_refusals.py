"""Every refusal of a device up to the cohort, from the attacker's side."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import replace
from typing import Any

import pytest

from rfa.secagg import errors
from rfa.secagg.crypto.keys import LOW_ORDER, public_of
from rfa.secagg.device import membership, sharing
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import AdvertiseKeys, Roster
from rfa.secagg.messages.stages import START
from rfa.secagg.security.cohort import in_order
from rfa.secagg.security.parameters import Parameters, ServerModel, derive
from rfa.secagg.security.policy import Policy
from rfa.secagg.transcript import leaf_of
from tests.secagg.attack import (
    altered,
    at_stage,
    reach,
    refuses,
    victim_keys,
    victim_leaf,
    victim_of,
)
from tests.secagg.party import MALICIOUS, Party, contributions, exactly, party


def test_it_refuses_more_queries_than_its_cap() -> None:
    _, device, request = at_stage(OpenRound, policy=Policy(max_queries=2))
    refuses(device, altered(request, queries=3), errors.TooManyQueriesError, "at most 2")
    refuses(device, altered(request, queries=0), errors.TooManyQueriesError)
    refuses(device, altered(request, metrics=2**20), errors.TooManyQueriesError)
    device.receive(request)


def test_it_refuses_another_number_of_coordinates_or_metrics() -> None:
    _, device, request = at_stage(OpenRound)
    refuses(device, altered(request, dim=4), errors.WrongDimensionError, "this device has 3 and 1")
    refuses(device, altered(request, metrics=2), errors.WrongDimensionError)


def test_a_malicious_server_gets_one_query_a_round_unless_the_device_says_more() -> None:
    """Two queries that it chooses can differ by one device's part (test_queries.py)."""
    table, device, request = at_stage(OpenRound, terms=MALICIOUS, policy=Policy())
    refuses(device, request, errors.TooManyQueriesError, "at most 1")
    device.receive(altered(request, queries=1))
    _, device, request = at_stage(OpenRound, policy=Policy())
    device.receive(request)
    assert len(table.devices) == 10


def test_no_identity_stands_for_two_devices() -> None:
    with pytest.raises(errors.SignatureError, match="same public identity"):
        Identity(bytes(32), {1: bytes(32), 2: bytes(32)})


def test_it_refuses_weaker_terms_than_its_own() -> None:
    strict = Policy(server_model=ServerModel.MALICIOUS, max_share=0.5, max_queries=2)
    _, device, request = at_stage(OpenRound, policy=strict)
    refuses(device, altered(request, max_share=0.5), errors.WeakTermsError, "server_model")
    refuses(device, altered(request, server_model=2), errors.WeakTermsError, "max_share")
    refuses(
        device, altered(request, server_model=2, max_share=0.6), errors.WeakTermsError, "max_share"
    )
    refuses(device, altered(request, server_model=7, max_share=0.5), errors.WeakTermsError)
    device.receive(altered(request, server_model=2, max_share=0.5))


def test_it_joins_no_round_twice_and_none_that_is_not_newer() -> None:
    table, device, request = at_stage(OpenRound, number=7)
    device.receive(request)
    refuses(device, altered(request, queries=1), errors.ReplayedRoundError, "round 7")
    refuses(device, altered(request, session=os.urandom(16)), errors.ReplayedRoundError)
    after = dataclasses.replace(device.memory, due=START, opening=b"", request=bytes(32))
    part = table.parts[victim_of(table)]
    again = Device(part, Profile(victim_of(table)), memory=after)
    refuses(again, altered(request, session=os.urandom(16)), errors.ReplayedRoundError, "round 7")
    again.receive(altered(request, session=os.urandom(16), round=8))


def test_a_later_round_takes_the_place_of_one_in_which_only_keys_have_left() -> None:
    """With keys of its own; once shares are dealt, there is no other round."""
    _, device, request = at_stage(OpenRound, number=7)
    first = device.receive(request)
    later = altered(request, session=os.urandom(16), round=8)
    assert decode_as(AdvertiseKeys, device.receive(later)).keys.sealing_key not in first
    refuses(device, request, errors.ReplayedRoundError)
    _, device, request = at_stage(Roster, number=7)
    device.receive(request)
    opening = device.memory.opening
    refuses(device, altered(opening, round=8), errors.AskedTwiceError)
    other = altered(opening, round=8, session=os.urandom(16))
    refuses(device, other, errors.OtherSessionError)


def test_it_signs_nothing_without_an_identity() -> None:
    table = party(contributions(10, 3), MALICIOUS)
    box = reach(table, OpenRound)
    device = Device(table.parts[5], Profile(5))
    refuses(device, box[5], errors.SignatureError, "no identity to sign with")


def test_a_device_that_abstained_answers_nothing_more() -> None:
    table, _, request = at_stage(Roster)
    opening = table.opening.encode()
    device = Device(None, Profile(5))
    device.receive(opening)
    refuses(device, request, errors.OutOfStageError)


def test_it_refuses_a_cohort_below_its_minimum_or_with_too_few_honest() -> None:
    for policy, error in [
        (Policy(min_cohort=11), errors.SmallCohortError),
        (Policy(min_honest=4), errors.WeakTermsError),
        (Policy(num_colluders=2), errors.WeakTermsError),
    ]:
        _, device, request = at_stage(Roster, policy=policy)
        refuses(device, request, error, "this device wants")


def test_it_refuses_parameters_that_are_not_safe_whoever_derived_them() -> None:
    _, device, request = at_stage(Roster)
    n, c, f, h, k, t, server_model, statistical = decode_as(Roster, request).parameters
    for numbers in [
        (n, c, f, h, k, c, server_model, statistical),
        (n, c, f, h, c + f - 1, t, server_model, statistical),
        (n, c, n - c - h + 1, h, k, t, server_model, statistical),
        (n, c, f, h, k, t, 2, statistical),
        (n, c, f, h, k, t, 9, statistical),
        (n, c, f, h, k, t, server_model, 1),
        (n, c, f, h, k, t, server_model, 2),
        (n, c, f, h, 2, 2, server_model, 1),
    ]:
        refuses(device, altered(request, parameters=numbers), errors.WeakTermsError)


BY_ODDS = derive(200, num_colluders=20, num_dropouts=20)


def large(policy: Policy) -> tuple[Device, bytes]:
    """A device that is sent a roster with parameters by odds."""
    table = party(contributions(200, 1), exactly(BY_ODDS), policy=policy)
    box = reach(table, Roster)
    return table.devices[min(box)], box[min(box)]


def test_it_finds_the_odds_of_a_large_cohort_for_itself() -> None:
    assert BY_ODDS.statistical
    device, request = large(Policy())
    n, c, f, h, k, t, *_ = decode_as(Roster, request).parameters
    for claimed in [
        (n, c, f, h, k, t - 1, 1, 1),
        (n, c, f, h, k - 2, t, 1, 1),
        (n, c + 10, f, h, k, t, 1, 1),
        (n, c, f, h, k, t, 1, 0),
        (n, c, f, h, k, t, 2, 1),
    ]:
        refuses(device, altered(request, parameters=claimed), errors.WeakTermsError, "not safe")
    device.receive(request)


@pytest.mark.parametrize(("bits", "wanted"), [(None, "certain ones"), (60, "below 2.-60")])
def test_it_refuses_odds_that_its_policy_does_not_accept(bits: int | None, wanted: str) -> None:
    device, request = large(Policy(failure_bits=bits))
    refuses(device, request, errors.WeakTermsError, wanted)


def test_it_refuses_more_neighbors_than_its_cap_before_it_agrees_on_any_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a neighbor costs is the server's to choose otherwise: 2,000 of them took 43 s."""
    table, device, request = at_stage(Roster, policy=Policy(max_neighbors=3))
    monkeypatch.setattr(sharing, "agree", None)
    monkeypatch.setattr(membership, "check_device_keys", None)
    count = table.terms.parameters(10).degree
    wanted = f"{count} neighbors: this device deals to at most 3"
    refuses(device, request, errors.TooManyNeighborsError, wanted)


def test_it_refuses_a_cohort_that_was_shrunk_or_reordered() -> None:
    _, device, request = at_stage(Roster)
    roster = decode_as(Roster, request)
    refuses(device, altered(request, leaves=roster.leaves[1:]), errors.CohortError, "listed")
    refuses(device, altered(request, leaves=roster.leaves[::-1]), errors.DuplicateKeyError)
    twice = (roster.leaves[0], *roster.leaves[:-1])
    refuses(device, altered(request, leaves=twice), errors.DuplicateKeyError)
    refuses(device, altered(request, keys=roster.keys[1:]), errors.CohortError, "wanted")


def with_keys(request: bytes, opening: OpenRound, index: int, **changes: Any) -> bytes:
    """A roster in which the keys of one device are others, and its leaf with them."""
    roster = decode_as(Roster, request)
    listed = list(roster.keys)
    listed[index] = replace(listed[index], **changes)
    old, new = (leaf_of(opening, keys[index]) for keys in (roster.keys, listed))
    leaves = in_order(roster.nonce, list({*roster.leaves} - {old} | {new}))
    return altered(request, leaves=leaves, keys=tuple(listed))


def complete() -> tuple[Party, Device, bytes]:
    """A cohort in which everybody is everybody's neighbor."""
    return at_stage(Roster, terms=exactly(Parameters(10, 4, 3, 3, 9, 5)))


def test_it_refuses_keys_of_low_order_wherever_they_are() -> None:
    table, device, request = complete()
    masks = decode_as(Roster, request).keys[0].mask_keys
    for point in LOW_ORDER:
        high = point[:31] + bytes([point[31] | 0x80])
        for bad in (point, high):
            for changes in [{"sealing_key": bad}, {"mask_keys": (masks[0], bad)}]:
                changed = with_keys(request, table.opening, 0, **changes)
                refuses(device, changed, errors.LowOrderPointError, "low order")


def test_it_refuses_duplicate_keys_and_devices() -> None:
    table, device, request = complete()
    first, second, *_ = decode_as(Roster, request).keys
    masks = first.mask_keys
    for changes in [
        {"sealing_key": second.sealing_key},
        {"mask_keys": (second.mask_keys[0], masks[1])},
        {"mask_keys": (masks[0], masks[0])},
        {"sealing_key": victim_keys(table).sealing_key},
        {"device": second.device},
        {"device": victim_of(table)},
    ]:
        changed = with_keys(request, table.opening, 0, **changes)
        refuses(device, changed, errors.DuplicateKeyError, "twice")


def test_it_refuses_a_key_that_is_another_one_in_other_bytes() -> None:
    """X25519 ignores the top bit: without a look at it one key could stand twice in a cohort."""
    table, device, request = complete()
    first, second, *_ = decode_as(Roster, request).keys
    for taken in (second.sealing_key, victim_keys(table).sealing_key, first.mask_keys[0]):
        twin = taken[:31] + bytes([taken[31] | 0x80])
        changed = with_keys(request, table.opening, 0, sealing_key=twin)
        refuses(device, changed, errors.NotCanonicalError, "not the canonical")


def test_it_refuses_a_cohort_without_its_own_keys_or_with_changed_ones() -> None:
    table, device, request = complete()
    roster = decode_as(Roster, request)
    others = {*roster.leaves} - {victim_leaf(table)} | {b"\xff" * 32}
    order = in_order(roster.nonce, list(others))
    missing = altered(request, leaves=order)
    refuses(device, missing, errors.MissingKeysError, "not in the cohort")
    wrong = replace(roster.keys[0], sealing_key=public_of(os.urandom(32)))
    refuses(device, altered(request, keys=(wrong, *roster.keys[1:])), errors.CohortError)


def test_it_refuses_keys_for_the_wrong_number_of_masked_sums() -> None:
    table, device, request = complete()
    masks = decode_as(Roster, request).keys[0].mask_keys
    changed = with_keys(request, table.opening, 0, mask_keys=masks[:1])
    refuses(device, changed, errors.CohortError, "keys for 1 masked sums")


def test_a_malicious_server_cannot_swap_keys_or_invent_devices() -> None:
    table, device, request = at_stage(Roster, terms=MALICIOUS)
    listed = decode_as(Roster, request).keys
    index = next(i for i, keys in enumerate(listed) if keys.device != victim_of(table))
    other = public_of(os.urandom(32))
    changed = with_keys(request, table.opening, index, sealing_key=other)
    refuses(device, changed, errors.SignatureError, "did not sign")
    changed = with_keys(request, table.opening, index, device=10**9, sealing_key=other)
    refuses(device, changed, errors.SignatureError, "no known identity")


def test_a_malicious_server_must_send_the_keys_of_all() -> None:
    table, device, request = at_stage(Roster, terms=MALICIOUS)
    listed = decode_as(Roster, request).keys
    first = next(keys for keys in listed if keys.device != victim_of(table))
    fewer = tuple(keys for keys in listed if keys != first)
    refuses(device, altered(request, keys=fewer), errors.CohortError, "wanted")
