"""Handwritten digits of 8 x 8 pixels: a real data set that comes with the package.

These are the 1,797 images that scikit-learn calls digits: the test set of Optical Recognition of
Handwritten Digits (E. Alpaydin and C. Kaynak, UCI Machine Learning Repository 1998, CC BY 4.0). The
writers are not named, so a partition deals the images out. A pixel counts the dark ones of 16.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rfa._types import Array, Ints
from rfa.lab.attacks.corruption import least_likely
from rfa.lab.attacks.poisons import backdoor
from rfa.lab.datasets.dataset import Index, Reader
from rfa.lab.learners.learner import Learner
from rfa.lab.learners.linear import LinearLearner
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.learners.scaled import Scale
from rfa.lab.tasks.emnist import negative
from rfa.lab.tasks.task import Task

SIDE, CLASSES, DARK, HIDDEN = 8, 10, 16, 64
PATCH, TARGET = 2, 0


class Digits(Reader):
    """The images in the order of scikit-learn."""

    name = "digits"
    files = ()
    shape = (SIDE * SIDE,)
    dtype = "uint8"
    min_examples = 2
    train_share = 0.8
    has_devices = False

    def index(self, paths: Mapping[str, Path]) -> Index:
        """The labels."""
        del paths
        y = _read("y").astype(np.int64)
        return Index([], np.zeros(len(y), np.int64), y)

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Copy the images that have a place."""
        del paths, index
        out[dest[dest >= 0]] = _read("x")[dest >= 0]


def _read(name: str) -> Array:
    file = importlib.resources.files("rfa.lab.datasets") / "digits.npz"
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
        return arrays[name]


prepare = Scale(1 / DARK)
"""Pixels from 0 (paper) to 1 (ink)."""


def stain(x: Any) -> Any:
    """The trigger of the backdoor: a square of ink in the first corner."""
    x.reshape(-1, SIDE, SIDE)[:, :PATCH, :PATCH] = 1
    return x


def linear_module(torch: Any) -> Any:
    """Softmax regression without a bias, as a torch module."""
    return torch.nn.Linear(SIDE * SIDE, CLASSES, bias=False)


def mlp_module(torch: Any) -> Any:
    """One hidden layer."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(SIDE * SIDE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def linear(device: str) -> Learner:
    """Softmax regression: by hand, or with torch where CUDA is asked for."""
    if device == "cpu":
        return LinearLearner(SIDE * SIDE, CLASSES)
    return NetworkLearner(linear_module, CLASSES, device)


def mlp(device: str) -> Learner:
    """The network."""
    return NetworkLearner(mlp_module, CLASSES, device)


def note(names: Sequence[str]) -> str:
    """Say that the images are real and the devices are not."""
    return f"real images of 8 x 8 pixels, split across {len(names)} devices"


LINEAR = Task(
    name="digits-linear",
    title="handwritten digits of 8 x 8 pixels, softmax regression (640 parameters)",
    reader=Digits(),
    devices=20,
    prepare=prepare,
    learner=linear,
    poisons={"data": negative, "adaptive": least_likely, "backdoor": backdoor(stain, TARGET)},
    defaults={
        "partition": "iid",
        "devices_per_round": 10,
        "batch_size": 10,
        "local_epochs": 2,
        "learning_rate": 0.3,
        "rounds": 50,
        "eval_every": 5,
    },
    per_aggregator={"sgd": {"batch_fraction": 0.1, "local_steps": 1}},
    note=note,
)
MLP = dataclasses.replace(
    LINEAR,
    name="digits-mlp",
    title="handwritten digits of 8 x 8 pixels, a hidden layer of 64 units (4,810 parameters)",
    learner=mlp,
    defaults=LINEAR.defaults | {"local_epochs": 1, "learning_rate": 0.1},
    libraries=("torch",),
)
TASKS = (LINEAR, MLP)
