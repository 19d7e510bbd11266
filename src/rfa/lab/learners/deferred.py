"""A large matrix under SGD, whose steps wait.

The gradient of a batch in a dense layer's matrix is D A^T, with a column for each example: the
gradient in the layer's outputs, and its inputs. A step would read and write the whole matrix, many
times what D and A take. Here steps are kept as such factors, and a product with the matrix is

    W a = W_0 a - D (A^T a),

until so many columns wait that this costs more than writing the matrix. Where they all wait until
the end, D A^T is the change itself, in one product, and the first matrix is never copied.
"""

from __future__ import annotations

from typing import final

import numpy as np

from rfa._types import Floats32

WAITING = 192
"""How many examples' gradients wait at most."""
ROWS = 256
"""Rows of the matrix that are written at a time, so that what is subtracted stays in cache."""


@final
class DeferredMatrix:
    """W_0 - D A^T, given W_0."""

    def __init__(self, start: Floats32, waiting: int = WAITING) -> None:
        """Take the first matrix, which is left as it is, and how many examples wait at most."""
        self._start = self._matrix = start
        self._limit, self._count = waiting, 0
        self._factors: list[tuple[Floats32, Floats32]] = []

    def times(self, a: Floats32) -> Floats32:
        """W a."""
        product = self._matrix @ a
        for outputs, inputs in self._factors:
            product -= outputs @ (inputs.T @ a)
        return product

    def transposed_times(self, d: Floats32) -> Floats32:
        """W^T d."""
        product = (d.T @ self._matrix).T
        for outputs, inputs in self._factors:
            product -= inputs @ (outputs.T @ d)
        return product

    def subtract(self, outputs: Floats32, inputs: Floats32) -> None:
        """Take the product D A^T off; both factors are kept as they are."""
        self._factors.append((outputs, inputs))
        self._count += outputs.shape[1]
        if self._count > self._limit:
            self.settled()

    def settled(self) -> Floats32:
        """The matrix itself, with nothing waiting: the caller may change it."""
        if self._matrix is self._start:
            self._matrix = self._start.copy()
        if self._factors:
            outputs, inputs = self._joined()
            for i in range(0, len(outputs), ROWS):
                self._matrix[i : i + ROWS] -= outputs[i : i + ROWS] @ inputs.T
            self._factors, self._count = [], 0
        return self._matrix

    def write_change(self, out: Floats32) -> None:
        """Write what has become of the first matrix, less that matrix."""
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
