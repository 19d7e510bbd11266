"""A server that plays honestly up to a stage, and then asks one device what it should not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rfa.secagg.device.machine import Device
from rfa.secagg.messages.decoding import decode, decode_as
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.round import (
    AdvertiseKeys,
    DeviceKeys,
    Roster,
    SumRequest,
    SurvivorList,
    Unmask,
)
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.machine import Server
from rfa.secagg.server.requests import Outbox
from rfa.secagg.transcript import leaf_of
from tests.secagg.party import Party, contributions, party

NU = 1.5
TERMS = Terms(
    colluder_fraction=0.1, max_dropout_fraction=0.2, min_honest_fraction=0.3, honest_per_query=0
)
STAGES = (OpenRound, Roster, SumRequest, SurvivorList, Unmask)


def reach(table: Party, stage: type[Message], masked_sum: int = 0) -> dict[int, bytes]:
    """Play honestly up to a stage: the requests of an honest server there, not yet delivered."""
    server = Server(table.opening, table.terms, table.known)
    box = dict(server.open(table.devices))
    if stage is OpenRound:
        return box
    box = deliver(table, server, box, server.roster)
    if stage is Roster:
        return box
    at = 0
    while True:
        box = deliver(table, server, box, lambda: server.ask(np.ones(table.opening.dim), NU))
        if stage is SumRequest and at == masked_sum:
            return box
        if table.opening.server_model == ServerModel.MALICIOUS:
            box = deliver(table, server, box, server.survivors)
            if stage is SurvivorList and at == masked_sum:
                return box
        box = deliver(table, server, box, server.unmask)
        if stage is Unmask and at == masked_sum:
            return box
        for device, request in box.items():
            assert server.take(device, table.devices[device].receive(request))
        server.total()
        box, at = {}, at + 1


def deliver(
    table: Party, server: Server, box: dict[int, bytes], then: Callable[[], Outbox]
) -> dict[int, bytes]:
    for device, request in box.items():
        assert server.take(device, table.devices[device].receive(request))
    return dict(then())


def refuses(
    device: Device, request: bytes, error: type[Exception], match: str | None = None
) -> None:
    """The device refuses by name, and is as it was before."""
    before = device.memory
    with pytest.raises(error, match=match):
        device.receive(request)
    assert device.memory is before


def altered(request: bytes, **changes: Any) -> bytes:
    return dataclasses.replace(decode(request), **changes).encode()


def victim_of(table: Party) -> int:
    return sorted(table.devices)[2]


def at_stage(
    stage: type[Message], *, terms: Terms = TERMS, masked_sum: int = 0, **how: Any
) -> tuple[Party, Device, bytes]:
    """A party at a stage, its victim, and the honest request that the victim would get."""
    options: dict[str, Any] = {"queries": 2} | how
    table = party(contributions(10, 3), terms, **options)
    box = reach(table, stage, masked_sum)
    victim = victim_of(table)
    return table, table.devices[victim], box[victim]


def adverts(table: Party) -> list[DeviceKeys]:
    return [
        decode_as(AdvertiseKeys, device.memory.advert).keys for device in table.devices.values()
    ]


def victim_keys(table: Party) -> DeviceKeys:
    return next(keys for keys in adverts(table) if keys.device == victim_of(table))


def victim_leaf(table: Party) -> bytes:
    return leaf_of(table.opening, victim_keys(table))


def victim_position(table: Party) -> int:
    """The position of the victim in its cohort."""
    roster = decode_as(Roster, table.devices[victim_of(table)].memory.roster)
    return roster.leaves.index(victim_leaf(table))
