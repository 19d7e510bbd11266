"""Noise that a trusted server adds once: central differential privacy, to compare with.

This needs what the rest of rfa does without: **a server that sees every update and must be
trusted** with them. It adds Gaussian noise of the sum's sensitivity times the multiplier to each
sum, not more than the devices would have to add together, and epsilon is against those who read the
models it gives away. With a mean of clipped updates it is DP-FedAvg (McMahan et al. 2018).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np

from rfa._types import Floats32, Vector
from rfa.aggregators.registry import build_private
from rfa.lab.learners.learner import are_finite
from rfa.lab.randomness import stream
from rfa.lab.simulation.aggregation import outcome_of, split_cohort
from rfa.lab.simulation.noise import RunNoise, sent_totals
from rfa.lab.simulation.outcome import NothingToAggregateError, Outcome
from rfa.numerics.plain_oracle import PlainOracle
from rfa.oracle import Sum, SumOracle
from rfa.privacy.noisy_sum import MASS_FACTOR, NEAR_FACTOR
from rfa.radii import Radius


def aggregate_centrally(
    updates: Floats32, noise: RunNoise, t: int, state: Any = None
) -> tuple[Outcome, Any]:
    """The aggregate of round t by a trusted server, which sees the updates and adds the noise.

    Args:
        updates: what each device sends, one row each; those that are not finite are left out.
        noise: how much noise.
        t: the round.
        state: what the aggregator carries from the round before.

    Returns:
        The outcome, and what the aggregator carries to the next round.

    Raises:
        NothingToAggregateError: if no update is finite.
    """
    finite = are_finite(updates)
    if not finite.any():
        msg = f"none of {len(updates)} updates is finite"
        raise NothingToAggregateError(msg)
    settings, kept = noise.settings, updates[finite]
    rng, sent = stream(settings.seed, "noise", t), sent_totals(settings)
    oracles = [
        noisy_oracle(PlainOracle(kept[rows]), noise.opened, rng, sent)
        for rows in split_cohort(len(kept), settings, t)
    ]
    result, after = build_private(settings.aggregation)(oracles, updates.shape[1], state)
    dropped = tuple(int(row) for row in np.flatnonzero(~finite))
    return dataclasses.replace(outcome_of(result), dropped=dropped), after


def noisy_oracle(
    oracle: SumOracle, multiplier: float, rng: np.random.Generator, sent: Collection[str]
) -> SumOracle:
    """An oracle that adds the noise of a trusted server to the sums of another.

    Devices weigh 1 in them. The totals are those that devices would send, and no others, with noise
    in the same proportions.

    Args:
        oracle: exact sums.
        multiplier: the noise over what one device can add to the push.
        rng: where the noise comes from.
        sent: the totals beside the push.
    """

    def ask(v: Vector, nu: Radius) -> Sum:
        total = oracle(v, nu)
        scalars = multiplier * rng.standard_normal(2)
        return Sum(
            push=total.push + multiplier * rng.standard_normal(len(total.push)),
            mass=total.need("mass") + MASS_FACTOR * float(scalars[0]) if "mass" in sent else None,
            weight=float(total.count),
            near=total.need("near") + NEAR_FACTOR * float(scalars[1]) if "near" in sent else None,
            count=total.count,
            squares=None,
            noise=multiplier,
        )

    return ask
