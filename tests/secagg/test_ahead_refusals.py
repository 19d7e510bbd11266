"""What a device refuses of a server that has its keys of the round to come, and the other way."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Profile
from rfa.secagg.errors import (
    AbortError,
    AskedTwiceError,
    CohortError,
    MissingKeysError,
    NoKeysAheadError,
    NotCanonicalError,
    OtherBasisError,
    OtherSessionError,
    OutOfStageError,
    ReplayedRoundError,
    SecAggError,
    SmallRadiusError,
)
from rfa.secagg.messages.decoding import decode, decode_as
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import (
    AdvertiseKeys,
    FirstInput,
    FirstSum,
    OpenFirstSum,
    Unmask,
    UnmaskShares,
)
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.server.machine import Server
from tests.secagg.ahead_round import NU, AheadParty, ahead_party
from tests.secagg.fast_round import first_sum
from tests.secagg.party import LAX, MALICIOUS, contributions, party
from tests.secagg.view import determined


def begin(table: AheadParty, point: Any = 0.0, nu: float = NU, **opening: Any) -> dict[int, bytes]:
    """The first requests of a round with the keys of a table, perhaps another one than its own."""
    about = dataclasses.replace(table.opening, **opening)
    server = Server(about, table.terms)
    server.open_ahead(table.keys.values())
    return dict(server.first(np.full(about.dim, point), nu))


def victim(table: AheadParty) -> tuple[int, Device]:
    name = min(table.devices)
    return name, table.devices[name]


def test_a_set_of_keys_is_for_one_round() -> None:
    """Neither a later round nor a changed first sum gets another input masked with them."""
    table = ahead_party(10)
    name, device = victim(table)
    request = begin(table)[name]
    reply = device.receive(request)
    assert device.receive(request) == reply
    assert isinstance(decode(reply), FirstInput)
    for other in (begin(table, nu=2 * NU), begin(table, point=1.0), begin(table)):
        with pytest.raises(AskedTwiceError):  # another point, radius or order of the same round
            device.receive(other[name])
    later = begin(table, session=b"s" * 16, round=9)[name]
    with pytest.raises(OtherSessionError):
        device.receive(later)
    device.memory = device.memory.before_next()  # the round is over for it
    with pytest.raises(NoKeysAheadError, match="none ahead at all: used, lost or never asked"):
        device.receive(later)


def test_without_that_rule_two_trainings_tell_in_what_they_differ() -> None:
    """The same request twice, and another update: masks of the same keys cancel between the two."""
    table = ahead_party(10)
    name, device = victim(table)
    request, memory, part = begin(table, nu=100.0)[name], device.memory, table.parts[name]
    assert part is not None
    changed = dataclasses.replace(part, update=part.update + np.array([0.5, 0, 0], np.float32))
    inputs: list[FirstInput] = []
    for each in (part, changed):  # the memory of before: a device that does not forget its keys
        forgetful = Device(each, Profile(name, LAX), rounding=bytes(32), memory=memory)
        inputs.append(decode_as(FirstInput, forgetful.receive(request)))
    apart = inputs[0].words - inputs[1].words
    assert apart[0]
    assert not apart[1:].any()


@pytest.mark.parametrize(("split", "sums"), [(0, 1), (1, 0), (2, 0), (5, 0), (9, 0), (10, 1)])
def test_devices_that_are_told_of_another_basis_are_in_no_sum_with_the_others(
    split: int, sums: int
) -> None:
    """A server that does not follow the protocol uses the same keys in two openings at once."""
    table, basis = ahead_party(10), b"b" * 32
    said: list[tuple[int, bytes, bytes | None]] = []
    servers = [Server(about, table.terms) for about in (table.opening, with_basis(table, basis))]
    boxes: list[dict[int, bytes]] = []
    for server in servers:
        server.open_ahead(table.keys.values())
        boxes.append(dict(server.first(np.zeros(3), NU)))
    sides = {name: int(at < split) for at, name in enumerate(sorted(table.devices))}
    for name, side in sides.items():
        part = table.parts[name]
        assert part is not None
        part = dataclasses.replace(part, basis=basis if side else part.basis)
        memory = table.devices[name].memory
        table.devices[name] = Device(part, Profile(name, LAX), memory=memory)
        reply = table.devices[name].receive(boxes[side][name])
        said.append((name, boxes[side][name], reply))
        assert all(server.take(name, reply) for server in servers)
    for side, server in enumerate(servers):
        for name, request in server.unmask():
            if sides[name] == side:
                said.append((name, request, table.devices[name].receive(request)))
    assert len(determined(said, {}, ahead=table.keys)) == sums


def with_basis(table: AheadParty, basis: bytes) -> OpenRound:
    return dataclasses.replace(table.opening, basis=basis)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"basis": b"b" * 32}, OtherBasisError),
        ({"round": 1}, ReplayedRoundError),
        ({"metrics": 2}, SecAggError),
        ({"dim": 4}, SecAggError),
        ({"fast": 0}, NoKeysAheadError),
        ({"server_model": int(ServerModel.MALICIOUS)}, NoKeysAheadError),
        ({"queries": 2}, NoKeysAheadError),
    ],
)
def test_a_round_that_it_refuses_leaves_its_keys_where_they_were(
    changes: dict[str, Any], error: type[Exception]
) -> None:
    table = ahead_party(10)
    name, device = victim(table)
    good = begin(table)[name]
    message = decode_as(OpenFirstSum, good)
    opening = dataclasses.replace(decode_as(OpenRound, message.opening), **changes).encode()
    before = device.memory
    with pytest.raises(error):
        device.receive(dataclasses.replace(message, opening=opening).encode())
    assert device.memory == before
    assert isinstance(decode(device.receive(good)), FirstInput)


def test_a_first_sum_that_it_refuses_leaves_its_keys_where_they_were() -> None:
    table = ahead_party(10)
    name, device = victim(table)
    before = device.memory
    with pytest.raises(SmallRadiusError):
        device.receive(begin(table, nu=1e-300)[name])
    message = decode_as(OpenFirstSum, begin(table)[name])
    first = decode_as(FirstSum, message.first)
    without = dataclasses.replace(first, keys=first.keys[1:])
    with pytest.raises(CohortError):
        device.receive(dataclasses.replace(message, first=without.encode()).encode())
    elsewhere = dataclasses.replace(first, session=b"o" * 16)
    with pytest.raises(OtherSessionError):
        device.receive(dataclasses.replace(message, first=elsewhere.encode()).encode())
    assert device.memory == before
    assert before.ahead


def test_a_roster_of_other_keys_of_its_own_is_refused() -> None:
    """As that of the other task, or one from before its keys were replaced."""
    table, other = ahead_party(10), ahead_party(10)
    name, device = victim(table)
    mixed = dataclasses.replace(table, keys={**table.keys, name: other.keys[name]})
    with pytest.raises(MissingKeysError):
        device.receive(begin(mixed)[name])


def test_keys_are_gone_when_a_round_is_opened_in_another_way() -> None:
    table = ahead_party(10)
    name, device = victim(table)
    opening = dataclasses.replace(table.opening, session=b"n" * 16, round=3)
    assert isinstance(decode(device.receive(opening.encode())), AdvertiseKeys)
    assert not device.memory.ahead
    device.memory = device.memory.before_next()
    with pytest.raises(NoKeysAheadError):
        device.receive(begin(table, round=4)[name])


def test_who_abstains_is_in_no_first_sum() -> None:
    table = ahead_party(10)
    name, device = victim(table)
    silent = Device(None, Profile(name, LAX), memory=device.memory)
    with pytest.raises(OutOfStageError, match="abstains"):
        silent.receive(begin(table)[name])


@pytest.mark.parametrize(
    ("queries", "ahead", "error"),
    [(2, 1, OutOfStageError), (1, 2, NotCanonicalError), (1, 255, NotCanonicalError)],
)
def test_keys_are_given_with_the_last_sum_alone(
    queries: int, ahead: int, error: type[Exception]
) -> None:
    at = first_sum(queries=queries).unmask()
    request = dataclasses.replace(decode_as(Unmask, at.request), ahead=ahead)
    before = at.victim.memory
    with pytest.raises(error):
        at.victim.receive(request.encode())
    assert at.victim.memory == before


def test_a_device_that_takes_the_server_for_malicious_gives_no_keys_ahead() -> None:
    at = first_sum(MALICIOUS).unmask()
    request = dataclasses.replace(decode_as(Unmask, at.request), ahead=1)
    with pytest.raises(OutOfStageError, match="semi-honest"):
        at.victim.receive(request.encode())


@pytest.mark.parametrize("wrong", ["missing", "another's", "too few", "of low order"])
def test_a_server_takes_no_wrong_keys(wrong: str) -> None:
    table = party(contributions(10, 3), fast=True)
    server = Server(table.opening, table.terms, ask_ahead=True)
    for stage in (lambda: server.open(table.devices), lambda: server.first(np.zeros(3), NU)):
        for name, request in stage():
            assert server.take(name, table.devices[name].receive(request))
    (liar, request), *rest = list(server.unmask())
    reply = decode_as(UnmaskShares, table.devices[liar].receive(request))
    (keys,) = reply.keys
    sent: dict[str, tuple[Any, ...]] = {
        "missing": (),
        "another's": (dataclasses.replace(keys, device=keys.device + 1),),
        "too few": (dataclasses.replace(keys, mask_keys=keys.mask_keys[1:]),),
        "of low order": (dataclasses.replace(keys, mask_keys=(bytes(32), *keys.mask_keys[1:])),),
    }
    assert not server.take(liar, dataclasses.replace(reply, keys=sent[wrong]).encode())
    for name, one in rest:
        assert server.take(name, table.devices[name].receive(one))
    assert server.total().sum.count == 10
    assert liar not in server.keys_ahead
    assert len(server.keys_ahead) == 9


def test_keys_that_were_not_asked_for_are_refused() -> None:
    at = first_sum().unmask()
    name, request = next(iter(at.box.items()))
    reply = decode_as(UnmaskShares, at.table.devices[name].receive(request))
    keys = at.keys[0]
    assert not at.server.take(name, dataclasses.replace(reply, keys=(keys,)).encode())
    assert isinstance(at.server.faults[name], NotCanonicalError)


def test_keys_that_two_devices_sent_make_no_cohort() -> None:
    table = ahead_party(10)
    first, second = sorted(table.keys)[:2]
    table.keys[second] = dataclasses.replace(table.keys[first], device=second)
    with pytest.raises(
        AbortError, match=r"make no cohort: device .* has a key that another device has"
    ):
        table.oracle()
