"""Backdoors from the literature, based on a task's own: the same trigger, planted in other ways.

Model replacement scales the update, DBA splits the trigger among the attackers, and Neurotoxin
avoids the coordinates that honest devices change most. Every evaluation tries the complete trigger.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from rfa._types import Floats32, Ints
from rfa.errors import InvalidValueError
from rfa.lab.attacks import limits
from rfa.lab.attacks.corruption import DataAttack, DataCorruption, UpdateAttack
from rfa.lab.attacks.honest import Honest
from rfa.lab.attacks.poisons import plant

Stamp = Callable[[Any], Any]


def model_replacement(backdoor: DataCorruption) -> DataCorruption:
    """A backdoor whose update replaces the model (Bagdasaryan et al. 2020).

    Parameters: `scale`, the factor; by default the total weight divided by that of the attackers,
    so a plain mean of the updates moves by the whole backdoored update.
    """
    return dataclasses.replace(backdoor, forge=scaled_up)


def dba(backdoor: DataCorruption) -> DataCorruption:
    """A backdoor whose trigger is split among the attackers: DBA (Xie et al. 2020).

    Parameters: `parts`, 4 by default; device i stamps part i modulo their number.
    """
    trigger = backdoor.trigger
    if trigger is None:
        msg = "dba needs a backdoor with a trigger: make one with lab.backdoor(stamp, target)"
        raise InvalidValueError(msg)

    def poison(
        x: Any, y: Any, attack: DataAttack, *, parts: Annotated[int, limits.count] = 4
    ) -> tuple[Any, Any]:
        part = stamp_part(trigger.stamp, attack.device % parts, parts)
        return plant(x, y, attack, part, trigger.target)

    return dataclasses.replace(backdoor, poison=poison)


def neurotoxin(backdoor: DataCorruption) -> DataCorruption:
    """A backdoor in the coordinates that honest devices change least (Zhang et al. 2022).

    Parameters: `top`, the fraction of the coordinates, those with the largest honest mean, that it
    does not change; 0.1 by default. The paper projects each local step, and knows the aggregate of
    the round before; here the update is projected, by the honest mean of the same round.
    """
    return dataclasses.replace(backdoor, forge=outside_the_top)


BACKDOORS: dict[str, Callable[[DataCorruption], DataCorruption]] = {
    "model-replacement": model_replacement,
    "dba": dba,
    "neurotoxin": neurotoxin,
}
"""Ways to plant a task's backdoor, by name."""


def scaled_up(
    attack: UpdateAttack, *, scale: Annotated[float | None, limits.positive] = None
) -> Floats32:
    """Return the devices' own updates times a factor."""
    if scale is None:
        scale = float(attack.weights.sum() / attack.weights[attack.corrupted].sum())
    return np.float32(scale) * attack.updates[attack.corrupted]


def outside_the_top(
    attack: UpdateAttack, *, top: Annotated[float, limits.below_one] = 0.1
) -> Floats32:
    """Return the devices' own updates, with zeros where the honest mean changes most."""
    rows = attack.updates[attack.corrupted].copy()
    count = round(top * rows.shape[1])
    if count:
        largest = np.argpartition(-np.abs(Honest.of(attack).mean), count - 1)[:count]
        rows[:, largest] = 0
    return rows


def stamp_part(stamp: Stamp, which: int, parts: int) -> Stamp:
    """Return a function that puts one of several parts of a trigger on examples."""

    def put(x: Any) -> Any:
        written = _written(stamp, x[:1])
        if written.size < parts:
            msg = (
                f"the trigger writes {written.size} values: it cannot be split into {parts} parts, "
            )
            msg += f"give parts={written.size} or fewer"
            raise InvalidValueError(msg)
        own = np.array_split(written, parts)[which]
        stamped = np.asarray(stamp(x.copy()))
        x.reshape(len(x), -1)[:, own] = stamped.reshape(len(x), -1)[:, own]
        return x

    return put


def _written(stamp: Stamp, example: Any) -> Ints:
    """Return the values of an example that a trigger changes, in zeros or in ones."""
    changed = np.zeros(example.size, np.bool_)
    for probe in (np.zeros_like(example), np.ones_like(example)):
        changed |= (np.asarray(stamp(probe.copy())) != probe).ravel()
    return np.flatnonzero(changed)
