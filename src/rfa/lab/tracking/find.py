"""Trackers by the text that a user writes."""

from __future__ import annotations

from collections.abc import Callable

from rfa.errors import InvalidValueError
from rfa.lab.tracking.mlflow import MLflow
from rfa.lab.tracking.tensorboard import TensorBoard
from rfa.lab.tracking.tracker import Tracker
from rfa.lab.tracking.wandb import WandB

TRACKERS: dict[str, tuple[str, Callable[[str], Tracker]]] = {
    "tensorboard": ("DIR", TensorBoard),
    "wandb": ("PROJECT", WandB),
    "mlflow": ("URI", MLflow),
}
FORMS = ", ".join(f"{name}:{what}" for name, (what, _) in TRACKERS.items())


def find_tracker(text: str) -> Tracker:
    """The tracker of a text such as tensorboard:DIR, wandb:PROJECT or mlflow:URI.

    Raises:
        InvalidValueError: if it is no such text.
        DataError: saying what to install, if its library is missing.
    """
    name, _, value = text.partition(":")
    if name not in TRACKERS or not value:
        msg = f"no tracker is {text!r}: there are {FORMS}"
        raise InvalidValueError(msg)
    _, make = TRACKERS[name]
    return make(value)
