"""Partitions: how the examples of a data set are distributed to devices.

    >>> str(Pathological(classes=2))
    'pathological:classes=2,seed=1'

`partition_registry.py` finds a partition by such a text.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast, final

import numpy as np

from rfa._checks import check_choice, check_count, check_number
from rfa._specs import Spec
from rfa._types import Ints
from rfa.errors import InvalidValueError
from rfa.lab.datasets.dataset import Index
from rfa.lab.datasets.partitioner import LABEL, LIBRARY, Partitioner, deal, partitioners


class Partition(ABC):
    """A way to distribute examples to devices; equal partitions give equal results.

    To write your own, make a frozen dataclass with a method `assign`.

    Attributes:
        kind: its name in texts; empty for a user's own.
        shuffled: whether the devices only keep their sizes, and get examples at random.
        library: the package whose version decides the result, if another package computes it.
    """

    kind: ClassVar[str] = ""
    library: ClassVar[str] = ""
    shuffled: ClassVar[bool] = False

    @abstractmethod
    def assign(self, index: Index, devices: int) -> Ints:
        """Return the device of each example, from 0 on, or -1 if it is left out.

        Every device must get two examples, one to train on and one to test on.

        Args:
            index: the labels of the examples, and their devices if the source has any.
            devices: the number of devices.

        Raises:
            InvalidValueError: if these examples cannot be distributed in this way.
        """

    def counts(self, has_devices: bool) -> bool:
        """Return whether the user chooses the number of devices.

        Args:
            has_devices: whether the source has devices.
        """
        del has_devices
        return True

    def names(self, index: Index, devices: int) -> Sequence[str]:
        """Return the names of the devices that `assign` made."""
        del index
        digits = len(str(devices - 1))
        return [f"device-{k:0{digits}d}" for k in range(devices)]

    def __str__(self) -> str:
        """Return the text that names it."""
        fields = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
        values = {field.name: getattr(self, field.name) for field in fields}
        kind = cast("type[Any]", type(self))
        return str(Spec(self.kind or f"{kind.__module__}:{kind.__qualname__}", values))


@final
@dataclass(frozen=True)
class ByDevice(Partition):
    """As in the source: every device has its own examples."""

    kind: ClassVar[str] = "device"

    def assign(self, index: Index, devices: int) -> Ints:
        """Return the devices of the source."""
        del devices
        if not index.names:
            msg = (
                "partition 'device': the data has no devices of its own: distribute its examples, "
            )
            msg += "by 'iid', 'dirichlet:alpha=0.3', 'pathological:classes=2' or 'size:law=linear'"
            raise InvalidValueError(msg)
        return index.device

    def counts(self, has_devices: bool) -> bool:
        """Return False: the source decides the number of devices."""
        del has_devices
        return False

    def names(self, index: Index, devices: int) -> Sequence[str]:
        """Return the names in the source."""
        del devices
        return index.names


@final
@dataclass(frozen=True)
class Iid(Partition):
    """At random; devices keep the sizes that they have in the source, or all have the same size."""

    kind: ClassVar[str] = "iid"
    shuffled: ClassVar[bool] = True

    def assign(self, index: Index, devices: int) -> Ints:
        """Return the devices of the source, or devices in turn."""
        return index.device if index.names else np.arange(len(index.y)) % devices

    def counts(self, has_devices: bool) -> bool:
        """Return whether the source has no devices; otherwise it decides their number."""
        return not has_devices

    def names(self, index: Index, devices: int) -> Sequence[str]:
        """Return the names in the source, if it has devices."""
        return index.names or super().names(index, devices)


@final
@dataclass(frozen=True)
class Dirichlet(Partition):
    """Each label's examples in shares drawn from Dirichlet(alpha), as in Yurochkin et al. 2019.

    Attributes:
        alpha: the concentration; with a smaller one, a device has fewer labels.
        seed: decides the shares.
        min_examples: the fewest examples of a device; shares are drawn again until all have them.
    """

    kind: ClassVar[str] = "dirichlet"
    library: ClassVar[str] = LIBRARY
    alpha: float
    seed: int = 1
    min_examples: int = 10

    def __post_init__(self) -> None:
        """Check the values."""
        check_number("alpha", self.alpha, positive=True)
        check_count("seed", self.seed, least=0)
        check_count("min_examples", self.min_examples, least=2)

    def assign(self, index: Index, devices: int) -> Ints:
        """Return the devices as DirichletPartitioner does."""
        partitioner = partitioners().DirichletPartitioner(
            num_partitions=devices,
            partition_by=LABEL,
            alpha=float(self.alpha),
            min_partition_size=self.min_examples,
            seed=self.seed,
        )
        remedy = "take a larger alpha, fewer devices or a smaller min_examples"
        return deal(partitioner, index, self.seed, f"partition {str(self)!r}", remedy)


@final
@dataclass(frozen=True)
class Pathological(Partition):
    """Examples of only a few labels on each device, as in McMahan et al. 2017.

    Every label is on some device if there are at least as many devices as labels; otherwise the
    examples of labels that no device has are left out.

    Attributes:
        classes: the number of labels on a device.
        seed: decides the labels.
    """

    kind: ClassVar[str] = "pathological"
    library: ClassVar[str] = LIBRARY
    classes: int
    seed: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        check_count("classes", self.classes)
        check_count("seed", self.seed, least=0)

    def assign(self, index: Index, devices: int) -> Ints:
        """Return the devices as PathologicalPartitioner does with a determined first label."""
        there = len(np.unique(index.y))
        if self.classes > there:
            msg = f"partition {str(self)!r}: the data has {there} classes: give classes={there} "
            msg += "or fewer"
            raise InvalidValueError(msg)
        partitioner = partitioners().PathologicalPartitioner(
            num_partitions=devices,
            partition_by=LABEL,
            num_classes_per_partition=self.classes,
            class_assignment_mode="first-deterministic",
            seed=self.seed,
        )
        remedy = "take fewer devices or fewer classes per device"
        return deal(partitioner, index, self.seed, f"partition {str(self)!r}", remedy)


@final
@dataclass(frozen=True)
class Similarity(Partition):
    """A fraction of the examples at random, the rest by label, as in Karimireddy et al. 2020.

    Attributes:
        gamma: the fraction at random, from 0 (few labels per device) to 1 (similar devices).
        seed: decides the random examples.
    """

    kind: ClassVar[str] = "similarity"
    gamma: float
    seed: int = 1

    def __post_init__(self) -> None:
        """Check both values."""
        check_number("gamma", self.gamma)
        check_count("seed", self.seed, least=0)
        if self.gamma > 1:
            raise InvalidValueError("gamma must be at most 1, not " + repr(self.gamma))

    def assign(self, index: Index, devices: int) -> Ints:
        """Distribute a random part evenly, then the rest in the order of its labels."""
        order = np.random.default_rng(self.seed).permutation(len(index.y))
        alike, rest = np.split(order, [int(self.gamma * len(order))])
        device = np.empty(len(order), np.int64)
        for part in (alike, rest[np.argsort(index.y[rest], kind="stable")]):
            for number, rows in enumerate(np.array_split(part, devices)):
                device[rows] = number
        return device


@final
@dataclass(frozen=True)
class Size(Partition):
    """Devices of different sizes, with random examples.

    Attributes:
        law: device k of n has examples in proportion to k ("linear"), its square ("square") or e to
            the power of k ("exponential").
        seed: decides the examples of each device.
    """

    LAWS: ClassVar[tuple[str, ...]] = ("linear", "square", "exponential")
    kind: ClassVar[str] = "size"
    library: ClassVar[str] = LIBRARY
    law: str
    seed: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        check_choice("law", self.law, self.LAWS)
        check_count("seed", self.seed, least=0)

    def assign(self, index: Index, devices: int) -> Ints:
        """Return the devices as flwr-datasets' partitioner for this law does."""
        make = getattr(partitioners(), f"{self.law.capitalize()}Partitioner")
        what, remedy = f"partition {str(self)!r}", "take fewer devices or another law"
        return deal(make(num_partitions=devices), index, self.seed, what, remedy)


@final
@dataclass(frozen=True)
class ByPartitioner(Partition):
    """A Partitioner of flwr-datasets, which gets the columns label, row and, if any, device.

    Attributes:
        partitioner: the Partitioner, without a data set yet.
    """

    library: ClassVar[str] = LIBRARY
    partitioner: Partitioner

    def assign(self, index: Index, devices: int) -> Ints:
        """Return the devices as the Partitioner does, for examples in the order of the source."""
        del devices
        name = type(self.partitioner).__name__
        if self.partitioner.is_dataset_assigned():
            msg = f"partition {name}: it has a data set already: make another one"
            raise InvalidValueError(msg)
        fresh = copy.deepcopy(self.partitioner)
        return deal(fresh, index, None, f"partition {name}", "give it other parameters")

    def counts(self, has_devices: bool) -> bool:
        """Return False: the Partitioner decides the number of devices."""
        del has_devices
        return False
