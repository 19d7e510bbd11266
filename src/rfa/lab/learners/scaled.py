"""Examples that are stored as whole numbers, and read as these times a factor.

A linear model does not need to multiply its examples: X W^T times the factor gives the same for a
tenth of the multiplications. If few of the examples are needed, only those are converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rfa._types import Array, Floats32, Ints


@dataclass(frozen=True)
class Scaled:
    """Examples with a factor that is not yet multiplied.

    Attributes:
        kept: the examples, as whole numbers or floats.
        factor: the factor.
    """

    kept: Array
    factor: np.float32

    @classmethod
    def of(cls, x: Any) -> Scaled:
        """Return the same examples, whether scaled already or not."""
        return x if isinstance(x, Scaled) else cls(x, np.float32(1))

    @cached_property
    def x(self) -> Floats32:
        """The examples as floats."""
        return self.kept.astype(np.float32, copy=False)

    def take(self, rows: Ints) -> Floats32:
        """Return some examples, multiplied; the others are not converted."""
        some = self.kept[rows].astype(np.float32, copy=False)
        return some if self.factor == 1 else some * self.factor


@dataclass(frozen=True)
class Scale:
    """A task's `prepare`: whole numbers as float32, times a factor.

    >>> Scale(0.5)(np.array([[1, 2]], np.uint8))
    array([[0.5, 1. ]], dtype=float32)
    """

    factor: float

    def __call__(self, kept: Array) -> Array:
        """Return the input of the model."""
        x = kept.astype(np.float32)
        x *= np.float32(self.factor)
        return x

    def later(self, kept: Array) -> Scaled:
        """Return the same for a learner that multiplies later."""
        return Scaled(kept, np.float32(self.factor))
