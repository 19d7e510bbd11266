"""Whole recorded sessions: every message of a round, which another implementation can replay.

`python -m tests.secagg.test_session` writes the file anew, for a new version of the protocol. A
session holds what each device brings, its entropy (SHAKE-256 of a text, read from the front), every
request and reply in order, and the totals. Beside it stand requests with one byte changed, and the
error with which the device refuses each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.errors import SecAggError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.in_process import InProcess
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms
from rfa.secagg.server import table
from rfa.secagg.server.requests import Outbox
from rfa.secagg.statistics import mask_of
from rfa.secagg.transcript import PROTOCOL
from tests.secagg.party import drawn

FILE = Path(__file__).with_name("sessions.json")
SESSIONS: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
COUNT, DIM, NU = 6, 3, 1.5
BASIS = hashlib.sha256(b"model and config").digest()
GONE = 13
"""The device that drops out."""
MODELS = {
    "semi-honest": ServerModel.SEMI_HONEST,
    "malicious": ServerModel.MALICIOUS,
    "noise": ServerModel.SEMI_HONEST,
    "fast": ServerModel.SEMI_HONEST,
    "fast-malicious": ServerModel.MALICIOUS,
    "regrouped": ServerModel.SEMI_HONEST,
    "regrouped-malicious": ServerModel.MALICIOUS,
}
"""The sessions, with the server of each: one has noise, two are fast, and two more began so, but a
device is lost at the first sum."""
REGROUPED = Moment(0, Stage.ROSTER)
LOST = {name: REGROUPED if "regrouped" in name else Moment(0, Stage.SUM) for name in MODELS}
"""When the device drops out: in the fast ones after its input."""
NOISE = 1.25
Said = list[dict[str, Any]]


def number_of(index: int) -> int:
    return 11 + 2 * index


def contribution_of(index: int, name: str) -> Contribution:
    update = np.array([index - 2.5, 0.25 * index, (-1.0) ** index], np.float32)
    if name == "noise":
        return Contribution(update, basis=BASIS, equal_weights=True)
    return Contribution(update, (index + 1) / 8, (0.5 * index,), BASIS)


def opening_of(name: str) -> OpenRound:
    model, session = int(MODELS[name]), bytes(range(16))
    if name == "noise":
        names = mask_of(("mass", "near"))
        return OpenRound(session, 7, 1, DIM, 0, 0.0, model, names, 1, BASIS, NOISE)
    names, fast = mask_of(("mass", "squares", "near")), int(is_fast(name))
    return OpenRound(session, 7, 1, DIM, 1, 0.0, model, names, 0, BASIS, 0.0, fast)


def is_fast(name: str) -> bool:
    return name.startswith(("fast", "regrouped"))


def devices_of(name: str) -> dict[int, Device]:
    numbers = [number_of(index) for index in range(COUNT)]
    secrets = {number: hashlib.sha256(b"identity %d" % number).digest() for number in numbers}
    known = {number: identity_of(secret) for number, secret in secrets.items()}
    policy = Policy(3, 3, 1, honest_per_query=0)
    return {
        number: Device(
            contribution_of(index, name),
            Profile(number, policy, Identity(secrets[number], known)),
            entropy=drawn(f"device {number}"),
        )
        for index, number in enumerate(numbers)
    }


def play(name: str) -> tuple[Said, dict[str, Any]]:
    """A session of one sum in which a device drops out: what is said, and the total."""
    terms = Terms(0.1, 0.2, 0.3, server_model=MODELS[name])
    devices, said = devices_of(name), list[dict[str, Any]]()
    known = {
        number: identity_of(hashlib.sha256(b"identity %d" % number).digest()) for number in devices
    }
    exchange = InProcess(devices, {GONE: LOST[name]})

    def carry(outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        for number, request in outbox:
            answers = [reply for _, reply in exchange(iter([(number, request)]))]
            reply = answers[0].hex() if answers else None
            said.append({"device": number, "request": request.hex(), "reply": reply})
            yield from ((number, answer) for answer in answers)

    with mock.patch.object(table.os, "urandom", drawn("server")):
        ask = SecureOracle(opening_of(name), terms, devices, carry, known)
        total = ask(np.zeros(DIM), NU)
    assert ask.last is not None
    return said, {
        "push": total.push.tolist(),
        "statistics": dict(ask.last.statistics),
        "metrics": list(ask.last.metrics),
        "mass": str(ask.last.mass),
        "noise": total.noise,
        "charged": {str(number): device.spent_rho for number, device in devices.items()},
    }


@pytest.mark.parametrize("name", MODELS)
def test_the_library_says_what_was_recorded(name: str) -> None:
    said, total = play(name)
    recorded = SESSIONS["sessions"][name]
    assert said == recorded["said"]
    assert total == recorded["total"]
    assert SESSIONS["protocol"] == PROTOCOL.decode()


@pytest.mark.parametrize("name", MODELS)
def test_a_session_has_every_stage_and_a_device_that_drops_out(name: str) -> None:
    said = SESSIONS["sessions"][name]["said"]
    kinds = {type(decode(bytes.fromhex(one["request"]))).__name__ for one in said}
    wanted = {"OpenRound", "Unmask"}
    if is_fast(name):
        wanted.add("FirstSum")
    if not name.startswith("fast"):
        wanted |= {"Roster", "SumRequest"}
    if "malicious" in name and not name.startswith("fast"):
        wanted.add("SurvivorList")
    assert kinds == wanted
    assert {one["device"] for one in said if one["reply"] is None} == {GONE}
    there = COUNT if name.startswith("fast") else COUNT - 1
    assert SESSIONS["sessions"][name]["total"]["statistics"]["count"] == there


def refused(name: str) -> Said:
    """For each request that a device gets, what it says if one byte of it is another."""
    said = SESSIONS["sessions"][name]["said"] if SESSIONS else play(name)[0]
    number, wrong = number_of(0), list[dict[str, Any]]()
    mine = [one for one in said if one["device"] == number]
    for step, one in enumerate(mine):
        request = bytes.fromhex(one["request"])
        for place in sorted({0, 3, 4, 7, 8, 24, len(request) // 2, len(request) - 1}):
            changed = bytearray(request)
            changed[place] ^= 1
            error = answer_of(name, mine[:step], bytes(changed))
            wrong.append({"step": step, "byte": place, "error": error})
    return wrong


def answer_of(name: str, before: Said, request: bytes) -> str:
    """The error with which the first device refuses a request after others; empty if it answers."""
    device = devices_of(name)[number_of(0)]
    for one in before:
        assert device.receive(bytes.fromhex(one["request"])).hex() == one["reply"], name
    try:
        device.receive(request)
    except SecAggError as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize("name", MODELS)
def test_requests_with_a_byte_changed_are_refused_as_recorded(name: str) -> None:
    """What is still answered makes masks that do not cancel, or is of another round."""
    assert refused(name) == SESSIONS["refused"][name]
    errors = [one["error"] for one in SESSIONS["refused"][name]]
    assert len(set(errors)) > 5
    assert errors.count("") < len(errors) // 4


def write() -> None:
    """Write the file."""
    SESSIONS.clear()
    sessions = {name: dict(zip(("said", "total"), play(name), strict=True)) for name in MODELS}
    found: dict[str, Any] = {"protocol": PROTOCOL.decode(), "sessions": sessions}
    SESSIONS.update(found)
    found["refused"] = {name: refused(name) for name in MODELS}
    FILE.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    write()
