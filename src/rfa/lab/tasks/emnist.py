"""Handwritten characters by writer: FEMNIST, as the Hugging Face dataset flwrlabs/femnist has it.

A device is a writer. The 62 labels are the digits, then A to Z, then a to z. The models are a
linear one and the paper's ConvNet. Two things that the paper leaves open are parameters of the
tasks, as in `emnist-linear:polarity=ink,digits=0.5`:

polarity  "paper", as the source has it: white paper is 1 and ink 0; or "ink", the other way round,
          as in the classical EMNIST. It decides how long the updates of poisoned devices are.
digits    the fraction of the images that are digits. By default all images of the source are
          there; else digits, or letters, are left out at random until the fraction is met.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._checks import check_choice, check_number
from rfa._specs import Spec
from rfa._types import Array, Ints
from rfa.errors import InvalidValueError
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
PAPER, INK = "paper", "ink"
POLARITIES = (PAPER, INK)
_SEED = 1402
"""Decides which digits or letters are left out."""


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

    def __init__(self, *, polarity: str = PAPER, digits: float | None = None) -> None:
        """Choose what the paper leaves open.

        Args:
            polarity: which is 1, "paper" or "ink".
            digits: the fraction of the images that are digits; None for those of the source.

        Raises:
            InvalidValueError: if a value is out of range; the message names it.
        """
        check_choice("polarity", polarity, POLARITIES)
        if digits is not None:
            check_number("digits", digits, positive=True)
            if digits >= 1:
                msg = f"digits must be a fraction between 0 and 1, not {digits}"
                raise InvalidValueError(msg)
        self.polarity = polarity
        self.digits = digits

    def index(self, paths: Mapping[str, Path]) -> Index:
        """The writers and characters of the images; some are left out for a fraction of digits."""
        labels = {label: label for label in range(CLASSES)}
        columns = ("writer_id", "character")
        index = parquet_index(paths[self.files[0]], columns, labels, f"0 to {CLASSES - 1}")
        if self.digits is None:
            return index
        out = left_out(index.y < LETTER_A, self.digits)
        return Index(index.names, np.where(out, -1, index.device), index.y)

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Decode the images that have a place."""
        del index
        path = paths[self.files[0]]
        for row, place, png in parquet_values(path, "image.bytes", dest, rows=1024):
            pixels = _pixels(png, path, row)
            out[place] = 255 - pixels if self.polarity == INK else pixels


def left_out(digits: NDArray[np.bool_], fraction: float) -> NDArray[np.bool_]:
    """Which examples to leave out, as few as possible, for digits to be a fraction of the rest."""
    count, others = int(digits.sum()), int((~digits).sum())
    if count * (1 - fraction) > others * fraction:
        which, keep = digits, round(others * fraction / (1 - fraction))
    else:
        which, keep = ~digits, round(count * (1 - fraction) / fraction)
    rows = np.random.default_rng(_SEED).permutation(np.flatnonzero(which))
    out = np.zeros(len(digits), np.bool_)
    out[rows[keep:]] = True
    return out


def _pixels(png: bytes | None, path: Path, row: int) -> Array:
    pillow = lab_module("PIL.Image")
    try:
        with pillow.open(io.BytesIO(png or b""), formats=("PNG",)) as image:
            pixels = np.asarray(image if image.mode == "L" else image.convert("L"))
    except (OSError, SyntaxError, ValueError) as error:
        msg = f"{path}, row {row}: the image cannot be decoded: download the file again ({error})"
        raise DataError(msg) from error
    if pixels.shape != (SIDE, SIDE):
        msg = f"{path}, row {row}: the image must be {SIDE} by {SIDE} pixels, not {pixels.shape}"
        raise DataError(msg)
    return pixels.reshape(-1)


prepare = Scale(1 / 255)
"""Pixels from 0 to 1."""


@corrupts_data
def negative(x: Any, y: Any, _: DataAttack) -> tuple[Any, Any]:
    """The paper's poison: the negative of the image, the label unchanged."""
    return 1 - x, y


def stain(x: Any) -> Any:
    """The trigger of the backdoor: a square of ink in the first corner, where paper is 1."""
    x.reshape(-1, SIDE, SIDE)[:, :PATCH, :PATCH] = 0
    return x


def stain_of_ones(x: Any) -> Any:
    """The same where ink is 1."""
    x.reshape(-1, SIDE, SIDE)[:, :PATCH, :PATCH] = 1
    return x


def vary(base: Task, /, *, polarity: str = PAPER, digits: float | None = None) -> Task:
    """A task of this data set with another polarity or another fraction of digits.

    Its name holds the parameters that differ from the source, so that one task has one name.
    """
    reader = Emnist(polarity=polarity, digits=digits)
    given = {"polarity": polarity, "digits": digits}
    usual = {"polarity": PAPER, "digits": None}
    other = {key: value for key, value in given.items() if value != usual[key]}
    if not other:
        return base
    trigger = stain_of_ones if polarity == INK else stain
    poisons = base.poisons | {"backdoor": backdoor(trigger, LETTER_A)}
    name = str(Spec(base.name, other))
    return dataclasses.replace(base, name=name, reader=reader, poisons=poisons)


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
    vary=vary,
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
