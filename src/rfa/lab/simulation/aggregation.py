"""The aggregate of a round where the server sees the updates.

Updates that are not finite are left out. What an aggregator costs is counted in calls of the secure
average oracle; those that must see single updates are counted as one, what FedAvg costs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from rfa._types import Floats, Floats32
from rfa.aggregators import Mean, Result, SumAggregator
from rfa.aggregators.clear import Randomized
from rfa.aggregators.clear.trusted import HasReference
from rfa.aggregators.registry import Aggregator
from rfa.lab.learners.learner import are_finite, is_finite
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.in_clear import effective_weights, shortcut
from rfa.lab.simulation.outcome import NothingToAggregateError, Outcome
from rfa.numerics.plain_oracle import PlainOracle


def aggregate(  # noqa: PLR0913
    updates: Floats32,
    weights: Floats,
    settings: Settings,
    t: int = 0,
    state: Any = None,
    *,
    trusted: Floats32 | None = None,
) -> tuple[Outcome, Any]:
    """The aggregate of the finite updates, as the settings ask for it.

    Args:
        updates: what each device sends, one row each.
        weights: the weights alpha_i.
        settings: the settings.
        t: the round.
        state: what the aggregator carries from the round before.
        trusted: the server's own update, where the aggregator compares with one.

    Returns:
        The outcome, and what the aggregator carries to the next round.

    Raises:
        NothingToAggregateError: if no update is finite.
    """
    aggregator = _in_round(settings, t, trusted)
    if isinstance(aggregator, Mean) and len(updates):
        with np.errstate(over="ignore", invalid="ignore"):
            mean = shortcut(aggregator, updates, weights)
        if mean is not None and is_finite(mean.point):  # then so is all that it is a sum of
            return mean, state
    finite = are_finite(updates)
    if not finite.any():
        msg = f"none of {len(updates)} updates is finite"
        raise NothingToAggregateError(msg)
    if finite.all():
        return _of_finite(updates, weights, aggregator, settings, t, state=state)
    outcome, after = _of_finite(
        updates[finite], weights[finite], aggregator, settings, t, state=state
    )
    spread = None
    if outcome.weights is not None:
        spread = np.zeros(len(updates))
        spread[finite] = outcome.weights
    dropped = tuple(int(row) for row in np.flatnonzero(~finite))
    return dataclasses.replace(outcome, weights=spread, dropped=dropped), after


def split_cohort(count: int, settings: Settings, t: int) -> list[list[int]]:
    """The rows of each part of the cohort of round t, at random; no part is empty."""
    parts = min(settings.layout.parts, count)
    if parts == 1:
        return [list(range(count))]
    order = stream(settings.seed, "parts", t).permutation(count)
    return [sorted(map(int, rows)) for rows in np.array_split(order, parts)]


def outcome_of(result: Result) -> Outcome:
    """The outcome of a round from the result of its sums."""
    return Outcome(
        result.point.astype(np.float32),
        calls=result.calls,
        certificate=result.certificate,
        near=result.near,
    )


def _in_round(settings: Settings, t: int, trusted: Floats32 | None) -> Aggregator:
    """The aggregator of a round, which draws as the round says, and has what the server trusts."""
    aggregator: Aggregator = settings.aggregation
    if isinstance(aggregator, HasReference):
        return dataclasses.replace(aggregator, reference=trusted)
    if isinstance(aggregator, Randomized):
        return dataclasses.replace(aggregator, seed=stream(settings.seed, "aggregator", t))
    return aggregator


def _of_finite(  # noqa: PLR0913
    updates: Floats32,
    weights: Floats,
    aggregator: Aggregator,
    settings: Settings,
    t: int,
    *,
    state: Any,
) -> tuple[Outcome, Any]:
    if not isinstance(aggregator, SumAggregator):
        seen = aggregator(updates, weights)
        return Outcome(seen.point, calls=1, weights=seen.weights), state
    outcome = shortcut(aggregator, updates, weights)
    if outcome is not None:
        return outcome, state
    rows = split_cohort(len(updates), settings, t)
    return _from_sums(updates, weights / weights.max(), aggregator, rows, state)


def _from_sums(
    updates: Floats32,
    alpha: Floats,
    aggregator: SumAggregator[Any],
    rows: Sequence[Sequence[int]],
    state: Any,
) -> tuple[Outcome, Any]:
    """What the server makes of sums, here over updates that it could see."""
    if len(rows) == 1:  # a list of all rows would copy them
        oracles = [PlainOracle(updates, alpha)]
    else:
        oracles = [PlainOracle(updates[part], alpha[part]) for part in rows]
    result, after = aggregator(oracles, updates.shape[1], state)
    weights = effective_weights(aggregator, oracles[0]) if len(rows) == 1 else None
    return dataclasses.replace(outcome_of(result), weights=weights), after
