"""A device that lies inside the ring, at its strongest: it knows all others, and sets the total.

What it masks encodes no legal message, so that the total is whatever it likes: one such liar can do
all that several in the same sum can. The arithmetic is that of the secure sum without masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._types import Vector
from rfa.errors import OracleStoppedError
from rfa.oracle import Sum
from rfa.secagg.fixed_point import Contribution, Encoding
from rfa.secagg.messages.values import as_sent
from rfa.secagg.statistics import STATISTICS
from rfa.secagg.words import TAIL, WORD

Floats = NDArray[np.float64]
Wanted = dict[str, float]
Lie = Callable[[Sum], tuple[Vector, Wanted]]
"""What the total is to be, given that of the honest devices: the push, and statistics by name."""


@dataclass
class LyingRing:
    """An oracle over honest devices and one that lies, if it is told how.

    Attributes:
        updates: the updates of the honest devices.
        lie: the total that the liar makes; None if it is honest too, at the first update.
        equal: whether the server knows that all weights are 1.
        refused: why sums were not plausible.
    """

    updates: Floats
    lie: Lie | None = None
    equal: bool = True
    refused: list[str] = field(default_factory=list[str])

    def __call__(self, v: Vector, nu: Any) -> Sum:
        cohort = len(self.updates) + 1
        encoding = Encoding(cohort, equal_weights=self.equal)
        sent = as_sent(v, len(v))
        words, tail = np.zeros(len(v), WORD), [0] * len(STATISTICS)
        rows = self.updates if self.lie else [*self.updates, self.updates[0]]
        for row, update in enumerate(rows):
            contribution = Contribution(np.asarray(update, np.float32))
            part = encoding.encode(contribution, sent, nu, row.to_bytes(16, "big"))
            words += part.words
            tail = [(a + b) % TAIL for a, b in zip(tail, part.tail, strict=True)]
        if self.lie:
            push, wanted = self.lie(encoding.decode(words, tail).sum)
            aim = [row.encode(wanted[row.name]) for row in STATISTICS]
            lied = np.rint(push * encoding.scale).astype(np.int64).astype(WORD) - words
            words += lied
            tail = [(a + (b - a) % TAIL) % TAIL for a, b in zip(tail, aim, strict=True)]
        try:
            return encoding.decode(words, tail).sum
        except OracleStoppedError as error:
            self.refused.append(str(error))
            raise


def total_of(count: int, near: int, mass: float) -> Wanted:
    """Totals of devices of weight 1, which are as alike as so many near ones can be."""
    held, others = (near, count - near) if 2 * mass < count else (count - near, near)
    rest = (mass - held / 2) / others if others else 0.0
    squares = (held / 4 + others * rest**2) * (1 + 1e-12)
    return {"mass": mass, "squares": squares, "weight": count, "near": near, "count": count}


def throwing(direction: Vector, mass: float, near: float) -> Lie:
    """Push as far as a push can be long, over a small mass; mass and near are shares of n."""

    def lie(honest: Sum) -> tuple[Vector, Wanted]:
        count = honest.count + 1
        push = count * direction / np.linalg.norm(direction)
        return push, total_of(count, round(near * count), mass * count)

    return lie


def cloud(count: int, dim: int = 20, seed: int = 0) -> Floats:
    """Updates of honest devices: half in common, half their own; 1 is their median length."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal(dim) + rng.standard_normal((count, dim))
    return points / np.median(np.linalg.norm(points, axis=1))
