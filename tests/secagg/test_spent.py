"""An update is in one sum: from when on it is spent, and who may say that it is not."""

from __future__ import annotations

import dataclasses
import multiprocessing
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rfa.secagg.device.profile import Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import OutOfStageError, ShareLimitError, SpentUpdateError
from rfa.secagg.messages.opening import Message
from rfa.secagg.messages.round import Roster, SumRequest, Unmask
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms
from tests.secagg.attack import NU, altered, reach
from tests.secagg.party import Party, contributions, party
from tests.secagg.test_vault import durable, profile

AGAIN = "in a sum with this very update before"


def masked_once(
    folder: Path, server_model: ServerModel, stage: type[Message] = SumRequest
) -> tuple[Party, int, DurableDevice]:
    """A device of a round that has answered the request of a stage."""
    terms = Terms(0, 0.2, server_model=server_model, honest_per_query=0)
    table = party(contributions(6, 3), terms, queries=2, number=4)
    name = min(table.devices)
    device = durable(table, folder)[name]
    table.devices[name] = device  # type: ignore[assignment]
    device.receive(reach(table, stage)[name])
    return table, name, device


@pytest.mark.parametrize("server_model", ServerModel)
def test_an_update_is_spent_when_its_masked_input_leaves(
    tmp_path: Path, server_model: ServerModel
) -> None:
    """Others may open the sum though this device's own request for it is lost."""
    table, name, device = masked_once(tmp_path, server_model)
    device.end(4)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        device.bring(table.parts[name])
    device.close()
    after = DurableDevice(tmp_path / f"{name}", profile(table, name))
    with pytest.raises(SpentUpdateError, match=AGAIN):
        after.bring(table.parts[name])
    after.bring(contributions(6, 3, seed=1)[name])
    with pytest.raises(SpentUpdateError, match=AGAIN):
        after.bring(table.parts[name])


@pytest.mark.parametrize("server_model", ServerModel)
def test_an_update_is_not_spent_before_anything_of_it_leaves(
    tmp_path: Path, server_model: ServerModel
) -> None:
    table, name, device = masked_once(tmp_path, server_model, Roster)
    device.end(4)
    device.bring(table.parts[name])


def test_a_server_that_is_trusted_may_say_that_no_sum_was_opened(tmp_path: Path) -> None:
    """Or a round that stopped would lock out an app that always has the same update."""
    table, name, device = masked_once(tmp_path, ServerModel.SEMI_HONEST)
    for number in (3, None):  # the word must be about this very round
        other = masked_once(tmp_path / f"{number}", ServerModel.SEMI_HONEST)[2]
        other.end(number, opened=False)
        other.end(4, opened=True)
        with pytest.raises(SpentUpdateError, match=AGAIN):
            other.bring(table.parts[name])
    device.end(4, opened=False)
    device.bring(table.parts[name])


def test_a_server_that_is_not_trusted_takes_no_mark_back(tmp_path: Path) -> None:
    table, name, device = masked_once(tmp_path, ServerModel.MALICIOUS)
    device.end(4, opened=False)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        device.bring(table.parts[name])


def test_a_device_that_opened_a_sum_knows_better(tmp_path: Path) -> None:
    """Also if it left the round after it, by the limit on shares."""
    table, name, device = masked_once(tmp_path / "1", ServerModel.SEMI_HONEST, Unmask)
    device.end(4, opened=False)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        device.bring(table.parts[name])
    table = party(contributions(6, 3), max_share=0.9, number=4)
    device = durable(table, tmp_path / "2")[name]
    table.devices[name] = device  # type: ignore[assignment]
    request = reach(table, SumRequest, masked_sum=1)[name]
    with pytest.raises(ShareLimitError):
        device.receive(altered(request, mass=1))
    device.end(4, opened=False)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        device.bring(table.parts[name])


