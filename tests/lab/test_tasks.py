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

REAL = [name for name in TASKS if not name.startswith("glyphs")]

RATES = {"linear": 0.01, "convnet": 0.03, "lstm": 0.1}


def learn(name: str, directory: Path | None) -> Devices:
    """Train on the largest of twenty devices, and check that it helps there."""
    task = TASKS[name]
    few = {"devices": 20, "devices_per_round": 5, "local_steps": 15, "eval_examples": 200}
    settings = Settings.of(**{"task": name, "learning_rate": RATES[name.rpartition("-")[2]], **few})
    devices = Devices(settings, task, load(task.reader, directory))
    device = int(np.argmax(devices.weights))
    w = devices.initial()
    before = devices.evaluate(w, device)
    after = devices.evaluate(w + devices.train(w, 0, device), device)
    assert after.train_loss < 0.95 * before.train_loss
    assert after.train_count == devices.weights[device]
    return devices


@pytest.mark.parametrize("name", REAL)
def test_a_task_learns_from_real_data(name: str, real_data: Path) -> None:
    learn(name, real_data)


@pytest.mark.parametrize("name", ["glyphs-linear", "glyphs-convnet"])
def test_a_task_learns_from_drawn_characters(name: str) -> None:
    devices = learn(name, None)
    assert "synthetic" in devices.task.note(devices.population.names)


def test_made_up_users_are_called_so(real_data: Path) -> None:
    task = TASKS["sent140-linear"]
    note: Any = task.note(load(task.reader, real_data).names)
    assert "artificial devices" in note
    assert task.note(["alice", "bob"]) == ""
