"""Local model poisoning (Fang et al. 2020): attacks on the trimmed mean and on Krum.

Both reverse the direction of the model's change. The paper writes them for the models that devices
send; here they are for updates, which are the same up to the current model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from rfa._types import Floats
from rfa.lab.attacks import limits
from rfa.lab.attacks.corruption import UpdateAttack, corrupts_updates
from rfa.lab.attacks.honest import Honest
from rfa.lab.attacks.literature import repeat
from rfa.lab.learners.learner import are_finite
from rfa.numerics.pairwise import krum_neighbors, krum_scores, pair_squares
from rfa.numerics.weighted import read_weighted_points

SHORTEST = 1e-5
"""The paper's smallest step against Krum; below it the attack gives up."""


@corrupts_updates
def fang_trimmed_mean(
    attack: UpdateAttack, *, b: Annotated[float, limits.above_one] = 2.0
) -> Floats:
    """Send values just beyond the honest ones, on the side away from the honest mean.

    Each coordinate is drawn between the least honest value (or the largest, if the mean is not
    positive) and `b` times it, or a `b`-th of it if that is farther out. It attacks the trimmed
    mean and the coordinate median.
    """
    honest = Honest.of(attack)
    rises = honest.mean > 0
    low: Floats = honest.rows.min(axis=0).astype(np.float64)
    high: Floats = honest.rows.max(axis=0).astype(np.float64)
    edge: Floats = np.where(rises, low, high)
    far: Floats = np.where((edge > 0) == rises, edge / b, edge * b)
    return edge + attack.rng.random((len(attack.corrupted), len(edge))) * (far - edge)


@corrupts_updates
def fang_krum(attack: UpdateAttack) -> Floats:
    """Send -lambda s from all devices, with the largest lambda that Krum chooses.

    s holds the signs of Krum's choice without an attack. lambda is halved from a bound.
    """
    honest = Honest.of(attack)
    signs = np.sign(_krum_choice(attack)).astype(np.float64)
    game = _Game.of(honest, signs, len(attack.corrupted))
    length = game.bound
    while length > SHORTEST and not game.is_chosen(length):
        length /= 2
    return repeat(attack, -length * signs)


@dataclass(frozen=True)
class _Game:
    """Krum's scores as a function of how far the attackers, who send the same, go against s."""

    apart: Floats  # squared distances of the honest updates from each other
    squares: Floats  # their squared norms
    along: Floats  # their inner products with s
    count: int  # how many coordinates of s are not zero
    dim: int
    corrupted: int

    @classmethod
    def of(cls, honest: Honest, signs: Floats, corrupted: int) -> _Game:
        rows = honest.rows.astype(np.float64, copy=False)
        squares = np.einsum("ij,ij->i", rows, rows)
        apart = _pair_squares(honest.rows)
        count = int(np.count_nonzero(signs))
        return cls(apart, squares, rows @ signs, count, len(signs), corrupted)

    @property
    def neighbors(self) -> int:
        """The number of neighbors in a score."""
        return krum_neighbors(len(self.squares) + self.corrupted, self.corrupted)

    @property
    def bound(self) -> float:
        """The paper's upper bound on lambda."""
        devices = len(self.squares) + self.corrupted
        ranked = np.sort(self.apart, axis=1)
        least = float(krum_scores(ranked, min(self.neighbors, len(ranked) - 1)).min())
        others = max(1, devices - 2 * self.corrupted - 1)
        farthest = math.sqrt(float(self.squares.max()))
        return math.sqrt(least / (others * self.dim)) + farthest / math.sqrt(self.dim)

    def is_chosen(self, length: float) -> bool:
        """Return whether Krum chooses an attacker."""
        away = self.squares + 2 * length * self.along + length**2 * self.count
        own = np.sort(np.concatenate([np.zeros(self.corrupted - 1), away]))
        attackers = np.repeat(away[:, None], self.corrupted, axis=1)
        ranked = np.sort(np.concatenate([self.apart, attackers], axis=1), axis=1)
        best = krum_scores(ranked, self.neighbors).min()
        return bool(own[: self.neighbors].sum() < best)


def _krum_choice(attack: UpdateAttack) -> Any:
    """Return Krum's choice among the updates without an attack."""
    rows = attack.updates[are_finite(attack.updates)]
    if not len(rows):
        return np.zeros(attack.updates.shape[1])
    neighbors = krum_neighbors(len(rows), len(attack.corrupted))
    ranked = np.sort(_pair_squares(rows), axis=1)
    return rows[int(krum_scores(ranked, neighbors).argmin())]


def _pair_squares(rows: Any) -> Floats:
    return pair_squares(read_weighted_points(rows, None, "raise"))
