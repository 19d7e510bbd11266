"""Real rounds, written down: for each stage, where devices and server were, and what was said."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass, field

import numpy as np

from rfa.secagg.device.machine import Device
from rfa.secagg.device.memory import Memory
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.server.machine import Server
from rfa.secagg.server.requests import Outbox
from tests.secagg.party import MALICIOUS, SMALL, Party, contributions, party

NU = 1.5
FRUGAL = Policy(max_queries=16, honest_per_query=0, epsilon=10.0)
"""A policy that bears the two sums of a round with noise, and hardly more."""


@dataclass(frozen=True)
class Asked:
    """A device before a request that an honest server sends it."""

    device: Device
    memory: Memory
    request: bytes


@dataclass(frozen=True)
class Answered:
    """A server that waits for replies, the honest replies, and what it would do next."""

    server: Server
    replies: dict[int, bytes]
    then: str


@dataclass
class Session:
    """A round as it was played."""

    asked: list[Asked] = field(default_factory=list[Asked])
    answered: list[Answered] = field(default_factory=list[Answered])


def _play(table: Party) -> Session:
    session, server = Session(), Server(table.opening, table.terms, table.known)
    stages = ["open", "roster"]
    for _ in range(table.opening.masked_sums):
        stages.append("ask")
        if table.opening.server_model == ServerModel.MALICIOUS:
            stages.append("survivors")
        stages += ["unmask", "total"]
    for stage, then in zip(stages, [*stages[1:], ""], strict=True):
        if stage == "total":
            server.total()
            continue
        sent = dict(go_on(server, stage, list(table.devices), table.opening.dim))
        waiting, replies = copy.deepcopy(server), dict[int, bytes]()
        for name, request in sent.items():
            device = table.devices[name]
            session.asked.append(Asked(device, device.memory, request))
            replies[name] = device.receive(request)
        session.answered.append(Answered(waiting, replies, then))
        for name, reply in replies.items():
            assert server.take(name, reply)
    return session


def go_on(server: Server, stage: str, devices: list[int], dim: int) -> Outbox:
    """What a server sends in a stage."""
    if stage == "open":
        return server.open(devices)
    return server.ask(np.ones(dim), NU) if stage == "ask" else getattr(server, stage)()


@functools.cache
def sessions() -> tuple[Session, ...]:
    """A round under each server model, one with a limit on shares, and one with noise."""
    return (
        _play(party(contributions(6, 3), SMALL, queries=2)),
        _play(party(contributions(6, 3), MALICIOUS, queries=2)),
        _play(party(contributions(6, 3), SMALL, queries=1, max_share=0.9)),
        _play(party(6, SMALL, queries=2, noise=1.0, policy=FRUGAL)),
    )
