"""A large matrix under SGD, whose steps are deferred.

The gradient of a batch in a dense layer's matrix is D A^T, with a column for each example: the
gradient in the layer's outputs, and its inputs. A step would read and write the whole matrix, which
is much larger than D and A. Here steps are kept as such factors, and a product with the matrix is

    W a = W_0 a - D (A^T a),

until the waiting columns cost more than writing the matrix. If they all wait until the
end, D A^T is the change itself, in one product, and the first matrix is never copied.
"""

from __future__ import annotations

from typing import final

import numpy as np

from rfa._types import Floats32

WAITING = 192
"""The most examples whose gradients wait."""
ROWS = 256
"""The rows of the matrix that are written at a time, so that the difference stays in the cache."""


@final
class DeferredMatrix:
    """W_0 - D A^T, given W_0."""

    def __init__(self, start: Floats32, waiting: int = WAITING) -> None:
        """Set the first matrix, which stays unchanged, and the most examples that wait."""
        self._start = self._matrix = start
        self._limit, self._count = waiting, 0
        self._factors: list[tuple[Floats32, Floats32]] = []

    def times(self, a: Floats32) -> Floats32:
        """Return W a."""
        product = self._matrix @ a
        for outputs, inputs in self._factors:
            product -= outputs @ (inputs.T @ a)
        return product

    def transposed_times(self, d: Floats32) -> Floats32:
        """Return W^T d."""
        product = (d.T @ self._matrix).T
        for outputs, inputs in self._factors:
            product -= inputs @ (outputs.T @ d)
        return product

    def subtract(self, outputs: Floats32, inputs: Floats32) -> None:
        """Subtract the product D A^T; both factors are kept, not copied."""
        self._factors.append((outputs, inputs))
        self._count += outputs.shape[1]
        if self._count > self._limit:
            self.settled()

    def settled(self) -> Floats32:
        """Return the matrix itself, with nothing waiting; the caller may change it."""
        if self._matrix is self._start:
            self._matrix = self._start.copy()
        if self._factors:
            outputs, inputs = self._joined()
            for i in range(0, len(outputs), ROWS):
                self._matrix[i : i + ROWS] -= outputs[i : i + ROWS] @ inputs.T
            self._factors, self._count = [], 0
        return self._matrix

    def write_change(self, out: Floats32) -> None:
        """Write the current matrix minus the first one."""
        if self._matrix is not self._start:
            np.subtract(self.settled(), self._start, out=out)
        elif self._factors:
            outputs, inputs = self._joined()
            np.matmul(-outputs, inputs.T, out=out)
        else:
            out[...] = 0

    def _joined(self) -> tuple[Floats32, Floats32]:
        outputs, inputs = (np.hstack(side) for side in zip(*self._factors, strict=True))
        return outputs, inputs
