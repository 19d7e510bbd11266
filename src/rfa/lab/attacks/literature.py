"""Attacks from the literature, by corrupted devices that know all updates of the round.

None of these depends on the server's aggregator; those of `optimized.py` do. Means and deviations
are weighted by the devices' weights, like the server's; with equal weights they are those of the
papers.
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
    """Send the device's own update, negated; this needs no knowledge of others (Li et al. 2019)."""
    return np.float32(-scale) * attack.updates[attack.corrupted]


@corrupts_updates
def zero_update(attack: UpdateAttack) -> Floats32:
    """Send zero, which is where a start at the current model begins."""
    return np.zeros_like(attack.updates[attack.corrupted])


@corrupts_updates
def ipm(attack: UpdateAttack, *, epsilon: Annotated[float, limits.finite] = EPSILON) -> Floats:
    """Inner-product manipulation: a short step against the honest mean (Xie et al. 2020)."""
    return repeat(attack, -epsilon * Honest.of(attack).mean)


@corrupts_updates
def alie(attack: UpdateAttack, *, z: Annotated[float | None, limits.finite] = None) -> Floats:
    """A little is enough: the honest mean minus z standard deviations (Baruch et al. 2019).

    With the paper's z, the default, enough honest devices are farther out for the attackers to look
    like a majority.
    """
    honest = Honest.of(attack)
    if z is None:
        z = alie_deviations(len(attack.updates), len(attack.corrupted))
    return repeat(attack, honest.mean - z * honest.std)


def alie_deviations(devices: int, corrupted: int) -> float:
    """Return the paper's z, from the number of devices and of corrupted devices.

    To look like a majority, attackers need s honest devices farther out than they are. z is the
    quantile of the normal distribution that leaves this fraction of the honest devices beyond it.
    It is negative if the attackers are so few that they need more than half of the honest devices.
    If they are a majority themselves, they need one honest device.

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
    """Copy one honest device, so that others count less (Karimireddy et al. 2022).

    It is the one with the largest projection on the direction of largest variance. The paper
    follows a fixed set of devices over rounds; here devices change, and each round has its own.
    """
    honest = Honest.of(attack)
    projections = honest.along(honest.principal) + honest.mean @ honest.principal
    return repeat(attack, honest.rows[np.argmax(np.abs(projections))])


@corrupts_updates
def min_max(attack: UpdateAttack) -> Floats:
    """Go as far out as two honest updates are apart at most (Shejwalkar and Houmansadr 2021).

    The point is the honest mean minus gamma standard deviations. Its squared distance from an
    honest update is a quadratic in gamma, so gamma is the least of their roots; the authors bisect.
    """
    honest = Honest.of(attack)
    at_mean, limit = honest.gram.diagonal(), squared_distances(honest).max()
    return _pushed_out(attack, honest, at_mean, limit)


@corrupts_updates
def min_sum(attack: UpdateAttack) -> Floats:
    """Go as far out as the largest sum of squared distances of an honest update allows.

    The sum of squared distances to honest updates is no larger than theirs. By Shejwalkar and
    Houmansadr (2021), as min-max.
    """
    honest = Honest.of(attack)
    at_mean, limit = honest.gram.diagonal().mean(), squared_distances(honest).mean(axis=1).max()
    return _pushed_out(attack, honest, at_mean, limit)


@corrupts_updates
def anchor(attack: UpdateAttack) -> Floats32:
    """Attack like omniscient, but with the last device at the mean of all updates.

    Together they turn the weighted mean into its negative. Weiszfeld's algorithm with a start at
    the mean finds an update there, which gets the largest weight that the smoothing allows. A
    single device is omniscient.
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
    """Return the same row for all corrupted devices."""
    return np.broadcast_to(row, (len(attack.corrupted), len(row)))


def squared_distances(honest: Honest) -> Floats:
    """Return the squared distances between all honest updates."""
    lengths = honest.gram.diagonal()
    return np.maximum(lengths[:, None] + lengths - 2 * honest.gram, 0)


def _pushed_out(attack: UpdateAttack, honest: Honest, at_mean: Any, limit: float) -> Floats:
    """Return the mean minus gamma std, with the largest gamma within a limit.

    The limit is at_mean + 2 gamma b + gamma^2 c <= limit.
    """
    c = float(honest.std @ honest.std)
    if c == 0:
        return repeat(attack, honest.mean)
    b = honest.along(honest.std)
    b = b if np.ndim(at_mean) else b.mean()
    room = np.maximum(limit - at_mean, 0)
    gamma = np.min((np.sqrt(b * b + c * room) - b) / c)
    return repeat(attack, honest.mean - gamma * honest.std)
