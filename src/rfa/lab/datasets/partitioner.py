"""The partitioners of flwr-datasets, which get labels and row numbers, and no examples."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import numpy as np

from rfa._types import Ints
from rfa.errors import InvalidValueError
from rfa.lab.datasets.dataset import Index, lab_module

Partitioner: TypeAlias = Any
"""A Partitioner of flwr-datasets, which may not be installed."""

LIBRARY, EXTRA = "flwr-datasets", "datasets"
LABEL, ROW, DEVICE = "label", "row", "device"
"""The columns that a Partitioner gets."""


def partitioners() -> Any:
    """Return the module with all of them."""
    return lab_module("flwr_datasets.partitioner", EXTRA)


def deal(partitioner: Partitioner, index: Index, seed: int | None, what: str, remedy: str) -> Ints:
    """Return the partition number of each example from a Partitioner, or -1.

    It gets the labels and row numbers, in the order of `Dataset.shuffle` if there is a seed.

    Raises:
        InvalidValueError: if it fails, or puts an example on two devices.
    """
    rows = np.arange(len(index.y))
    if seed is not None:
        rows = np.random.default_rng(seed).permutation(rows)
    columns = {ROW: rows, LABEL: index.y[rows]}
    if index.names:
        columns[DEVICE] = np.asarray(index.names)[index.device[rows]]
    device = np.full(len(rows), -1, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of draws that are repeated, and of classes left out
        try:
            partitioner.dataset = lab_module("datasets", EXTRA).Dataset.from_dict(columns)
            for number in range(partitioner.num_partitions):
                chosen = np.asarray(partitioner.load_partition(number)[ROW], np.int64)
                if (device[chosen] >= 0).any():
                    msg = f"example {chosen[device[chosen] >= 0][0]} is on two devices"
                    raise ValueError(msg)
                device[chosen] = number
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{what} cannot be made of {len(rows)} examples: {remedy} ({error})"
            raise InvalidValueError(msg) from error
    return device
