"""Attackers who know that updates are clipped coordinate by coordinate, or block by block.

Signs move such a server: a device beyond the radius of a block counts there with its full weight,
and no more. So these attackers send large values with chosen signs: all of them against the honest
mean, those of a backdoor, or those of the few coordinates that a backdoor needs, and honest values
elsewhere. Being far out, they also vote for larger radii in every round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated

import numpy as np

from rfa._types import Floats
from rfa.lab.attacks import limits
from rfa.lab.attacks.corruption import DataCorruption, UpdateAttack, corrupts_updates
from rfa.lab.attacks.honest import Honest
from rfa.lab.attacks.literature import repeat

SCALE = 10.0
"""The size of the values that are sent, as a multiple of the largest honest value."""
TOP = 0.02
"""The fraction of the coordinates that an aimed backdoor changes."""


@corrupts_updates
def against_signs(
    attack: UpdateAttack, *, scale: Annotated[float, limits.positive] = SCALE
) -> Floats:
    """Send minus the sign of the honest mean in every coordinate, far out.

    Of all inputs of corrupted devices, this reduces the progress of a step that is clipped
    coordinate by coordinate most.
    """
    honest = Honest.of(attack)
    return repeat(attack, -_far(honest, scale) * np.sign(honest.mean))


def backdoor_signs(backdoor: DataCorruption) -> DataCorruption:
    """A backdoor by signs, wherever the poisoned mean differs from the honest one.

    Parameters: `scale`, the size as a multiple of the largest honest value; 10 by default.
    """
    return dataclasses.replace(backdoor, forge=poisoned_signs)


def backdoor_aimed(backdoor: DataCorruption) -> DataCorruption:
    """A backdoor by signs in the few coordinates it needs most, with the honest mean elsewhere.

    Parameters: `top`, the fraction of the coordinates, those with the largest difference between
    the poisoned and the honest mean, 0.02 by default; and `scale`, as in `backdoor_signs`.
    """
    return dataclasses.replace(backdoor, forge=aimed_signs)


BACKDOORS: dict[str, Callable[[DataCorruption], DataCorruption]] = {
    "backdoor-signs": backdoor_signs,
    "backdoor-aimed": backdoor_aimed,
}
"""Ways to plant a task's backdoor where clipping is by coordinates, by name."""


def poisoned_signs(
    attack: UpdateAttack, *, scale: Annotated[float, limits.positive] = SCALE
) -> Floats:
    """Return the signs of the difference between the poisoned mean and the honest mean."""
    honest = Honest.of(attack)
    return repeat(attack, _far(honest, scale) * np.sign(_difference(attack, honest)))


def aimed_signs(
    attack: UpdateAttack,
    *,
    top: Annotated[float, limits.positive_share] = TOP,
    scale: Annotated[float, limits.positive] = SCALE,
) -> Floats:
    """Return these signs in the coordinates that differ most, and the honest mean elsewhere."""
    honest = Honest.of(attack)
    difference, row = _difference(attack, honest), honest.mean.copy()
    count = max(1, round(top * len(row)))
    aims = np.argpartition(-np.abs(difference), count - 1)[:count]
    row[aims] = _far(honest, scale) * np.sign(difference[aims])
    return repeat(attack, row)


def _difference(attack: UpdateAttack, honest: Honest) -> Floats:
    """Return the mean of the poisoned updates minus the honest one."""
    own = attack.updates[attack.corrupted].astype(np.float64)
    weights = attack.weights[attack.corrupted]
    return weights @ own / weights.sum() - honest.mean


def _far(honest: Honest, scale: float) -> float:
    """Return a value beyond all honest ones."""
    return scale * float(np.abs(honest.rows).max() or 1.0)
