"""Attacks of the literature: what corrupted devices send that know all updates of the round.

None of these asks what the server does with the updates; those of `optimized.py` do. Means and
deviations are weighted by the devices' weights, as the server's are; with equal weights they are
those of the papers.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated, Any

import numpy as np

from rfa._types import Floats, Floats32
from rfa.lab.attacks import limits
from rfa.lab.attacks.corruption import UpdateAttack, corrupts_updates, omniscient
from rfa.lab.attacks.honest import Honest

EPSILON = 0.1
"""The length of inner-product manipulation: short enough to look like an update."""


@corrupts_updates
def sign_flip(attack: UpdateAttack, *, scale: Annotated[float, limits.finite] = 1.0) -> Floats32:
    """The device's own update, negated: it needs to know nothing else (Li et al. 2019)."""
    return np.float32(-scale) * attack.updates[attack.corrupted]


@corrupts_updates
def zero_update(attack: UpdateAttack) -> Floats32:
    """Exactly nothing: where a start at the current model begins, and may stay."""
    return np.zeros_like(attack.updates[attack.corrupted])


@corrupts_updates
def ipm(attack: UpdateAttack, *, epsilon: Annotated[float, limits.finite] = EPSILON) -> Floats:
    """Inner-product manipulation: a short step against the honest mean (Xie et al. 2020)."""
    return repeat(attack, -epsilon * Honest.of(attack).mean)


@corrupts_updates
def alie(attack: UpdateAttack, *, z: Annotated[float | None, limits.finite] = None) -> Floats:
    """A little is enough: the honest mean less z standard deviations (Baruch et al. 2019).

    With the paper's z, the default, enough honest devices are farther out for the attackers to pass
    for a majority.
    """
    honest = Honest.of(attack)
    if z is None:
        z = alie_deviations(len(attack.updates), len(attack.corrupted))
    return repeat(attack, honest.mean - z * honest.std)


def alie_deviations(devices: int, corrupted: int) -> float:
    """The paper's z, of how many devices there are and how many of them are corrupted.

    To make a majority, attackers need s honest devices farther out than they are; z is the quantile
    of the normal law that leaves that share of the honest ones beyond it. It is negative where
    attackers are so few that they need more than half of the honest; where they are a majority by
    themselves, one honest device is asked for.

    >>> round(alie_deviations(50, 24), 2)
    1.43
    """
    honest = devices - corrupted
    if honest < 1:
        return 0.0
    supporters = max(1, devices // 2 + 1 - corrupted)
    share = (honest - supporters) / honest
    return NormalDist().inv_cdf(max(share, 1 / (2 * honest)))


@corrupts_updates
def mimic(attack: UpdateAttack) -> Floats:
    """All copy one honest device, so that others count for less (Karimireddy et al. 2022).

    It is the one with the largest projection on the direction in which updates vary most. The paper
    follows a fixed set of devices over rounds; here devices change, and each round has its own.
    """
    honest = Honest.of(attack)
    projections = honest.along(honest.principal) + honest.mean @ honest.principal
    return repeat(attack, honest.rows[np.argmax(np.abs(projections))])


@corrupts_updates
def min_max(attack: UpdateAttack) -> Floats:
    """As far out as no distance exceeds that of two honest ones (Shejwalkar and Houmansadr 2021).

    The point is the honest mean less gamma standard deviations. Its squared distance from an honest
    update is a quadratic in gamma, so gamma is the least of their roots; the authors bisect.
    """
    honest = Honest.of(attack)
    at_mean, limit = honest.gram.diagonal(), squared_distances(honest).max()
    return _pushed_out(attack, honest, at_mean, limit)


@corrupts_updates
def min_sum(attack: UpdateAttack) -> Floats:
    """As far out as its sum of squared distances from the honest ones is no larger than theirs.

    By Shejwalkar and Houmansadr (2021), as min-max.
    """
    honest = Honest.of(attack)
    at_mean, limit = honest.gram.diagonal().mean(), squared_distances(honest).mean(axis=1).max()
    return _pushed_out(attack, honest, at_mean, limit)


@corrupts_updates
def anchor(attack: UpdateAttack) -> Floats32:
    """Omniscient, but the last device sits where the mean of all of them is.

    Together they turn the weighted mean into its negative. Weiszfeld's algorithm that starts at the
    mean finds an update there, which weighs as much as the smoothing allows. A device alone is
    omniscient.
    """
    rows = np.array(omniscient.forge(attack), np.float32)
    if len(rows) == 1:
        return rows
    honest, weights = Honest.of(attack), attack.weights[attack.corrupted]
    total = honest.weight * honest.mean
    mean = (total + weights.sum() * rows[0]) / (honest.weight + weights.sum())
    others = weights[:-1].sum()
    rows[:-1] = (weights.sum() * rows[0] - weights[-1] * mean) / others
    rows[-1] = (total + others * rows[0]) / (honest.weight + others)
    return rows


def repeat(attack: UpdateAttack, row: Any) -> Floats:
    """All corrupted devices send the same."""
    return np.broadcast_to(row, (len(attack.corrupted), len(row)))


def squared_distances(honest: Honest) -> Floats:
    """Between each two honest updates."""
    lengths = honest.gram.diagonal()
    return np.maximum(lengths[:, None] + lengths - 2 * honest.gram, 0)


def _pushed_out(attack: UpdateAttack, honest: Honest, at_mean: Any, limit: float) -> Floats:
    """The mean less gamma std, with the largest gamma: at_mean + 2 gamma b + gamma^2 c <= limit."""
    c = float(honest.std @ honest.std)
    if c == 0:
        return repeat(attack, honest.mean)
    b = honest.along(honest.std)
    b = b if np.ndim(at_mean) else b.mean()
    room = np.maximum(limit - at_mean, 0)
    gamma = np.min((np.sqrt(b * b + c * room) - b) / c)
    return repeat(attack, honest.mean - gamma * honest.std)
