"""Every task learns: a few steps on the real data, or on drawn characters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.lab.datasets.cache import load
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import TASKS
from rfa.lab.training.devices import Devices

pytest.importorskip("torch")

EMBEDDED = ("glyphs-linear", "glyphs-convnet", "digits-linear", "digits-mlp")
REAL = [name for name in TASKS if name not in EMBEDDED]

RATES = {
    "linear": 0.01,
    "convnet": 0.03,
    "lstm": 0.1,
    "mlp": 0.1,
    "digits-linear": 0.1,
    "emnist-digits-linear": 0.1,
}


def learn(name: str, directory: Path | None) -> Devices:
    """Train on the largest of twenty devices, and check that it helps there."""
    task = TASKS[name]
    few = {"devices": 20, "devices_per_round": 5, "local_steps": 15, "eval_examples": 200}
    rate = RATES.get(name) or RATES[name.rpartition("-")[2]]
    settings = Settings.of(**{"task": name, "learning_rate": rate, **few})
    population = task.load(directory, partition=settings.training.partition, devices=20)
    devices = Devices(settings, task, population)
    device = int(np.argmax(devices.weights))
    w = devices.initial()
    before = devices.evaluate(w, device)
    after = devices.evaluate(w + devices.train(w, 0, device), device)
    assert after.train_loss < 0.95 * before.train_loss
    if settings.training.weights == "examples":
        assert after.train_count == devices.weights[device]
    return devices


@pytest.mark.parametrize("name", REAL)
def test_a_task_learns_from_real_data(name: str, real_data: Path) -> None:
    learn(name, real_data)


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_task_learns_from_what_needs_no_download(name: str) -> None:
    devices = learn(name, None)
    kind = "synthetic" if name.startswith("glyphs") else "real images"
    assert kind in devices.task.note(devices.population.names)


def test_the_digits_are_those_of_scikit_learn() -> None:
    task = TASKS["digits-linear"]
    population = load(task.reader, partition="iid", devices=20)
    assert population.x.shape == (1797, 64)
    assert (population.x.max(), int(population.x.sum(dtype=np.int64))) == (16, 561_718)
    assert np.bincount(population.y).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip
    first = np.flatnonzero((population.x[:, :10] == [0, 0, 5, 13, 9, 1, 0, 0, 0, 0]).all(axis=1))
    assert population.y[first].tolist() == [0], "the first image of the set is a 0"
    assert set(np.diff(population.offsets)) == {89, 90}


def test_made_up_users_are_called_so(real_data: Path) -> None:
    task = TASKS["sent140-linear"]
    note: Any = task.note(load(task.reader, real_data).names)
    assert "artificial devices" in note
    assert task.note(["alice", "bob"]) == ""
