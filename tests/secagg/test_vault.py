"""A device that is killed at any moment: it goes on where it was, and takes nothing back."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sqlite3
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rfa.secagg.device.memory import read_memory
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.device.store import FileStore
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import (
    AskedTwiceError,
    OtherBasisError,
    OutOfStageError,
    ReplayedRoundError,
    ShareLimitError,
    SpentUpdateError,
    VaultError,
)
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.in_process import InProcess
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import SumRequest, Unmask
from rfa.secagg.messages.stages import START, Moment, Stage
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.requests import Outbox
from tests.secagg.attack import altered, reach
from tests.secagg.party import MALICIOUS, SMALL, Party, contributions, party

NU = 1.5


def profile(table: Party, device: int) -> Profile:
    known = Identity(table.identities[device], table.known)
    return Profile(device, Policy(max_queries=2, honest_per_query=0), known)


def durable(table: Party, folder: Path) -> dict[int, DurableDevice]:
    """All devices of a party, each with a store of its own."""
    made = {
        device: DurableDevice(folder / f"{device}", profile(table, device))
        for device in table.devices
    }
    for device, one in made.items():
        one.bring(table.parts[device])
    return made


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])
def test_devices_that_restart_before_every_message_give_the_same_sum(
    terms: Terms, tmp_path: Path
) -> None:
    """Every request goes to a new process's worth of device, and comes twice."""
    table = party(contributions(6, 3), terms, queries=2)
    for one in durable(table, tmp_path).values():
        one.close()

    def restarting(outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        for device, request in outbox:
            replies: list[bytes] = []
            for _ in range(2):
                one = DurableDevice(tmp_path / f"{device}", profile(table, device))
                replies.append(one.receive(request))
                one.close()
            assert replies[0] == replies[1], "a retry replays the stored bytes"
            yield device, replies[0]

    ask = SecureOracle(table.opening, table.terms, table.parts, restarting, table.known)
    for v in (np.zeros(3), np.ones(3)):
        total = ask(v, NU)
        assert total.count == 6
    for device in table.devices:
        DurableDevice(tmp_path / f"{device}", profile(table, device)).end()


def question_for(table: Party, device: DurableDevice, name: int) -> bytes:
    """Bring a durable device in the place of another to its first request."""
    table.devices[name] = device  # type: ignore[assignment]
    return reach(table, SumRequest)[name]


def test_no_restart_takes_back_an_answer(tmp_path: Path) -> None:
    table = party(contributions(6, 3), queries=2)
    name = min(table.devices)
    device = durable(table, tmp_path)[name]
    request = question_for(table, device, name)
    reply = device.receive(request)
    device.close()
    again = DurableDevice(tmp_path / f"{name}", profile(table, name))
    with pytest.raises(AskedTwiceError):
        again.receive(altered(request, nu=9.0))
    assert again.receive(request) == reply


def test_a_failed_write_means_no_answer_and_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = party(contributions(6, 3))
    name = min(table.devices)
    device = durable(table, tmp_path)[name]
    request = reach(table, OpenRound)[name]

    def full(*_: object) -> None:
        msg = "database or disk is full"
        raise sqlite3.OperationalError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "keep", full)
        with pytest.raises(VaultError, match="disk is full"):
            device.receive(request)
    reply = device.receive(request)
    assert device.receive(request) == reply


def test_a_round_that_was_joined_is_not_joined_again_after_it_ended(tmp_path: Path) -> None:
    table = party(contributions(6, 3), number=4)
    name = min(table.devices)
    device = durable(table, tmp_path)[name]
    request = reach(table, OpenRound)[name]
    device.receive(request)
    device.end()
    with pytest.raises(VaultError, match="bring an update first"):
        device.receive(request)
    device.bring(table.parts[name])
    with pytest.raises(ReplayedRoundError):
        device.receive(altered(request, session=os.urandom(16)))
    device.receive(altered(request, session=os.urandom(16), round=5))


