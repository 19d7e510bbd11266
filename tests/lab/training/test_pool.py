"""Worker processes do what one process would, and fail in a way one can understand."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.lab import forkserver
from rfa.lab.processes import WorkerError
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import LocalEngine, State, evaluate, play_round
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices
from rfa.lab.training.kept import NEVER, KeptFile, Slots
from rfa.lab.training.pool import open_pool
from tests.lab.simulation.lab import play, tiny_devices


def play_with(devices: Any, workers: int, rounds: int, kept: Path | None = None) -> Any:
    state = State(0, devices.initial())
    slots = Slots.none(devices.count) if kept else None
    with open_pool(devices, workers, kept=kept) as pool:
        engine = LocalEngine(devices, pool, slots)
        for _ in range(rounds):
            state, _ = play_round(state, devices, engine)
        return state, evaluate(state, engine)


@pytest.mark.parametrize(
    "corruption", ["none", "data", "adaptive", "omniscient", "tests.tiny:chatty"]
)
def test_the_number_of_workers_makes_no_difference(corruption: str) -> None:
    rho = 0.0 if corruption == "none" else 0.2
    devices = tiny_devices(corruption=corruption, rho=rho)
    one, seen = play_with(devices, 1, 3)
    three, seen_by_three = play_with(devices, 3, 3)
    assert np.array_equal(one.model, three.model)
    assert seen.train_loss == seen_by_three.train_loss
    assert np.array_equal(seen.device_accuracy, seen_by_three.device_accuracy)
    reference, _, _ = play(devices, 3)
    assert np.allclose(one.model, reference.model, atol=1e-6)


@pytest.mark.parametrize("task", ["digits-linear", "digits-mlp"])
def test_forked_workers_give_the_bits_of_started_ones(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.of(task, corruption="data", rho=0.2)
    devices = Devices(settings, find_task(task), find_task(task).load(partition="iid", devices=20))
    forked, seen = play_with(devices, 2, 3)
    again, _ = play_with(devices, 1, 3)
    monkeypatch.setattr(forkserver, "CAN_FORK", False)
    started, seen_before = play_with(devices, 1, 3)
    assert np.array_equal(forked.model, started.model)
    assert np.array_equal(again.model, started.model)
    assert seen.train_loss == seen_before.train_loss


def test_personal_parameters_stay_on_their_devices(tmp_path: Path) -> None:
    devices = tiny_devices(personalize=True)
    state, seen = play_with(devices, 2, 4, tmp_path / "u")
    three, _ = play_with(devices, 3, 4, tmp_path / "another")
    assert np.array_equal(state.model, three.model)
    reference, _, engine = play(devices, 4)
    assert np.allclose(state.model, reference.model, atol=1e-5)
    assert seen.train_loss == pytest.approx(evaluate(reference, engine).train_loss, rel=1e-4)


@pytest.mark.parametrize(
    ("corruption", "says"),
    [
        ("tests.tiny:broken", "failed in round 0: RuntimeError: no data for you"),
        ("tests.tiny:wrong_shape", "must return numbers of shape"),
    ],
)
def test_a_corruption_that_fails_is_named(corruption: str, says: str) -> None:
    devices = tiny_devices(corruption=corruption, rho=0.5)
    with pytest.raises(Exception, match=says):
        play_with(devices, 2, 1)


def test_a_worker_that_is_killed_is_named() -> None:
    devices = tiny_devices()
    state = State(0, devices.initial())
    with open_pool(devices, 2) as pool:
        victim: Any = pool._free.get()  # pyright: ignore[reportPrivateUsage]
        pool._free.put(victim)  # pyright: ignore[reportPrivateUsage]
        pool._free.get()  # the other one: the dead one has all the work to do  # pyright: ignore[reportPrivateUsage]
        os.kill(victim._process.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="was killed by signal 9: start the run again"):
            play_round(state, devices, LocalEngine(devices, pool))


def test_no_file_is_left_behind_and_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rfa.lab.training.pool.SHARED_MEMORY", tmp_path)
    devices = tiny_devices()
    with open_pool(devices, 2) as pool:
        workers: list[Any] = [pool._free.get() for _ in range(2)]  # pyright: ignore[reportPrivateUsage]
        assert not list(tmp_path.iterdir())
    assert all(worker._process.returncode is not None for worker in workers)


def test_what_a_checkpoint_uses_is_never_written_to(tmp_path: Path) -> None:
    """Random moves, saves and kills against a plain dictionary."""
    rng = np.random.default_rng(0)
    file = KeptFile(tmp_path / "u", devices=4, dim=3)
    slots = Slots.none(4)
    saved, kept, now = slots.save().copy(), dict[int, float](), dict[int, float]()
    for step in range(500):
        action = rng.choice(["move", "move", "move", "save", "kill"])
        if action == "move":
            device = int(rng.integers(4))
            u = file.read(device, int(slots.current[device]))
            assert (None if u is None else u[0]) == now.get(device)
            file.write(device, slots.move(device), np.full(3, step + 1, np.float32))
            now[device] = step + 1
        elif action == "save":
            saved, kept = slots.save().copy(), dict(now)
        else:
            slots, now = Slots(saved), dict(kept)
    assert NEVER not in slots.current


def test_the_work_is_shared_out_evenly() -> None:
    devices = tiny_devices()
    with open_pool(devices, 2) as pool:
        parts: list[list[int]] = pool._share_out(range(24))  # pyright: ignore[reportPrivateUsage]
    assert sorted(device for part in parts for device in part) == list(range(24))
    busy = [0, 0]
    for part in parts:  # who is free first takes the next
        busy[busy.index(min(busy))] += sum(devices.cost(device) for device in part)
    assert max(busy) - min(busy) <= max(devices.cost(device) for device in range(24))
    assert len(parts) < 24