def overlapping(
    folder: Path, session: bytes | None = None, queries: int = 1
) -> tuple[int, dict[str, tuple[Party, DurableDevice, bytes]]]:
    """Two runs that one device is in with the same update, both about to ask for their sum."""
    runs: dict[str, tuple[Party, DurableDevice, bytes]] = {}
    for run in ("a", "b"):
        table = party(contributions(6, 3), queries=queries, number=4)
        if session:
            table.opening = dataclasses.replace(table.opening, session=session)
        name = min(table.devices)
        device = shared(folder, run, table, name)
        device.bring(table.parts[name])
        table.devices[name] = device  # type: ignore[assignment]
        runs[run] = table, device, reach(table, SumRequest)[name]
    return min(runs["a"][0].devices), runs


def shared(folder: Path, run: str, table: Party, name: int) -> DurableDevice:
    """The store of a run, beside what outlives it."""
    return DurableDevice(folder / run, profile(table, name), spent=folder / "spent")


@pytest.mark.parametrize("session", [None, bytes(range(16))], ids=["own sessions", "one session"])
def test_of_two_runs_at_once_one_gets_the_update(tmp_path: Path, session: bytes | None) -> None:
    """The difference of their sums would be one device; a server may name both runs alike."""
    name, runs = overlapping(tmp_path, session)
    (_, first, asked), (table, second, also) = runs.values()
    reply = first.receive(asked)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        second.receive(also)
    second.close()
    second = shared(tmp_path, "b", table, name)
    for nu in (NU, 2 * NU):
        with pytest.raises(OutOfStageError, match="has left the round"):
            second.receive(altered(also, nu=nu))
    assert first.receive(asked) == reply


def test_the_run_that_has_the_update_asks_again_about_it(tmp_path: Path) -> None:
    _, runs = overlapping(tmp_path, queries=2)
    table, device, _ = runs["a"]
    again = party(table.parts, queries=2, number=5)
    name = min(again.devices)
    device.bring(table.parts[name])
    again.devices[name] = device  # type: ignore[assignment]
    assert device.receive(reach(again, SumRequest, masked_sum=1)[name])


def test_a_run_takes_back_its_own_mark_alone(tmp_path: Path) -> None:
    name, runs = overlapping(tmp_path)
    (table, first, asked), (_, second, also) = runs.values()
    first.receive(asked)
    with pytest.raises(SpentUpdateError):
        second.receive(also)
    second.end(4, opened=False)
    third = shared(tmp_path, "c", table, name)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        third.bring(table.parts[name])
    first.end(4, opened=False)
    third.bring(table.parts[name])


def test_a_run_that_has_not_masked_takes_no_mark_back(tmp_path: Path) -> None:
    name, runs = overlapping(tmp_path)
    (table, first, asked), (_, second, _) = runs.values()
    first.receive(asked)
    second.end(4, opened=False)
    with pytest.raises(SpentUpdateError, match=AGAIN):
        second.bring(table.parts[name])


def mask(folder: Path, run: str, request: bytes, begin: Any, results: Any) -> None:
    """In another process: ask the device of a run for its masked input."""
    policy = Policy(max_queries=2, honest_per_query=0)
    device = DurableDevice(folder / run, Profile(5, policy), spent=folder / "spent")
    begin.wait(60)
    try:
        device.receive(request)
    except SpentUpdateError:
        results.put("refused")
    else:
        results.put("answered")


def test_two_processes_mask_an_update_once(tmp_path: Path) -> None:
    """Both stores are locked from the check to the mark."""
    _, runs = overlapping(tmp_path)
    for _, device, _ in runs.values():
        device.close()
    spawn = multiprocessing.get_context("spawn")
    results, begin = spawn.Queue(), spawn.Barrier(2)
    both = [
        spawn.Process(target=mask, args=(tmp_path, run, request, begin, results))
        for run, (_, _, request) in runs.items()
    ]
    for process in both:
        process.start()
    assert sorted(results.get(timeout=60) for _ in both) == ["answered", "refused"]
    for process in both:
        process.join()


def test_a_transaction_locks_what_outlives_the_run(tmp_path: Path) -> None:
    device = DurableDevice(tmp_path / "a", Profile(5), spent=tmp_path / "spent")
    other = sqlite3.connect(tmp_path / "spent", timeout=0)
    with device._kept.transaction():  # pyright: ignore[reportPrivateUsage]
        for order in ("SELECT * FROM kept", "BEGIN IMMEDIATE"):
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute(order)
    assert other.execute("SELECT * FROM kept").fetchall()
