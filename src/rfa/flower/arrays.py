"""Conversion between Flower's arrays and the flat vector that is aggregated.

Only floating-point arrays are aggregated. Whole numbers, such as the number of batches that a layer
has seen, are not: they would dominate the distances between updates. They stay as the server has
them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from numpy.typing import NDArray

from rfa._types import Floats32, Vector
from rfa.flower.errors import FlowerError
from rfa.receipts.models import apply_step


class ArraysError(FlowerError):
    """Arrays do not fit each other."""


def size_of(arrays: ArrayRecord) -> int:
    """Return the total number of floating-point numbers."""
    return sum(math.prod(array.shape) for array in arrays.values() if _is_float(array))


def difference(after: ArrayRecord, before: ArrayRecord) -> Floats32:
    """Return the change as one flat vector, array after array in the order of `before`.

    Raises:
        ArraysError: if an array is missing or has another shape; the message names it.
    """
    if set(after) != set(before):
        odd = ", ".join(sorted(set(after) ^ set(before)))
        msg = f"the app returned other arrays than it was given: {odd}"
        raise ArraysError(msg)
    parts: list[Floats32] = []
    for name, array in before.items():
        if tuple(after[name].shape) != tuple(array.shape):
            msg = f"array {name!r} has the shape {after[name].shape}, and was given {array.shape}"
            raise ArraysError(msg)
        if _is_float(array):
            parts.append(_change(after[name].numpy(), array.numpy()))
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def moved(arrays: ArrayRecord, step: Vector | Floats32) -> ArrayRecord:
    """Return the arrays after a step of the flat vector, each in its own shape and type."""
    after = apply_step(named_arrays(arrays), step)
    return ArrayRecord(
        {name: Array(after[name]) if _is_float(old) else old for name, old in arrays.items()}
    )


def overflown(before: ArrayRecord, after: ArrayRecord) -> list[str]:
    """Return the names of arrays that had only finite numbers, and have others after a step."""
    pairs = {name: (old, after[name]) for name, old in before.items() if _is_float(old)}
    return [
        name
        for name, (old, new) in pairs.items()
        if np.isfinite(old.numpy()).all() and not np.isfinite(new.numpy()).all()
    ]


def named_arrays(arrays: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return the arrays as numpy arrays, by name."""
    return {name: array.numpy() for name, array in arrays.items()}


def values_of(records: Iterable[ArrayRecord]) -> Vector:
    """Return the numbers of all arrays, one after the other; zeros have no sign."""
    arrays = [array for record in records for array in record.values() if _is_float(array)]
    values, start = np.zeros(sum(math.prod(array.shape) for array in arrays)), 0
    for array in arrays:
        numbers = array.numpy().ravel()
        values[start : start + len(numbers)] += numbers
        start += len(numbers)
    return values


def own_copy(record: Any) -> Any:
    """Return a copy of a record that shares its arrays."""
    if isinstance(record, ArrayRecord):
        return record
    kind: Any = ConfigRecord if isinstance(record, ConfigRecord) else MetricRecord
    return kind({key: copy.copy(value) for key, value in record.items()})


@np.errstate(over="ignore", invalid="ignore")
def _change(after: NDArray[np.generic], before: NDArray[np.generic]) -> Floats32:
    change = np.asarray(np.subtract(after, before, dtype=np.float64, casting="unsafe")).ravel()
    change[np.asarray(after == before).ravel()] = 0  # also where both are infinite
    return change.astype(np.float32)


def _is_float(array: Array) -> bool:
    return np.issubdtype(np.dtype(array.dtype), np.floating)
