"""Learning on one device: a model is a flat vector, and training it gives a change of that vector.

A `Learner` knows the model of a task. Everything that a federated algorithm asks of a device is
made of its three questions: where to begin, what local training changes, and what scores a model
gives to examples.
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
        batches: the rows of the examples that each step uses, one batch a step.
        rate: the learning rate gamma.
        tail: return the average of the iterates after the later half of the steps (the last
            ceil(tau / 2) of w_1, ..., w_tau) instead of the last iterate.
        proximal: the weight mu of FedProx's proximal term mu/2 |w - start|^2, which pulls every
            step back to the model that training starts from; 0 for none.
        key: a name for the examples: under the same key come the same ones in every round, so
            that a learner may keep what depends on them alone. None if they can change.
    """

    batches: Sequence[Batch]
    rate: float
    tail: bool = False
    proximal: float = 0.0
    key: Hashable | None = None


class Tail:
    """The average of the later half of the iterates, where the plan asks for it."""

    def __init__(self, plan: Plan, like: Floats32) -> None:
        tau = len(plan.batches)
        self._skip, self._count = tau // 2, tau - tau // 2
        self._sum = np.zeros_like(like, np.float64) if plan.tail and tau else None

    def add(self, iterate: Floats32) -> None:
        """Count an iterate in, if it belongs to the later half."""
        if self._sum is None:
            return
        self._skip -= 1
        if self._skip < 0:
            self._sum += iterate

    def mean(self, last: Floats32) -> Floats32:
        """The average, or the last iterate where no average is wanted."""
        return last if self._sum is None else (self._sum / self._count).astype(np.float32)


class Learner(ABC):
    """The model of a task and its loss.

    Attributes:
        dim: the number of parameters d.
        classes: the number of classes that `scores` tells apart.
        takes_scaled: whether `train` and `scores` also take examples that are `Scaled`.
    """

    dim: int
    classes: int
    takes_scaled: bool = False

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> Floats32:
        """The first model w^(0), Glorot-uniform."""

    @abstractmethod
    def train(self, start: Floats32, x: Any, y: Any, plan: Plan) -> Floats32:
        """What local SGD from `start` changes: w_tau - start, with the mean loss of each batch.

        Args:
            start: the model to start from; it is left as it is.
            x: the examples of the device.
            y: their labels.
            plan: batches, rate, and what else decides the steps.
        """

    @abstractmethod
    def scores(self, w: Floats32, x: Any) -> Floats32:
        """The scores of the classes for each example, so that softmax gives probabilities."""

    def module(self, w: Floats32) -> Any:
        """A torch module of its own that gives the scores of a model to examples.

        Raises:
            LabError: if this learner has none.
        """
        del w
        msg = f"{type(self).__name__} has no torch module: use its scores"
        raise LabError(msg)


def is_finite(row: Floats32) -> bool:
    """Whether all numbers are finite: their sum tells, unless it overflows."""
    return bool(are_finite(row[None])[0])


@np.errstate(over="ignore", invalid="ignore")
def are_finite(rows: Floats32) -> NDArray[np.bool_]:
    """Which rows have finite numbers only: their sums tell, unless they overflow."""
    finite = np.isfinite(rows.dot(np.ones(rows.shape[1], np.float32)))
    for row in np.flatnonzero(~finite):
        finite[row] = np.isfinite(rows[row]).all()
    return finite