def test_one_update_serves_one_round(tmp_path: Path) -> None:
    """A server cannot ask more about an update by opening another round.

    It can as long as nothing but keys has left; and each round has keys of its own.
    """
    table = party(contributions(6, 3), number=4)
    name = min(table.devices)
    device = durable(table, tmp_path)[name]
    request = reach(table, OpenRound)[name]
    first = device.receive(request)
    with pytest.raises(ReplayedRoundError):
        device.receive(altered(request, session=os.urandom(16)))
    later = device.receive(altered(request, round=5))
    assert later != first
    other = DurableDevice(tmp_path / "other", profile(table, name))
    other.bring(table.parts[name])
    question_for(table, other, name)  # it has dealt shares
    with pytest.raises(AskedTwiceError):
        other.receive(altered(request, round=5))


def test_a_device_can_abstain(tmp_path: Path) -> None:
    table = party(contributions(6, 3))
    device = DurableDevice(tmp_path / "one", profile(table, 5))
    device.bring(None)
    assert b"rfa" in device.receive(table.opening.encode())


def test_the_store_is_its_owners_and_secrets_leave_it(tmp_path: Path) -> None:
    part = Contribution(np.full(500, 1234.5, np.float32))
    table = party({**contributions(5, 500, metrics=0), 5: part})
    device = durable(table, tmp_path)[5]
    path = tmp_path / "5"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    device.receive(reach(table, OpenRound)[5])
    kept = sqlite3.connect(path).execute("SELECT value FROM kept WHERE name = 'memory'")
    secret = read_memory(kept.fetchone()[0]).sealing
    assert secret in path.read_bytes()
    assert part.update.tobytes()[:64] in path.read_bytes()
    device.end()
    device.close()
    assert secret not in path.read_bytes()
    assert part.update.tobytes()[:64] not in path.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"not a database" * 100])
def test_a_damaged_store_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "one"
    device = DurableDevice(path, Profile(1))
    device.bring(contributions(1, 3)[5])
    device.close()
    path.write_bytes(damage)
    if damage:
        with pytest.raises(VaultError, match="store of device 1"):
            DurableDevice(path, Profile(1))
    else:
        with pytest.raises(VaultError, match="bring an update first"):
            DurableDevice(path, Profile(1)).receive(b"")
    with pytest.raises(VaultError):
        DurableDevice(tmp_path, Profile(1))


def test_a_memory_that_was_tampered_with_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "one"
    device = DurableDevice(path, Profile(1))
    device.bring(contributions(1, 3)[5])
    store = sqlite3.connect(path)
    store.execute("UPDATE kept SET value = zeroblob(80) WHERE name = 'memory'")
    store.commit()
    store.close()
    with pytest.raises(VaultError, match="the stored state of a round is damaged"):
        device.receive(b"")


def answer(path: Path, request: bytes, nu: float, results: object) -> None:
    """In another process: ask a device something that only one process may be answered."""
    try:
        DurableDevice(path, Profile(5)).receive(altered(request, nu=nu))
    except AskedTwiceError:
        results.put("refused")  # type: ignore[attr-defined]
    else:
        results.put("answered")  # type: ignore[attr-defined]


def test_two_processes_of_one_device_answer_once(tmp_path: Path) -> None:
    table = party(contributions(6, 3))
    device = DurableDevice(tmp_path / "5", Profile(5))
    device.bring(table.parts[5])
    request = question_for(table, device, 5)
    device.close()
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    both = [
        spawn.Process(target=answer, args=(tmp_path / "5", request, nu, results))
        for nu in (1.0, 2.0)
    ]
    for process in both:
        process.start()
    assert sorted(results.get(timeout=60) for _ in both) == ["answered", "refused"]
    for process in both:
        process.join()


def test_a_refusal_by_the_limit_survives_a_restart(tmp_path: Path) -> None:
    """Or a restart would let the server ask again for the bit that it tells."""
    table = party(contributions(6, 3), max_share=0.9)
    name = min(table.devices)
    device = durable(table, tmp_path)[name]
    table.devices[name] = device  # type: ignore[assignment]
    request = reach(table, SumRequest, masked_sum=1)[name]
    with pytest.raises(ShareLimitError):
        device.receive(altered(request, mass=1))
    device.close()
    again = DurableDevice(tmp_path / f"{name}", profile(table, name))
    with pytest.raises(OutOfStageError, match="has left the round"):
        again.receive(request)


