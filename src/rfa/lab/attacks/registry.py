"""The corruptions by their names in the settings."""

from __future__ import annotations

import dataclasses
import functools
import inspect

from rfa._plugins import load_plugin
from rfa._specs import Spec, parse_spec
from rfa.errors import InvalidValueError, PluginError
from rfa.lab.attacks import coordinates, corruption, optimized
from rfa.lab.attacks import literature as attacks
from rfa.lab.attacks.corruption import (
    Corruption,
    DataCorruption,
    NoSuchAttackError,
    UpdateCorruption,
)
from rfa.lab.attacks.poisons import label_flip

NONE, BACKDOOR = "none", "backdoor"
BUILT_IN: dict[str, UpdateCorruption] = {
    "gaussian": corruption.gaussian,
    "gaussian-replace": corruption.gaussian_replace,
    "omniscient": corruption.omniscient,
    "omniscient-parameters": corruption.omniscient_parameters,
    "nan": corruption.nan,
    "sign-flip": attacks.sign_flip,
    "zero-update": attacks.zero_update,
    "ipm": attacks.ipm,
    "ipm-optimized": optimized.ipm_optimized,
    "alie": attacks.alie,
    "alie-optimized": optimized.alie_optimized,
    "mimic": attacks.mimic,
    "min-max": attacks.min_max,
    "min-sum": attacks.min_sum,
    "anchor": attacks.anchor,
    "anti-median": optimized.anti_median,
    "against-signs": coordinates.against_signs,
}
"""Corruptions of updates."""
OF_TASKS = ("data", "adaptive", BACKDOOR)
"""Corruptions of data that tasks have, each its own."""
POISONS: dict[str, DataCorruption] = {"label-flip": label_flip}
"""Corruptions of data that fit every task."""


def find_corruption(text: str, task_own: dict[str, DataCorruption]) -> Corruption | None:
    """The corruption that a text names: built in, the task's own, or module:function.

    Parameters may follow, as in `alie:z=1.5` or `module:function:scale=2`.

    Raises:
        NoSuchAttackError: if there is none, or it has no such parameter; the message says why.
    """
    if text == NONE:
        return None
    try:
        spec = parse_spec(text)
        return with_parameters(_load(spec.name, task_own), spec)
    except (PluginError, InvalidValueError) as error:
        msg = f"corruption {error}"
        raise NoSuchAttackError(msg) from error


def with_parameters(corruption: Corruption, spec: Spec) -> Corruption:
    """A corruption with other values of its parameters.

    Raises:
        InvalidValueError: naming the parameter that it has not.
    """
    if not spec.parameters:
        return corruption
    trained = isinstance(corruption, DataCorruption) and corruption.forge is None
    field = "poison" if trained else "forge"
    function = getattr(corruption, field)
    taken = inspect.signature(function).parameters.values()
    known = [parameter.name for parameter in taken if parameter.kind is parameter.KEYWORD_ONLY]
    for name in spec.parameters:
        if name not in known:
            msg = f"{spec.name} has no parameter {name!r}: it has {', '.join(known) or 'none'}"
            raise InvalidValueError(msg)
    bound = {field: functools.partial(function, **spec.parameters)}
    return dataclasses.replace(corruption, **bound)


def _backdoors(task_own: dict[str, DataCorruption]) -> dict[str, DataCorruption]:
    """The ways to plant a task's own backdoor, if it has one."""
    own = task_own.get(BACKDOOR)
    return {name: plant(own) for name, plant in coordinates.BACKDOORS.items()} if own else {}


def _load(name: str, task_own: dict[str, DataCorruption]) -> Corruption:
    known: dict[str, Corruption] = {**BUILT_IN, **POISONS, **task_own, **_backdoors(task_own)}
    if name in known:
        return known[name]
    if ":" not in name:
        names = ", ".join([NONE, *known])
        what = f"{name!r} is not known" if name not in OF_TASKS else f"this task has no {name!r}"
        msg = f"{what}: give one of {names}, or your own module:function"
        raise InvalidValueError(msg)
    wanted = "a function marked with corrupts_data or corrupts_updates of rfa.lab.attacks"
    return load_plugin(name, (DataCorruption, UpdateCorruption), wanted)
