"""The corruptions by their names in the settings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from rfa._plugins import load_plugin
from rfa._specs import Spec, parse_spec, signature_of
from rfa.errors import InvalidValueError, PluginError
from rfa.lab.attacks import backdoors, coordinates, corruption, fang, liars, optimized
from rfa.lab.attacks import literature as attacks
from rfa.lab.attacks.corruption import (
    Corruption,
    DataCorruption,
    NoSuchAttackError,
    SumCorruption,
    UpdateCorruption,
)
from rfa.lab.attacks.limits import check_parameters
from rfa.lab.attacks.poisons import label_flip

NONE, BACKDOOR = "none", "backdoor"
BACKDOORS = {**backdoors.BACKDOORS, **coordinates.BACKDOORS}
"""Ways to plant a task's own backdoor."""
TRIGGERED = (BACKDOOR, *BACKDOORS)
"""Corruptions of data with a trigger, which every evaluation tries."""
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
    "fang-trimmed-mean": fang.fang_trimmed_mean,
    "fang-krum": fang.fang_krum,
    "anchor": attacks.anchor,
    "anti-median": optimized.anti_median,
    "against-signs": coordinates.against_signs,
}
"""Corruptions of updates."""
OF_SUMS: dict[str, SumCorruption] = {liars.NAME: liars.ring_liar}
"""Corruptions of secure sums."""
OF_TASKS = ("data", "adaptive", *TRIGGERED)
"""Corruptions of data that tasks have, each its own."""
POISONS: dict[str, DataCorruption] = {"label-flip": label_flip}
"""Corruptions of data that fit every task."""
NAMES = (NONE, *OF_TASKS, *POISONS, *BUILT_IN, *OF_SUMS)
"""All that a corruption may be called, though not every task has each."""


def find_corruption(text: str, task_own: dict[str, DataCorruption]) -> Corruption | None:
    """Return the corruption that a text names: built in, the task's own, or module:function.

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
    """Return a corruption with other values of its parameters.

    Raises:
        InvalidValueError: if it has no such parameter, or the value is wrong; the message names it.
    """
    if not spec.parameters:
        return corruption
    held = {field: getattr(corruption, field, None) for field in ("poison", "forge", "lie")}
    functions: dict[str, Callable[..., Any]] = {k: f for k, f in held.items() if f is not None}
    known = {field: _parameters(function) for field, function in functions.items()}
    names = [name for some in known.values() for name in some]
    for name in spec.parameters:
        if name not in names:
            msg = f"{spec.name} has no parameter {name!r}: it has {', '.join(names) or 'none'}"
            raise InvalidValueError(msg)
    bound: dict[str, Any] = {}
    for field, function in functions.items():
        given = {name: spec.parameters[name] for name in known[field] if name in spec.parameters}
        if given and not spec.is_plugin:  # annotations of users are their own
            check_parameters(function, given)
        bound[field] = functools.partial(function, **given) if given else function
    return dataclasses.replace(corruption, **bound)


def _parameters(function: Callable[..., Any]) -> list[str]:
    taken = signature_of(function).parameters.values()
    return [parameter.name for parameter in taken if parameter.kind is parameter.KEYWORD_ONLY]


def _backdoors(task_own: dict[str, DataCorruption]) -> dict[str, DataCorruption]:
    """Return the ways to plant a task's own backdoor, if it has one."""
    own = task_own.get(BACKDOOR)
    return {name: make(own) for name, make in BACKDOORS.items()} if own else {}


def _load(name: str, task_own: dict[str, DataCorruption]) -> Corruption:
    own = {**task_own, **_backdoors(task_own)}
    known: dict[str, Corruption] = {**BUILT_IN, **POISONS, **OF_SUMS, **own}
    if name in known:
        return known[name]
    if ":" not in name:
        names = ", ".join([NONE, *known])
        what = f"{name!r} is not known" if name not in OF_TASKS else f"this task has no {name!r}"
        msg = f"{what}: give one of {names}, or your own module:function"
        raise InvalidValueError(msg)
    wanted = "a function marked with corrupts_data or corrupts_updates of rfa.lab.attacks"
    return load_plugin(name, (DataCorruption, UpdateCorruption), wanted)
