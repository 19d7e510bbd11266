"""The aggregators by their names in the settings, all on updates.

Updates that are not finite are left out. What an aggregator costs is counted in calls of the secure
average oracle; those that must see single updates are counted as one, what FedAvg costs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rfa.aggregators import (
    CoordinateMedian,
    Krum,
    MultiKrum,
    NormClipping,
    SeesUpdates,
    TrimmedMean,
)
from rfa.defences import Bulyan, MeaMed, NearestNeighbourMixing
from rfa.federated.learner import Floats32, is_finite
from rfa.federated.settings import Settings
from rfa.kernel import Floats
from rfa.median import Median, geometric_median


@dataclass(frozen=True)
class Outcome:
    """What the server learns from a cohort, and what only the lab can know.

    Attributes:
        point: the aggregate of the updates.
        calls: calls of the secure average oracle.
        steps: Weiszfeld steps.
        objective: the average distance of the updates from the aggregate, where it is known.
        weights: the effective weights of the updates, where there are such.
        dropped: the updates that were left out because they are not finite.
        lost: the devices that dropped out of the secure sum.
        certificate: a proven bound on the share of any one device in the last step.
    """

    point: Floats32
    calls: int
    steps: int = 0
    objective: float | None = None
    weights: Floats | None = None
    dropped: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    certificate: float | None = None


class NothingToAggregate(Exception):  # noqa: N818
    """No device of the cohort sent a finite update."""


def aggregate(updates: Floats32, weights: Floats, settings: Settings) -> Outcome:
    """The aggregate of the finite updates, as the settings ask for it.

    Raises:
        NothingToAggregate: if no update is finite.
    """
    finite = np.array([is_finite(row) for row in updates])
    if not finite.any():
        msg = f"none of {len(updates)} updates is finite"
        raise NothingToAggregate(msg)
    if finite.all():
        return _of_finite(updates, weights, settings)
    kept = _of_finite(updates[finite], weights[finite], settings)
    spread = None
    if kept.weights is not None:
        spread = np.zeros(len(updates))
        spread[finite] = kept.weights
    dropped = tuple(int(row) for row in np.flatnonzero(~finite))
    return dataclasses.replace(kept, weights=spread, dropped=dropped)


def _of_finite(updates: Floats32, weights: Floats, settings: Settings) -> Outcome:
    if settings.aggregator in ("fedavg", "sgd"):
        return _mean(updates, weights)
    if settings.aggregator == "rfa":
        return _weiszfeld(updates, weights, settings)
    if settings.aggregator == "rfa-one-step":
        return _one_step(updates, weights, settings)
    seen = _comparator(settings, len(updates))(updates, weights)
    return Outcome(seen.point, calls=1, weights=seen.weights)


def _mean(updates: Floats32, weights: Floats) -> Outcome:
    shares = weights / weights.sum()
    return Outcome(shares.astype(np.float32) @ updates, calls=1, weights=shares)


def _weiszfeld(updates: Floats32, weights: Floats, settings: Settings) -> Outcome:
    """RFA: steps from the mean, which is itself one call, or from zero, the current model."""
    before = 1 if settings.start == "mean" else 0
    found = geometric_median(
        updates,
        weights,
        nu=settings.nu,
        steps=settings.budget - before,
        start=settings.start,
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
    corrupted = min(math.ceil(settings.expected_share * devices), (devices - 1) // 2)
    makers: dict[str, Callable[[], SeesUpdates]] = {
        "coordinate-median": CoordinateMedian,
        "trimmed-mean": lambda: TrimmedMean(settings.trim_share),
        "norm-clipping": lambda: NormClipping(quantile=settings.clip),
        "krum": lambda: Krum(corrupted),
        "multi-krum": lambda: MultiKrum(corrupted),
        "meamed": lambda: MeaMed(corrupted),
        "bulyan": lambda: Bulyan(min(corrupted, Bulyan.most(devices))),
        "nnm": lambda: NearestNeighbourMixing(corrupted, TrimmedMean(corrupted / devices)),
    }
    return makers[settings.aggregator]()
