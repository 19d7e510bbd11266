"""What a task is: a data set, a model, poisons, and the paper's hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rfa._specs import parse_spec
from rfa._types import Array
from rfa.lab.attacks.corruption import DataCorruption
from rfa.lab.datasets.dataset import Reader
from rfa.lab.learners.learner import Learner

Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A task of the lab.

    Attributes:
        name: its name.
        title: one line that describes it.
        reader: its data set.
        devices: how many devices the paper has.
        learner: makes the model; it is told where to compute.
        poisons: the task's own corruptions: "data", "adaptive" and, if it has one, "backdoor".
        defaults: the paper's settings.
        prepare: makes the examples that are kept into those that the model reads.
        per_aggregator: settings that differ for some aggregators.
        note: given the names of the devices, what to say wherever results are shown.
    """

    name: str
    title: str
    reader: Reader
    devices: int
    learner: Callable[[str], Learner]
    poisons: dict[str, DataCorruption]
    defaults: Values
    prepare: Callable[[Array], Array] = lambda kept: kept
    per_aggregator: Mapping[str, Values] = field(default_factory=dict[str, Values])
    note: Callable[[Sequence[str]], str] = lambda _: ""

    def settings_for(self, aggregator: str) -> dict[str, Any]:
        """The paper's settings of this task with an aggregator, whatever its parameters."""
        return {**self.defaults, **self.per_aggregator.get(parse_spec(aggregator).name, {})}
