"""A task small enough to run in no time: points around class centers, a shift for each device."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rfa._types import Array, Floats, Ints
from rfa.aggregators import SumAggregator
from rfa.lab.attacks.corruption import (
    DataAttack,
    UpdateAttack,
    corrupts_data,
    corrupts_updates,
    least_likely,
)
from rfa.lab.attacks.poisons import backdoor
from rfa.lab.datasets.dataset import Index, Reader
from rfa.lab.learners.linear import LinearLearner
from rfa.lab.tasks.task import Task
from rfa.oracle import RecordingOracle

DEVICES, FEATURES, CLASSES = 24, 30, 3


def lax(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under which few devices answer several queries, where sums are secure."""
    noisy = values.get("epsilon") or values.get("noise")
    implied = noisy and values.get("noise_model") != "central"
    secure = implied or values.get("secure") in {"unmasked", "on"}
    return ({"honest_per_query": 0} if secure else {}) | dict(values)


@dataclass(frozen=True)
class Velocity:
    v: Floats
    rounds: int = 0


@dataclass(frozen=True)
class HeavyBall(SumAggregator[Velocity]):
    """A private aggregator that carries an array: steps with momentum."""

    nu: float = 1.0

    def init(self) -> Velocity:
        return Velocity(np.zeros(1))

    def aggregate(self, oracles: Sequence[RecordingOracle], dim: int, state: Velocity) -> Floats:
        total = oracles[0](np.zeros(dim), self.nu)
        return self.nu * total.push / total.need("mass") + 0.5 * state.v

    def next_state(self, oracles: Sequence[RecordingOracle], state: Velocity) -> Velocity:
        total = oracles[0].last
        assert total is not None
        return Velocity(0.5 * state.v + self.nu * total.push / total.need("mass"), state.rounds + 1)


class Tiny(Reader):
    name = "tiny"
    files = ()
    shape = (FEATURES,)
    dtype = "float32"
    min_examples = 4
    train_share = 0.75

    def index(self, paths: Mapping[str, Path]) -> Index:
        rng = np.random.default_rng(3)
        sizes = rng.integers(12, 40, DEVICES)
        device = np.repeat(np.arange(DEVICES), sizes)
        names = [f"d{i:02}" for i in range(DEVICES)]
        return Index(names, device, rng.integers(0, CLASSES, len(device)).astype(np.uint8))

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        rng = np.random.default_rng(4)
        centers = rng.standard_normal((CLASSES, FEATURES))
        shifts = 0.5 * rng.standard_normal((DEVICES, FEATURES))
        noise = rng.standard_normal((len(dest), FEATURES))
        x = centers[index.y] + shifts[index.device] + noise
        out[dest[dest >= 0]] = x[dest >= 0]


@corrupts_data
def flip(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    return x, (y + 1) % attack.classes


@corrupts_updates
def backwards(attack: UpdateAttack) -> Any:
    return -10 * attack.updates[attack.corrupted]


@corrupts_updates
def deadly(attack: UpdateAttack) -> Any:
    os._exit(9)


@corrupts_updates
def loud(attack: UpdateAttack) -> Any:
    os.write(1, b"hello\n")
    return attack.updates[attack.corrupted]


@corrupts_updates
def wrong_shape(attack: UpdateAttack) -> Any:
    return attack.updates[0]


@corrupts_data
def broken(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    msg = "no data for you"
    raise RuntimeError(msg)


@corrupts_data
def by_round(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    return x + attack.round + attack.model[0], y


@corrupts_data
def chatty(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    print("a corruption may print what it likes")
    return x, y


def stamp(x: Any) -> Any:
    x[:, :3] = 4
    return x


OWN = backdoor(stamp, 1)
unmarked = print

TASK = Task(
    name="tests.tiny:TASK",
    title="points around class centers",
    reader=Tiny(),
    devices=DEVICES,
    prepare=lambda x: x,
    learner=lambda device: LinearLearner(FEATURES, CLASSES),
    poisons={"data": flip, "adaptive": least_likely, "backdoor": backdoor(stamp, 2)},
    defaults={
        "devices_per_round": 8,
        "batch_size": 5,
        "learning_rate": 0.1,
        "rounds": 12,
        "eval_every": 4,
    },
    per_aggregator={"sgd": {"batch_fraction": 0.1, "local_steps": 1}},
)
