"""The aggregators by their names in the settings, all on updates.

Updates that are not finite are left out. What an aggregator costs is counted in calls of the secure
average oracle; those that must see single updates are counted as one, what FedAvg costs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rfa._types import Floats, Floats32
from rfa.aggregators.adaptive_radius import FIRST
from rfa.aggregators.clear.defenses import Bulyan, MeaMed, NearestNeighborMixing
from rfa.aggregators.clear.paper import (
    CoordinateMedian,
    Krum,
    MultiKrum,
    NormClipping,
    SeesUpdates,
    TrimmedMean,
)
from rfa.lab.settings.settings import SUMMED, Settings
from rfa.lab.simulation.outcome import NothingToAggregateError, Outcome
from rfa.lab.simulation.summed import Witness, ask_for_outcome, split_cohort
from rfa.lab.training.learner import is_finite
from rfa.median import Median, geometric_median
from rfa.numerics.plain_oracle import PlainOracle


def aggregate(
    updates: Floats32, weights: Floats, settings: Settings, t: int = 0, nu: float = FIRST
) -> Outcome:
    """The aggregate of the finite updates, as the settings ask for it.

    Args:
        updates: what each device sends, one row each.
        weights: the weights alpha_i.
        settings: the settings.
        t: the round.
        nu: the radius, where the settings leave it to be learned.

    Raises:
        NothingToAggregateError: if no update is finite.
    """
    finite = np.array([is_finite(row) for row in updates])
    if not finite.any():
        msg = f"none of {len(updates)} updates is finite"
        raise NothingToAggregateError(msg)
    if finite.all():
        return _of_finite(updates, weights, settings, t, nu)
    kept = _of_finite(updates[finite], weights[finite], settings, t, nu)
    spread = None
    if kept.weights is not None:
        spread = np.zeros(len(updates))
        spread[finite] = kept.weights
    dropped = tuple(int(row) for row in np.flatnonzero(~finite))
    return dataclasses.replace(kept, weights=spread, dropped=dropped)


def _of_finite(
    updates: Floats32, weights: Floats, settings: Settings, t: int, nu: float
) -> Outcome:
    if settings.aggregator in ("fedavg", "sgd"):
        return _mean(updates, weights)
    if settings.aggregator not in SUMMED:
        seen = _comparator(settings, len(updates))(updates, weights)
        return Outcome(seen.point, calls=1, weights=seen.weights)
    plain = settings.nu and settings.parts == 1 and settings.schedule == "plain"
    if plain and settings.aggregator == "rfa":
        return _weiszfeld(updates, weights, settings)
    if plain and settings.aggregator == "rfa-one-step":
        return _one_step(updates, weights, settings)
    return _from_sums(updates, weights, settings, t, nu)


def _from_sums(
    updates: Floats32, weights: Floats, settings: Settings, t: int, nu: float
) -> Outcome:
    """What the server makes of sums, here over updates that it could see."""
    alpha = weights / weights.max()
    parts = split_cohort(len(updates), settings, t)
    whole: Any = slice(None)  # a list of all rows would copy them
    places = [rows if len(parts) > 1 else whole for rows in parts]
    oracles = [PlainOracle(updates[rows], alpha[rows]) for rows in places]
    asks = [Witness(oracle) for oracle in oracles]
    found = ask_for_outcome(asks, updates.shape[1], settings, settings.nu or nu)
    steps = settings.aggregator in ("rfa", "rfa-one-step") and settings.schedule == "plain"
    shares = oracles[0].shares if steps and len(parts) == 1 else None
    return dataclasses.replace(found, weights=shares)


def _mean(updates: Floats32, weights: Floats) -> Outcome:
    shares = weights / weights.sum()
    return Outcome(shares.astype(np.float32) @ updates, calls=1, weights=shares)


def _weiszfeld(updates: Floats32, weights: Floats, settings: Settings) -> Outcome:
    """RFA: steps from the mean, which is itself one call, or from the current model."""
    before = 1 if settings.start == "mean" else 0
    found = geometric_median(
        updates,
        weights,
        nu=settings.nu,
        steps=settings.budget - before,
        start="mean" if before else "zero",
        early_stop=settings.early_stop or None,
    )
    return _outcome(found, before)


def _one_step(updates: Floats32, weights: Floats, settings: Settings) -> Outcome:
    found = geometric_median(updates, weights, nu=settings.nu, steps=1, start="zero")
    return _outcome(found, 0)


def _outcome(found: Median, before: int) -> Outcome:
    return Outcome(
        found.point,
        calls=before + found.steps,
        steps=found.steps,
        objective=found.objective,
        weights=found.weights,
    )


def _comparator(settings: Settings, devices: int) -> SeesUpdates:
    """The aggregator, told how many devices to expect corrupted: at most as many as it can be."""
    corrupted = min(math.ceil(settings.effective_assumed_corrupted * devices), (devices - 1) // 2)
    makers: dict[str, Callable[[], SeesUpdates]] = {
        "coordinate-median": CoordinateMedian,
        "trimmed-mean": lambda: TrimmedMean(settings.effective_trim_fraction),
        "norm-clipping": lambda: NormClipping(quantile=settings.clip_quantile),
        "krum": lambda: Krum(corrupted),
        "multi-krum": lambda: MultiKrum(corrupted),
        "meamed": lambda: MeaMed(corrupted),
        "bulyan": lambda: Bulyan(min(corrupted, Bulyan.most(devices))),
        "nnm": lambda: NearestNeighborMixing(corrupted, TrimmedMean(corrupted / devices)),
    }
    return makers[settings.aggregator]()
