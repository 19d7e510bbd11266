"""The corruptions by their names in the settings."""

from __future__ import annotations

from rfa._plugins import PluginError, load_plugin
from rfa.lab.attacks import corruption, optimized
from rfa.lab.attacks import literature as attacks
from rfa.lab.attacks.corruption import (
    Corruption,
    DataCorruption,
    NoSuchAttackError,
    UpdateCorruption,
)
from rfa.lab.attacks.poisons import label_flip
from rfa.lab.settings.settings import NONE

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
}
"""Corruptions of updates."""
POISONS: dict[str, DataCorruption] = {"label-flip": label_flip}
"""Corruptions of data that fit every task."""


def find_corruption(name: str, task_own: dict[str, DataCorruption]) -> Corruption | None:
    """The corruption of that name: built in, the task's own, or module:function.

    Raises:
        NoSuchAttackError: if there is none; the message says why.
    """
    if name == NONE:
        return None
    known: dict[str, Corruption] = {**BUILT_IN, **POISONS, **task_own}
    if name in known:
        return known[name]
    if ":" not in name:
        names = ", ".join([NONE, *known])
        msg = f"no corruption is called {name!r}: give one of {names}, or module:function"
        raise NoSuchAttackError(msg)
    wanted = (
        "a function marked with corrupts_data or corrupts_updates of rfa.lab.attacks.corruption"
    )
    try:
        return load_plugin(name, (DataCorruption, UpdateCorruption), wanted)
    except PluginError as error:
        msg = f"corruption {error}"
        raise NoSuchAttackError(msg) from error
