"""A task: a data set, a model, poisons, and hyperparameters of the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rfa._specs import parse_spec
from rfa._types import Array
from rfa.lab.attacks.corruption import DataCorruption
from rfa.lab.datasets.cache import Progress, load
from rfa.lab.datasets.dataset import Population, Reader
from rfa.lab.datasets.examples import read_examples
from rfa.lab.datasets.stored import store
from rfa.lab.learners.learner import Learner
from rfa.lab.learners.own_module import Module
from rfa.lab.tasks.from_dataset import (
    LINEAR,
    check_arguments,
    form_of,
    usual_devices,
    usual_settings,
)

Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A task of the lab.

    Attributes:
        name: its name.
        title: one line that describes it.
        reader: its data set.
        devices: how many devices the paper has.
        learner: makes the model, given the hardware to compute on.
        poisons: the task's own corruptions, of "data", "adaptive" and "backdoor" those it has.
        defaults: the paper's settings.
        prepare: converts stored examples to the input of the model.
        per_aggregator: settings that differ for some aggregators.
        note: a function from the names of the devices to a note that is shown with results.
        labels: the label of each class, if these are not 0, 1, ...
        libraries: libraries of its model besides numpy, such as "torch": processes that train it
            start with these imported. Without it each imports them when it needs them.
        vary: a function from the task and parameters to a variant of the task, if there are any.
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
    labels: tuple[Any, ...] = ()
    libraries: tuple[str, ...] = ()
    vary: Callable[..., Task] | None = None

    @classmethod
    def from_dataset(  # noqa: PLR0913 the columns, the model, and how examples are dealt out
        cls,
        data: Any,
        *,
        name: str,
        module: Module,
        features: str | Sequence[str] | None = None,
        label: str = "label",
        device: str | None = None,
        split: str = "train",
        classes: int = 0,
        prepare: Callable[[Array], Array] | None = None,
        partition: Any = None,
        devices: int = 0,
        train_share: float = 0.8,
        min_examples: int = 2,
        **settings: Any,
    ) -> Task:
        """Make a task from your own data and model.

            task = Task.from_dataset((x, y), name="mine", module="linear", learning_rate=0.3)

        The examples are written to the cache of the lab under a digest of their content. The task
        keeps only the digest, and other processes read the examples from the cache.

        Args:
            data: a Hugging Face Dataset or DatasetDict, the path of a Parquet file or of a folder
                of such, a pair of arrays (x, y), a mapping of arrays, a data set of torchvision
                (with `data` and `targets`), or a list of pairs. Images are decoded.
            name: the name of the task.
            module: a torch.nn.Module that maps a batch of floats to a score for each class, or a
                class or function that makes one, which is then initialized for each seed; or
                "linear" for softmax regression, without torch.
            features: the column of the examples, or several of numbers; the only one by default.
            label: the column of the labels: whole numbers or texts, whose sorted values are the
                classes 0, 1, ...
            device: the column with the device of each example, if there is one.
            split: of a DatasetDict: which part; "all" for all of it.
            classes: how many classes there are; the labels are then numbers below it.
            prepare: converts a batch of examples to the input of the model. By default images
                (bytes with two or three dimensions) are scaled to [0, 1], channels first, and all
                else is float32; for "linear", all of it flat.
            partition: how examples are distributed; "device" if there are devices, else "iid".
            devices: how many devices there are; by default all that the data has, or as many as
                have 50 examples, but at most 100.
            train_share: the share of a device's examples that it trains on.
            min_examples: devices of the data with fewer examples are left out.
            **settings: settings of runs of this task, by name, as in learning_rate=0.1, rounds=50.

        Raises:
            InvalidTypeError, InvalidValueError: naming the argument that is wrong.
            DataError: naming column and row of what cannot be used.
        """
        check_arguments(name, partition, devices, train_share, min_examples)
        examples = read_examples(
            data, features=features, label=label, device=device, classes=classes, split=split
        )
        reader = store(name, examples, train_share, min_examples)
        form = form_of(examples, module, prepare)
        partition = partition or ("device" if reader.has_devices else "iid")
        count = devices or usual_devices(reader, len(examples.y))
        return cls(
            name=name,
            title=f"data of your own: {len(examples.y)} examples of {examples.classes} classes",
            reader=reader,
            devices=count,
            learner=form.learner,
            poisons=form.poisons,
            defaults=usual_settings(count, partition) | settings,
            prepare=form.prepare,
            labels=examples.labels,
            libraries=() if module == LINEAR else ("torch",),
        )

    def load(
        self,
        directory: Path | None = None,
        *,
        partition: Any = None,
        devices: int = 0,
        rebuild: bool = False,
        on_progress: Progress | None = None,
    ) -> Population:
        """The devices of the task with their examples, from the cache.

        Args:
            directory: the folder with the source of the data set; by default RFA_DATA.
            partition: how examples are distributed; by default as in the task.
            devices: how many devices are wanted; 0 for as many as the task has.
            rebuild: read the source again.
            on_progress: is called with the progress while the source is read.

        Raises:
            DataError: if the source is missing or wrong, or the cache cannot be written.
            InvalidValueError: if the examples cannot be distributed in this way.
        """
        return load(
            self.reader,
            directory,
            partition=partition or self.defaults.get("partition", "device"),
            devices=devices or self.devices,
            rebuild=rebuild,
            on_progress=on_progress,
        )

    def settings_for(self, aggregator: str) -> dict[str, Any]:
        """The paper's settings of this task with an aggregator, whatever its parameters."""
        return {**self.defaults, **self.per_aggregator.get(parse_spec(aggregator).name, {})}
