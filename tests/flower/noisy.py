"""What tests of runs with noise share: a noise, what it costs, and the ledgers of nodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from flwr.app import Message

from rfa.flower import records
from rfa.flower.storage import DeviceStorage
from rfa.privacy import NoisySum, epsilon_of
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.messages.decoding import decode, decode_as
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import OpenFirstSum
from tests.flower.grid import LocalGrid
from tests.flower.toy import DIM, FIRST, NODES

NAMES = tuple(range(FIRST, FIRST + NODES))
HONEST = 6
"""Of eight nodes one may collude, and one may drop out."""
Z = 2.0
RHO = NoisySum(NODES, HONEST, Z, DIM, near=False).rho
"""What a sum of one-step RFA costs with this noise; no radius is learned here."""


def spent_by(home: Path, node: int, run: int = 7) -> float:
    """What the ledger of a node says, in all runs, whether or not its owner has named it."""
    named = DeviceStorage(home, run, node, str(node), named=True)
    unnamed = dataclasses.replace(named, named=False)
    storage = named if named.spent("train").exists() else unnamed
    vault, spent = storage.vault("train"), storage.spent("train")
    with DurableDevice(vault, Profile(node), spent=spent) as device:
        return device.spent_rho


def asked(message: Message) -> Any:
    """The message of the secure sum in one of Flower's; None if there is none."""
    record: Any = message.content.config_records["rfa"]
    return decode(bytes(record["request"]), 1 << 24) if "request" in record else None


def opening_in(message: Message) -> OpenRound | None:
    """How a round of the secure sum begins, from what a node is sent; None if that says nothing."""
    record: Any = message.content.config_records["rfa"]
    if records.FIRST in message.content:
        first: Any = message.content[records.FIRST]
        return decode_as(OpenRound, decode_as(OpenFirstSum, first["request"]).opening)
    found = decode(bytes(record["opening"])) if "opening" in record else asked(message)
    return found if isinstance(found, OpenRound) else None


def openings(grid: LocalGrid) -> list[OpenRound]:
    """How the server opened its rounds, once a node."""
    found = [opening_in(request) for _, request, _ in grid.seen]
    return [opening for opening in found if opening]


def kind_of(message: Message) -> str:
    """What a message of the secure sum is."""
    return type(asked(message)).__name__


def budget_of(rounds: float) -> float:
    """The epsilon of so many rounds of one sum."""
    return epsilon_of(rounds * RHO, 1e-5)
