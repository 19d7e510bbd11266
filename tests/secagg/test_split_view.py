"""The split-view attack: a server that tells each device of other drop-outs.

To expose device i, the server needs its self-mask, so its neighbors must believe that it survived,
and the keys of all its neighbors, so t of the neighbors of each must believe that it dropped out.
No device opens both kinds of share of anyone, and none is told of more than f drop-outs; still it
can be done, by a matching of devices to those whom each is told to be gone. Only devices that
compare what they were told can see it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.secagg.crypto.graph import neighbors
from rfa.secagg.device.membership import Membership
from rfa.secagg.errors import DisagreementError, SecAggError
from rfa.secagg.messages.round import SurvivorList, Unmask
from rfa.secagg.messages.values import write_bitmap
from rfa.secagg.security.parameters import Parameters, ServerModel, derive
from rfa.secagg.server.machine import Server
from tests.secagg.party import Party, contributions, exactly, party
from tests.secagg.view import Known, determined, seats

COUNT, COLLUDERS, DROPOUTS = 24, 2, 3


def rumors(parameters: Parameters, victim: int, colluders: set[int]) -> dict[int, set[int]]:
    """Whom each device must believe to be gone, so that the victim is exposed.

    A flow: each honest device can be told of f drop-outs among its neighbors; each honest
    neighbor of the victim must be believed gone by t devices, colluders included.
    """
    size = range(parameters.cohort)
    near = {place: set(_neighbors(parameters, place)) for place in size}
    targets = near[victim] - colluders
    wanted = {target: parameters.threshold - len(near[target] & colluders) for target in targets}
    told: dict[int, set[int]] = {place: set() for place in size if place not in colluders}
    for target in targets:
        for _ in range(wanted[target]):
            assert _augment(target, told, near, parameters.num_dropouts, set())
    return told


def _augment(
    target: int,
    told: dict[int, set[int]],
    near: dict[int, set[int]],
    most: int,
    seen: set[int],
) -> bool:
    """Find one more device that can be told that the target is gone, moving others if need be."""
    for place, gone in told.items():
        if place in seen or place == target or target in gone or place not in near[target]:
            continue
        seen.add(place)
        if len(gone) < most:
            gone.add(target)
            return True
        for other in sorted(gone):
            gone.remove(other)
            if _augment(other, told, near, most, seen):
                gone.add(target)
                return True
            gone.add(other)
    return False


def _neighbors(parameters: Parameters, place: int) -> list[int]:
    return neighbors(place, parameters.cohort, parameters.degree)


def attack(parameters: Parameters) -> tuple[Party, list[Known], int, list[SecAggError]]:
    """An honest round up to the parts, and then the rumors."""
    table = party(contributions(COUNT, 2), exactly(parameters))
    server = Server(table.opening, table.terms, table.known)
    for stage in (
        lambda: server.open(table.devices),
        server.roster,
        lambda: server.ask(np.ones(2), 1.0),
    ):
        for device, reply in table.carry(stage()):
            assert server.take(device, reply)
    at = {seat.position: seat.device for seat in seats(table.said, table.known, {})}
    victim, colluders = 10, {9, 11}
    refused: list[SecAggError] = []
    for place, gone in rumors(parameters, victim, colluders).items():
        bitmap = write_bitmap(set(range(COUNT)) - gone, COUNT)
        requests: list[Any] = [Unmask(table.opening.session, 0, bitmap, ())]
        if parameters.server_model == ServerModel.MALICIOUS:
            requests.insert(0, SurvivorList(table.opening.session, 0, bitmap))
        for message in requests:
            list(table.carry(iter([(at[place], message.encode())])))
        refused += [error for one, error in table.exchange.refused.items() if one == at[place]]
    known = determined(table.said, table.known, frozenset(at[place] for place in colluders))
    return table, known, at[victim], refused


def _no_check(*_: object) -> None:
    """Where a device would ask for a quorum."""


def malicious() -> Parameters:
    return derive(
        COUNT,
        num_colluders=COLLUDERS,
        num_dropouts=DROPOUTS,
        min_honest=10,
        server_model=ServerModel.MALICIOUS,
    )


def test_the_check_of_consistency_stops_it() -> None:
    _, known, _, refused = attack(malicious())
    assert known == []
    assert len(refused) == COUNT - COLLUDERS
    assert all(isinstance(error, DisagreementError) for error in refused)


def test_without_the_check_the_victim_is_exposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same parameters, same limits on drop-outs; only the quorum is not asked for."""
    monkeypatch.setattr(Membership, "check_quorum", _no_check)
    _, known, victim, refused = attack(malicious())
    assert not refused
    assert frozenset({victim}) in [one.members for one in known]


def test_devices_that_trust_the_server_are_exposed_by_a_malicious_server() -> None:
    """Which is why the threat model claims nothing for them against such a server."""
    parameters = derive(COUNT, num_colluders=COLLUDERS, num_dropouts=DROPOUTS, min_honest=10)
    _, known, victim, refused = attack(parameters)
    assert not refused
    assert frozenset({victim}) in [one.members for one in known]
