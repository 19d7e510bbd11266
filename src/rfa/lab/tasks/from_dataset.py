"""The parts of a user's own task besides the data: the model, its input, default settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rfa._checks import check_count
from rfa._plugins import describe_failure
from rfa._types import Array
from rfa.errors import InvalidValueError
from rfa.lab.attacks.corruption import DataAttack, DataCorruption, corrupts_data, least_likely
from rfa.lab.datasets.examples import Examples
from rfa.lab.datasets.partition_registry import find_partition
from rfa.lab.datasets.stored import Stored
from rfa.lab.learners.learner import Learner
from rfa.lab.learners.own_module import LinearModel, Module, OwnModel, check_model

LINEAR = "linear"
CHANNELS = (1, 3, 4)
IMAGE = (2, 3)
"""Dimensions of an image, without and with channels."""
FEW, DEVICES, COHORT, TRIED = 50, 100, 20, 2


@dataclass(frozen=True)
class Form:
    """The input of a model, the model, and the poisons that fit both."""

    prepare: Callable[[Array], Array]
    learner: Callable[[str], Learner]
    poisons: dict[str, DataCorruption]


@dataclass(frozen=True)
class Prepare:
    """Examples as a model reads them: float32, images from 0 to 1 and channels first.

    Attributes:
        image: whether the examples are images of bytes.
        flat: whether the model reads vectors.
    """

    image: bool
    flat: bool

    def __call__(self, x: Array) -> Array:
        """The same examples for the model."""
        if not self.image:
            return np.asarray(x, np.float32).reshape(len(x), -1) if self.flat else as_float(x)
        scaled = x.astype(np.float32) / np.float32(255)
        return scaled.reshape(len(x), -1) if self.flat else channels_first(scaled)


def as_float(x: Array) -> Array:
    """The same numbers in float32."""
    return np.asarray(x, np.float32)


def channels_first(x: Array) -> Array:
    """Images with channels as their first dimension, as torch's convolutions have it."""
    if x.ndim == min(IMAGE) + 1:
        return x[:, None]
    last = x.shape[-1] in CHANNELS and x.shape[1] not in CHANNELS
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if last else x


@corrupts_data
def negative(x: Any, y: Any, _: DataAttack) -> tuple[Any, Any]:
    """The negative of the image, the label unchanged."""
    return 1 - x, y


def form_of(examples: Examples, module: Module, prepare: Callable[[Array], Array] | None) -> Form:
    """The model and its input, tried with two examples.

    Raises:
        InvalidTypeError, InvalidValueError: if the two do not go together.
    """
    is_image = examples.x.dtype == np.uint8 and examples.x.ndim - 1 in IMAGE
    used = prepare or Prepare(is_image, flat=isinstance(module, str))
    tried = _tried(used, examples.x[:TRIED])
    poisons = {"adaptive": least_likely}
    if is_image and prepare is None:
        poisons["data"] = negative
    if isinstance(module, str):
        if module != LINEAR:
            msg = f"module={module!r}: give a torch.nn.Module, what makes one, or {LINEAR!r}"
            raise InvalidValueError(msg)
        return Form(used, LinearModel(math.prod(tried.shape[1:]), examples.classes), poisons)
    model = OwnModel(module, examples.classes)
    check_model(model, tried)
    return Form(used, model, poisons)


def usual_devices(reader: Stored, total: int) -> int:
    """As many devices as the data has, or as have a few examples each."""
    return reader.count or max(1, min(DEVICES, total // FEW))


def usual_settings(devices: int, partition: Any) -> dict[str, Any]:
    """Settings of runs that suit small data."""
    return {
        "partition": partition,
        "devices_per_round": min(devices, COHORT),
        "batch_size": 20,
        "local_epochs": 1,
        "learning_rate": 0.1,
        "rounds": 50,
        "eval_every": 5,
    }


def check_arguments(
    name: Any, partition: Any, devices: Any, train_share: float, min_examples: Any
) -> None:
    """Refuse arguments of a task without a meaning.

    Raises:
        InvalidValueError, InvalidTypeError, PluginError: naming the argument.
    """
    if not isinstance(name, str) or not name.strip():
        msg = f"name must be a text that names the task, not {name!r}"
        raise InvalidValueError(msg)
    if partition is not None:
        find_partition(partition)
    check_count("devices", devices, least=0)
    check_count("min_examples", min_examples, least=2)
    if not 0 < train_share < 1:
        msg = f"train_share must be between 0 and 1, not {train_share!r}"
        raise InvalidValueError(msg)


def _tried(prepare: Callable[[Array], Array], x: Array) -> Array:
    try:
        tried = np.asarray(prepare(x))
    except Exception as error:
        msg = f"prepare fails with examples of shape {x.shape[1:]}: {describe_failure(error)}"
        raise InvalidValueError(msg) from error
    if tried.dtype != np.float32 or len(tried) != len(x):
        msg = f"prepare must give float32, a row for each of {len(x)} examples, not {tried.dtype} "
        msg += f"of shape {tried.shape}"
        raise InvalidValueError(msg)
    if not np.isfinite(tried).all():
        msg = "prepare gives numbers that are not finite: no model can learn from these"
        raise InvalidValueError(msg)
    return tried
