"""The digits of FEMNIST without their writers: data like MNIST, which a partition deals out.

The settings are those of the benchmark of ByzFL (Gonzalez et al. 2025) on MNIST: ten devices, one
batch of 25 a round, worker momentum 0.9, a learning rate of 0.1, and 800 rounds. Its model is a
ConvNet of 431,080 parameters; this one is softmax regression. A sixth as many examples as devices
train on are there to test, as in MNIST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rfa._types import Array, Ints
from rfa.lab.attacks.corruption import least_likely
from rfa.lab.attacks.poisons import backdoor
from rfa.lab.datasets.dataset import Index
from rfa.lab.learners.own_module import LinearModel
from rfa.lab.tasks.emnist import INK, LETTER_A, SIDE, Emnist, negative, prepare, stain_of_ones
from rfa.lab.tasks.task import Task

CLASSES, TARGET = LETTER_A, 0


class EmnistDigits(Emnist):
    """The images of digits, ink as 1, in the order of the source."""

    name = "emnist-digits"
    min_examples = 2
    train_share = 6 / 7
    has_devices = False
    source = "emnist"

    def __init__(self) -> None:
        """Take ink as 1, as MNIST does."""
        super().__init__(polarity=INK)

    def index(self, paths: Mapping[str, Path]) -> Index:
        """The labels of the digits."""
        y = self._labels(paths)
        digits = y[y < CLASSES]
        return Index([], np.zeros(len(digits), np.int64), digits)

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Decode the digits that have a place."""
        y = self._labels(paths)
        places = np.full(len(y), -1, np.int64)
        places[y < CLASSES] = dest
        super().fill(paths, index, places, out)

    def _labels(self, paths: Mapping[str, Path]) -> Array:
        """The labels of all characters of the source."""
        return super().index(paths).y


def note(names: Sequence[str]) -> str:
    """Say that the images are real and the devices are not."""
    return f"real images of digits by many writers, split across {len(names)} devices"


LINEAR = Task(
    name="emnist-digits-linear",
    title="handwritten digits of 28 x 28 pixels, softmax regression (7,840 parameters)",
    reader=EmnistDigits(),
    devices=10,
    prepare=prepare,
    learner=LinearModel(SIDE * SIDE, CLASSES),
    poisons={
        "data": negative,
        "adaptive": least_likely,
        "backdoor": backdoor(stain_of_ones, TARGET),
    },
    defaults={
        "partition": "similarity:gamma=1",
        "devices_per_round": 10,
        "weights": "equal",
        "batch_size": 25,
        "local_steps": 1,
        "worker_momentum": 0.9,
        "learning_rate": 0.1,
        "rounds": 800,
        "eval_every": 50,
    },
    note=note,
)
TASKS = (LINEAR,)
