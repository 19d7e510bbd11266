"""The honest updates of a round and their spread, for omniscient attackers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rfa._types import Floats, Floats32
from rfa.lab.attacks.corruption import UpdateAttack
from rfa.lab.learners.learner import are_finite

BLOCK = 1 << 16
"""The number of coordinates per block, so that large models need no second copy."""


@dataclass(frozen=True)
class Honest:
    """The honest updates that the server will count: those that are not finite are dropped.

    If there are none, a single zero update stands for them.
    """

    rows: Floats32  # the updates
    shares: Floats  # the weights of their devices, which sum to one
    weight: float  # the total weight of the devices

    @classmethod
    def of(cls, attack: UpdateAttack) -> Honest:
        """Return the honest updates that attackers see."""
        honest = np.setdiff1d(np.arange(len(attack.updates)), attack.corrupted)
        good = honest[are_finite(attack.updates)[honest]]
        if not good.size:
            return cls(np.zeros((1, attack.updates.shape[1]), np.float32), np.ones(1), 0.0)
        weights = attack.weights[good]
        return cls(attack.updates[good], weights / weights.sum(), float(weights.sum()))

    @cached_property
    def mean(self) -> Floats:
        """Their weighted mean."""
        return (self.shares.astype(np.float32) @ self.rows).astype(np.float64)

    @cached_property
    def std(self) -> Floats:
        """The sample standard deviation of each coordinate: with n - 1 if weights are equal."""
        total = np.zeros_like(self.mean)
        for share, row in zip(self.shares, self.rows, strict=True):
            total += share * np.square(row - self.mean)
        freedom = 1 - np.square(self.shares).sum()
        return np.sqrt(total / freedom) if len(self.rows) > 1 else total

    @cached_property
    def gram(self) -> Floats:
        """The inner products of their deviations from the mean."""
        total = np.zeros((len(self.rows), len(self.rows)))
        for _, part in self._deviations():
            total += part @ part.T
        return total

    @cached_property
    def spread(self) -> float:
        """The median of their distances from the mean."""
        return float(np.median(np.sqrt(self.gram.diagonal())))

    @cached_property
    def principal(self) -> Floats:
        """The unit direction in which they vary most, turned away from the mean."""
        roots = np.sqrt(self.shares)
        _, vectors = np.linalg.eigh(roots[:, None] * self.gram * roots)
        coefficients = (roots * vectors[:, -1]).astype(np.float32)
        direction = np.concatenate([coefficients @ part for _, part in self._deviations()])
        direction = unit(direction.astype(np.float64))
        return -direction if direction @ self.mean > 0 else direction

    def along(self, direction: Floats) -> Floats:
        """Return the inner products of their deviations from the mean with a direction."""
        total = np.zeros(len(self.rows))
        for where, part in self._deviations():
            total += part @ direction[where]
        return total

    def _deviations(self) -> Iterator[tuple[slice, Any]]:
        for start in range(0, self.rows.shape[1], BLOCK):
            where = slice(start, start + BLOCK)
            yield where, self.rows[:, where] - self.mean[where].astype(np.float32)


def unit(direction: Floats) -> Floats:
    """Return a direction of length one, or zero if there is none."""
    return direction / (np.linalg.norm(direction) or 1)
