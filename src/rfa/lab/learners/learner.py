"""Learning on one device: a model is a flat vector, and training returns a change of it.

A `Learner` knows the model of a task. Federated algorithms need three methods of it: the first
model, the change by local training, and the scores of a model for examples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats32
from rfa.lab.errors import LabError
from rfa.lab.learners.visits import Batch


@dataclass(frozen=True)
class Plan:
    """The local training of one device in one round.

    Attributes:
        batches: the rows of the examples of each step, one batch per step.
        rate: the learning rate gamma.
        tail: return the average of the later half of the iterates (the last ceil(tau / 2) of w_1,
            ..., w_tau) instead of the last iterate.
        proximal: the weight mu of FedProx's proximal term mu/2 |w - start|^2, which pulls every
            step back to the model that training starts from; 0 for none.
        key: a name for the examples. The same key means the same examples in every round, so a
            learner may cache what depends only on them. None if they can change.
    """

    batches: Sequence[Batch]
    rate: float
    tail: bool = False
    proximal: float = 0.0
    key: Hashable | None = None


class Tail:
    """The average of the later half of the iterates, if the plan asks for it."""

    def __init__(self, plan: Plan, like: Floats32) -> None:
        tau = len(plan.batches)
        self._skip, self._count = tau // 2, tau - tau // 2
        self._sum = np.zeros_like(like, np.float64) if plan.tail and tau else None

    def add(self, iterate: Floats32) -> None:
        """Add an iterate, if it belongs to the later half."""
        if self._sum is None:
            return
        self._skip -= 1
        if self._skip < 0:
            self._sum += iterate

    def mean(self, last: Floats32) -> Floats32:
        """Return the average, or the last iterate if no average is wanted."""
        return last if self._sum is None else (self._sum / self._count).astype(np.float32)


class Learner(ABC):
    """The model of a task and its loss.

    Attributes:
        dim: the number of parameters d.
        classes: the number of classes in `scores`.
        takes_scaled: whether `train` and `scores` also take examples that are `Scaled`.
    """

    dim: int
    classes: int
    takes_scaled: bool = False

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> Floats32:
        """Return the first model w^(0), Glorot-uniform."""

    @abstractmethod
    def train(self, start: Floats32, x: Any, y: Any, plan: Plan) -> Floats32:
        """Return the change by local SGD: w_tau - start, with the mean loss of each batch.

        Args:
            start: the model to start from; it is not changed.
            x: the examples of the device.
            y: their labels.
            plan: batches, rate, and everything else that decides the steps.
        """

    @abstractmethod
    def scores(self, w: Floats32, x: Any) -> Floats32:
        """Return the scores of the classes for each example, for a softmax."""

    def module(self, w: Floats32) -> Any:
        """Return a new torch module that gives the scores of a model to examples.

        Raises:
            LabError: if this learner has none.
        """
        del w
        msg = f"{type(self).__name__} has no torch module: use its scores"
        raise LabError(msg)


def is_finite(row: Floats32) -> bool:
    """Return whether all numbers are finite, by their sum unless it overflows."""
    return bool(are_finite(row[None])[0])


@np.errstate(over="ignore", invalid="ignore")
def are_finite(rows: Floats32) -> NDArray[np.bool_]:
    """Return which rows have only finite numbers, by their sums unless they overflow."""
    finite = np.isfinite(rows.dot(np.ones(rows.shape[1], np.float32)))
    for row in np.flatnonzero(~finite):
        finite[row] = np.isfinite(rows[row]).all()
    return finite