@pytest.mark.parametrize("server_model", ServerModel)
def test_an_update_that_was_in_a_sum_is_not_brought_again(
    tmp_path: Path, server_model: ServerModel
) -> None:
    """A round that stopped, tried again with one device less, would tell on that device."""
    terms = Terms(0, 0.2, server_model=server_model, honest_per_query=0)
    table = party(contributions(6, 3), terms, queries=2)
    name = min(table.devices)
    device = durable(table, tmp_path)[name]
    table.devices[name] = device  # type: ignore[assignment]
    device.receive(reach(table, Unmask)[name])
    device.end()
    device.close()
    after = DurableDevice(tmp_path / f"{name}", profile(table, name))
    for _ in range(2):
        with pytest.raises(SpentUpdateError, match="in a sum with this very update before"):
            after.bring(table.parts[name])
        after.bring(contributions(6, 3, seed=1)[name])


def test_what_has_a_mark_goes_by_it(tmp_path: Path) -> None:
    """The same numbers may be in many sums if they stand for something else each time."""
    zeros, mark, other = np.zeros(3, np.float32), bytes([1]) * 32, bytes([2]) * 32
    parts = {11 * index + 5: Contribution(zeros, mark=mark) for index in range(6)}
    table = party(parts, Terms(0, 0.2))
    name = min(table.devices)
    device = durable(table, tmp_path)[name]
    table.devices[name] = device  # type: ignore[assignment]
    device.receive(reach(table, Unmask)[name])
    device.close()
    after = DurableDevice(tmp_path / f"{name}", profile(table, name))
    with pytest.raises(VaultError, match="in a sum with the very same before"):
        after.bring(Contribution(np.ones(3, np.float32), mark=mark))
    after.bring(Contribution(zeros, mark=other))
    after.bring(Contribution(zeros))


def test_the_basis_survives_a_restart(tmp_path: Path) -> None:
    table = party(contributions(6, 3))
    name, basis = min(table.devices), bytes(range(32))
    with DurableDevice(tmp_path / "one", profile(table, name)) as device:
        device.bring(dataclasses.replace(contributions(6, 3)[name], basis=basis))
    with DurableDevice(tmp_path / "one", profile(table, name)) as device:
        with pytest.raises(OtherBasisError, match="the same to all devices"):
            device.receive(table.opening.encode())
        assert device.receive(altered(table.opening.encode(), basis=basis))


def test_a_folder_or_a_foreign_file_is_left_as_it_is(tmp_path: Path) -> None:
    folder, foreign = tmp_path / "folder", tmp_path / "foreign"
    folder.mkdir(mode=0o755)
    foreign.write_text("somebody else's" * 100)
    foreign.chmod(0o644)
    for path, mode in ((folder, 0o755), (foreign, 0o644)):
        with pytest.raises(VaultError):
            DurableDevice(path, Profile(1))
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_store_belongs_to_one_device_and_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.touch(mode=0o644)
    with DurableDevice(str(path), Profile(1)) as device:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert device.due == START
    with pytest.raises(VaultError, match="not that of device 2"):
        DurableDevice(path, Profile(2))


def test_durable_devices_serve_in_one_process_and_from_any_thread(tmp_path: Path) -> None:
    table = party(contributions(6, 3))
    devices = durable(table, tmp_path)
    exchange = InProcess(devices, lost={5: Moment(0, Stage.SUM)})

    def in_threads(outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        def carry(sent: tuple[int, bytes]) -> list[tuple[int, bytes]]:
            return list(exchange(iter([sent])))

        with ThreadPoolExecutor(2) as pool:
            for replies in pool.map(carry, outbox):
                yield from replies

    ask = SecureOracle(table.opening, table.terms, table.parts, in_threads, table.known)
    assert ask(np.zeros(3), NU).count == 5
