"""The place of each example in the data of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rfa._plugins import describe_failure
from rfa._types import Ints
from rfa.errors import InvalidValueError, RfaError
from rfa.lab.datasets.dataset import DataError, Index, Reader
from rfa.lab.datasets.partition import ByDevice, Partition

_SEED = 1912
LEAST = 2
"""The fewest examples of a device: one to train on, one to test on."""


@dataclass(frozen=True)
class Arrangement:
    """The device and the place of each example of a source.

    Names, offsets and train are those of `Population`; `dest` has a place for each example of the
    source, or -1.
    """

    names: Sequence[str]
    offsets: Ints
    train: Ints
    dest: Ints

    @property
    def total(self) -> int:
        """The number of examples that are kept."""
        return int(self.offsets[-1])


def arrange(
    reader: Reader, index: Index, partition: Partition | None = None, devices: int = 0
) -> Arrangement:
    """Distribute the examples to devices, and put devices and their examples in a random order.

    The order is the same for everybody and independent of the source's order, so the first n
    devices are a fair sample. Devices of the source that are too small are left out first, for
    every partition.

    Args:
        reader: the data set.
        index: the devices and labels of its source.
        partition: how its examples are distributed; as in the source by default.
        devices: the number of devices, for a partition that takes one.

    Raises:
        DataError: if no device of the source is large enough.
        InvalidValueError: if the partition is impossible.
    """
    partition = partition or ByDevice()
    by_order, by_split, by_deal = (np.random.default_rng([_SEED, k]) for k in range(3))
    kept, pool = _pool(reader, index)
    device, names = _assign(partition, pool, devices)
    sizes = np.bincount(device[device >= 0], minlength=len(names))
    _check_sizes(partition, sizes, devices)
    order = by_order.permutation(np.array(sorted(range(len(names)), key=names.__getitem__)))
    grouped = np.argsort(device, kind="stable")[int((device < 0).sum()) :]
    ends = np.cumsum(sizes)
    rows = [by_split.permutation(kept[grouped[ends[d] - sizes[d] : ends[d]]]) for d in order]
    placed = np.concatenate(rows)
    dest = np.full(len(index.y), -1, np.int64)
    dest[by_deal.permutation(placed) if partition.shuffled else placed] = np.arange(len(placed))
    offsets = np.concatenate([[0], np.cumsum(sizes[order])]).astype(np.int64)
    train = np.rint(reader.train_share * sizes[order]).astype(np.int64)
    train = np.clip(train, 1, sizes[order] - 1)
    return Arrangement([names[int(d)] for d in order], offsets, train, dest)


def _pool(reader: Reader, index: Index) -> tuple[Ints, Index]:
    """Return the rows that can be distributed, and their index."""
    if not reader.has_devices:
        if not len(index.y):
            msg = f"{reader.name} has no examples: get its source whole"
            raise DataError(msg)
        return np.arange(len(index.y)), Index([], np.zeros(len(index.y), np.int64), index.y)
    least = max(LEAST, reader.min_examples)
    sizes = np.bincount(index.device[index.device >= 0], minlength=len(index.names))
    large = sizes >= least
    if not large.any():
        msg = f"no device of {reader.name} has {least} examples: get its source whole"
        raise DataError(msg)
    kept = np.flatnonzero((index.device >= 0) & large[index.device])
    number = np.cumsum(large) - 1
    names = [index.names[int(d)] for d in np.flatnonzero(large)]
    return kept, Index(names, number[index.device[kept]], index.y[kept])


def _assign(partition: Partition, pool: Index, devices: int) -> tuple[Ints, Sequence[str]]:
    """Return the device of each example, and the names of the devices."""
    count, total = partition.counts(bool(pool.names)), len(pool.y)
    if count and not 1 <= devices <= total // LEAST:
        msg = f"partition {str(partition)!r} of {total} examples: devices must be from 1 to "
        msg += f"{total // LEAST}, with {LEAST} examples each, not {devices}"
        raise InvalidValueError(msg)
    try:
        device = np.asarray(partition.assign(pool, devices))
    except RfaError:
        raise
    except Exception as error:
        msg = f"partition {str(partition)!r} failed: {describe_failure(error)}"
        raise InvalidValueError(msg) from error
    if device.shape != (total,) or device.dtype.kind not in "iu":
        msg = f"partition {str(partition)!r} must give a whole number for each of {total} "
        msg += f"examples, not {device.dtype} of shape {device.shape}"
        raise InvalidValueError(msg)
    made = int(device.max()) + 1
    if device.min() < -1 or made < 1 or (count and made > devices):
        last = devices - 1 if count else "their number less 1"
        msg = f"partition {str(partition)!r} must give devices from 0 to {last}, or -1, not "
        msg += f"from {device.min()} to {device.max()}"
        raise InvalidValueError(msg)
    made = devices if count else made
    return device.astype(np.int64), partition.names(pool, made)


def _check_sizes(partition: Partition, sizes: Ints, devices: int) -> None:
    small = np.flatnonzero(sizes < LEAST)
    if len(small):
        msg = f"partition {str(partition)!r} gives {len(small)} of {len(sizes)} devices fewer than "
        msg += f"{LEAST} examples, one to train on and one to test on: take fewer devices"
        msg += f" than {devices}" if partition.counts(True) else ""
        raise InvalidValueError(msg)
