"""Examples that are kept as whole numbers, and read as these times a factor.

A linear model needs not multiply its examples: X W^T times the factor is the same for a tenth of
the multiplications.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rfa._types import Array, Floats32


class Scaled(NamedTuple):
    """Examples times a factor that is still to be multiplied.

    Attributes:
        x: the examples.
        factor: the factor.
    """

    x: Floats32
    factor: np.float32

    @classmethod
    def of(cls, x: Any) -> Scaled:
        """The same examples, whether scaled already or not."""
        return x if isinstance(x, Scaled) else cls(x, np.float32(1))

    def multiply(self) -> Floats32:
        """The examples themselves."""
        return self.x if self.factor == 1 else self.x * self.factor


@dataclass(frozen=True)
class Scale:
    """A task's `prepare`: whole numbers as float32, times a factor.

    >>> Scale(0.5)(np.array([[1, 2]], np.uint8))
    array([[0.5, 1. ]], dtype=float32)
    """

    factor: float

    def __call__(self, kept: Array) -> Array:
        """What the model reads."""
        x = kept.astype(np.float32)
        x *= np.float32(self.factor)
        return x

    def later(self, kept: Array) -> Scaled:
        """The same for a learner that multiplies later."""
        return Scaled(kept.astype(np.float32), np.float32(self.factor))
