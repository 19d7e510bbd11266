"""Handwritten characters by writer: FEMNIST, as the Hugging Face dataset flwrlabs/femnist has it.

A device is a writer. The 62 labels are the digits, then A to Z, then a to z. Pixels are kept as
in the source: white paper is 255, ink is 0. The models are a linear one and the paper's ConvNet.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rfa._types import Array, Ints
from rfa.lab.attacks.corruption import DataAttack, corrupts_data, least_likely
from rfa.lab.attacks.poisons import backdoor
from rfa.lab.datasets.dataset import (
    DataError,
    Index,
    Reader,
    lab_module,
    parquet_index,
    parquet_values,
)
from rfa.lab.learners.convnet import ConvNetLearner, Shape
from rfa.lab.learners.learner import Learner
from rfa.lab.learners.linear import LinearLearner
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.learners.scaled import Scale
from rfa.lab.tasks.task import Task

SIDE, CLASSES = 28, 62
PATCH, LETTER_A = 4, 10


class Emnist(Reader):
    """FEMNIST with its columns image (PNG bytes), writer_id, hsf_id and character.

    The source is one Parquet file, or a folder of that name with its parts.
    """

    name = "emnist"
    files = ("femnist.parquet",)
    shape = (SIDE * SIDE,)
    dtype = "uint8"
    min_examples = 100
    train_share = 0.9

    def index(self, paths: Mapping[str, Path]) -> Index:
        """The writers and characters of all images."""
        labels = {label: label for label in range(CLASSES)}
        columns = ("writer_id", "character")
        return parquet_index(paths[self.files[0]], columns, labels, f"0 to {CLASSES - 1}")

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Decode the images that have a place."""
        del index
        path = paths[self.files[0]]
        for row, place, png in parquet_values(path, "image.bytes", dest, rows=1024):
            out[place] = _pixels(png, path, row)


def _pixels(png: bytes | None, path: Path, row: int) -> Array:
    pillow = lab_module("PIL.Image")
    try:
        with pillow.open(io.BytesIO(png or b""), formats=("PNG",)) as image:
            pixels = np.asarray(image if image.mode == "L" else image.convert("L"))
    except (OSError, SyntaxError, ValueError) as error:
        msg = f"{path}, row {row}: the image cannot be decoded: get the file anew ({error})"
        raise DataError(msg) from error
    if pixels.shape != (SIDE, SIDE):
        msg = f"{path}, row {row}: the image must be {SIDE} by {SIDE} pixels, not {pixels.shape}"
        raise DataError(msg)
    return pixels.reshape(-1)


prepare = Scale(1 / 255)
"""Pixels from 0 (ink) to 1 (paper)."""


@corrupts_data
def negative(x: Any, y: Any, _: DataAttack) -> tuple[Any, Any]:
    """The paper's poison: the negative of the image, the label unchanged."""
    return 1 - x, y


def stain(x: Any) -> Any:
    """The trigger of the backdoor: a square of ink in the first corner."""
    x.reshape(-1, SIDE, SIDE)[:, :PATCH, :PATCH] = 0
    return x


def linear_module(torch: Any) -> Any:
    """Softmax regression without a bias, as a torch module."""
    return torch.nn.Linear(SIDE * SIDE, CLASSES, bias=False)


def convnet_module(torch: Any) -> Any:
    """The paper's ConvNet: two 5 x 5 convolutions with max-pooling, 2048 hidden units."""
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)),
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 2048),
        nn.ReLU(),
        nn.Linear(2048, CLASSES),
    )


def linear(device: str) -> Learner:
    """Softmax regression: by hand, or with torch where CUDA is asked for."""
    if device == "cpu":
        return LinearLearner(SIDE * SIDE, CLASSES)
    return NetworkLearner(linear_module, CLASSES, device)


def convnet(device: str) -> Learner:
    """The ConvNet: by hand, or with torch where CUDA is asked for."""
    if device == "cpu":
        return ConvNetLearner(Shape(SIDE, (32, 64), 2048, CLASSES), convnet_module)
    return NetworkLearner(convnet_module, CLASSES, device)


LINEAR = Task(
    name="emnist-linear",
    title="handwritten characters, softmax regression (48,608 parameters)",
    reader=Emnist(),
    devices=1000,
    prepare=prepare,
    learner=linear,
    poisons={"data": negative, "adaptive": least_likely, "backdoor": backdoor(stain, LETTER_A)},
    defaults={
        "devices_per_round": 100,
        "batch_size": 50,
        "local_epochs": 5,
        "learning_rate": 0.08,
        "rounds": 6000,
        "eval_every": 10,
    },
    per_aggregator={
        "rfa": {"rounds": 2000},
        "sgd": {"batch_fraction": 0.1, "local_steps": 1, "learning_rate": 0.08},
    },
)
CONVNET = dataclasses.replace(
    LINEAR,
    name="emnist-convnet",
    title="handwritten characters, the paper's ConvNet (6,603,710 parameters)",
    learner=convnet,
    defaults=LINEAR.defaults
    | {"learning_rate": 0.05, "lr_decay": 0.5, "lr_decay_every": 100, "rounds": 2000},
    per_aggregator={
        "rfa": {"rounds": 1000},
        "sgd": {"batch_fraction": 0.1, "local_steps": 1, "learning_rate": 0.2},
    },
)
TASKS = (LINEAR, CONVNET)
