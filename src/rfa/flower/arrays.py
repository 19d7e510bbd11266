"""Between Flower's arrays and the flat vector that is aggregated.

Only floating-point arrays are aggregated. Whole numbers, such as the batches that a layer has seen,
are not: they would decide how far apart updates are, and stay as the server has them.
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
    """Arrays that do not fit each other."""


def size_of(arrays: ArrayRecord) -> int:
    """How many numbers there are in all."""
    return sum(math.prod(array.shape) for array in arrays.values() if _is_float(array))


def difference(after: ArrayRecord, before: ArrayRecord) -> Floats32:
    """What changed, array after array in the order of `before`, as one flat vector.

    Raises:
        ArraysError: naming the array that is missing or has another shape.
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
    """The arrays after a step of the flat vector, each in its own shape and type."""
    after = apply_step(named_arrays(arrays), step)
    return ArrayRecord(
        {name: Array(after[name]) if _is_float(old) else old for name, old in arrays.items()}
    )


def named_arrays(arrays: ArrayRecord) -> dict[str, NDArray[Any]]:
    """The arrays as numpy has them, by name."""
    return {name: array.numpy() for name, array in arrays.items()}


def values_of(records: Iterable[ArrayRecord]) -> Vector:
    """The numbers of all arrays, one after the other; zeros have no sign."""
    arrays = [array for record in records for array in record.values() if _is_float(array)]
    values, start = np.zeros(sum(math.prod(array.shape) for array in arrays)), 0
    for array in arrays:
        numbers = array.numpy().ravel()
        values[start : start + len(numbers)] += numbers
        start += len(numbers)
    return values


def own_copy(record: Any) -> Any:
    """A record that nobody else changes; arrays, which are large, are shared."""
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
