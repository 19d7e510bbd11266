"""A run of the tiny task without processes: the reference for those with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rfa.lab.attacks.corruption import DataAttack
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import LocalEngine, State, play_round
from rfa.lab.training.devices import Devices, Tally
from tests import tiny


class InProcess:
    """The devices of a run, trained one after another in this process."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.kept: dict[int, Any] = {}

    def train(self, model: Any, t: int, chosen: Sequence[int], slots: Any = None) -> Any:
        updates: list[Any] = []
        for device in chosen:
            update, after = self.devices.take_part(model, self.kept.get(device), t, device)
            updates.append(update)
            if after is not None:
                self.kept[device] = after
        return np.stack(updates)

    def evaluate(self, model: Any, slots: Any = None) -> list[Tally]:
        u = self.kept if self.devices.settings.training.personalize else {}
        return [
            self.devices.evaluate(model + u.get(device, np.float32(0)), device)
            for device in range(self.devices.count)
        ]


def tiny_devices(**values: Any) -> Devices:
    settings = Settings.where_taken("tests.tiny:TASK", **tiny.lax(values))
    return Devices(settings, tiny.TASK, tiny.TASK.load(partition=settings.training.partition))


def play(devices: Devices, rounds: int) -> tuple[State, list[Any], LocalEngine]:
    pool: Any = InProcess(devices)
    engine = LocalEngine(devices, pool)
    state = State(0, devices.initial())
    facts: list[Any] = []
    for _ in range(rounds):
        state, fact = play_round(state, devices, engine)
        facts.append(fact)
    return state, facts, engine


def data_attack(classes: int) -> DataAttack:
    """An attack that knows nothing but the classes."""
    return DataAttack(
        round=0,
        device=0,
        classes=classes,
        model=np.zeros(1, np.float32),
        scores=lambda x: x,
        rng=np.random.default_rng(0),
    )
