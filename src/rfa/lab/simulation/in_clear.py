"""What the lab can do because it sees the updates: faster ways to the same aggregate, and weights.

A private aggregator needs neither. Where there is no faster way, its sums are taken over the
updates by a `PlainOracle`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rfa._types import Floats, Floats32
from rfa.aggregators import RFA, Mean, OneStepRFA, SumAggregator
from rfa.lab.simulation.outcome import Outcome
from rfa.median import geometric_median
from rfa.numerics.plain_oracle import PlainOracle


@functools.singledispatch
def shortcut(aggregator: SumAggregator[Any], updates: Floats32, weights: Floats) -> Outcome | None:
    """The aggregate of finite updates without an oracle, or None where there is no such way."""
    del aggregator, updates, weights
    return None


@shortcut.register
def _(aggregator: Mean, updates: Floats32, weights: Floats) -> Outcome | None:
    if aggregator.clip_norm != np.inf:
        return None
    shares = weights / weights.sum()
    return Outcome(shares.astype(np.float32) @ updates, calls=1, weights=shares)


@shortcut.register
def _(aggregator: RFA, updates: Floats32, weights: Floats) -> Outcome | None:
    if aggregator.nu is None or aggregator.schedule != "plain":
        return None
    from_mean = aggregator.start == "mean"
    if from_mean and aggregator.clip_norm != np.inf:
        return None
    return _weiszfeld(
        updates,
        weights,
        before=int(from_mean),
        nu=aggregator.nu,
        steps=aggregator.budget - from_mean,
        start="mean" if from_mean else "zero",
        early_stop=aggregator.early_stop,
    )


@shortcut.register
def _(aggregator: OneStepRFA, updates: Floats32, weights: Floats) -> Outcome | None:
    if aggregator.nu is None:
        return None
    return _weiszfeld(updates, weights, before=0, nu=aggregator.nu, steps=1, start="zero")


def effective_weights(aggregator: SumAggregator[Any], oracle: PlainOracle) -> Floats | None:
    """The weights of the updates in the last step of one part, where it is a mean of them."""
    plain = isinstance(aggregator, RFA) and aggregator.schedule == "plain"
    return oracle.shares if plain or isinstance(aggregator, OneStepRFA) else None


def _weiszfeld(
    updates: Floats32, weights: Floats, *, before: int, steps: int, **how: Any
) -> Outcome:
    """Take steps; the sum that would show that the last one gained too little is a call, too."""
    median = geometric_median(updates, weights, steps=steps, **how)
    return Outcome(
        median.point,
        calls=before + min(median.steps + 1, steps),
        objective=median.objective,
        weights=median.weights,
    )
