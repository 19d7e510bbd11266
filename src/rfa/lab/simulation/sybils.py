"""Corrupted devices without data, which join a round beside those that the server samples.

They come last among the rows of a round. Each weighs as much as an average device of the round, and
would send nothing if it did not lie.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Floats32, Ints
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.outcome import Outcome


def join_sybils(updates: Floats32, settings: Settings) -> Floats32:
    """The updates of a round with a row for each sybil; the same array where there are none."""
    count = settings.attack.sybils
    if not count:
        return updates
    return np.concatenate([updates, np.zeros((count, updates.shape[1]), np.float32)])


def weigh_all(weights: Floats, settings: Settings) -> Floats:
    """The weights of a round with those of the sybils."""
    count = settings.attack.sybils
    return np.concatenate([weights, np.full(count, weights.mean())]) if count else weights


def corrupted_rows(is_corrupted: NDArray[np.bool_], settings: Settings) -> Ints:
    """The rows of the corrupted devices of a round, those of the sybils last."""
    return np.flatnonzero(np.append(is_corrupted, np.ones(settings.attack.sybils, np.bool_)))


def without_sybils(outcome: Outcome, devices: int) -> Outcome:
    """What the aggregator made of a round, told of its first rows, the devices, alone."""
    told: dict[str, Any] = {"dropped": tuple(row for row in outcome.dropped if row < devices)}
    if outcome.weights is not None:
        told["weights"] = outcome.weights[:devices]
    return dataclasses.replace(outcome, **told)
