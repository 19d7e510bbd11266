"""What each node brings in each round: numbers that a test can compute again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DIM = 6
CAP = 100.0
"""The most examples that count, by which weights are divided."""
NU = 0.5

Model = NDArray[np.float32]


def first_model() -> Model:
    """The model before the first round."""
    return np.zeros(DIM, np.float32)


def train(w: Model, partition: int, t: int) -> Model:
    """The model after a node's training: a step near (1, 2, 3, ...), for each node its own."""
    rng = np.random.default_rng([partition, t])
    step = np.arange(1, DIM + 1) + 0.5 * rng.standard_normal(DIM)
    return (w + step).astype(np.float32)


def examples(partition: int) -> int:
    """How many examples a node has."""
    return 20 + 10 * partition


def loss(partition: int, t: int) -> float:
    """What a node tells as its loss."""
    return 1.5 + partition + 0.25 * t
