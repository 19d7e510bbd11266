"""Aggregators on sums that are secure: as whole numbers in a ring, or by the real protocol.

The server's part of each holds an oracle and nothing else. Which devices drop out, and when, and
how they round, comes from the run's seed, so that `unmasked` and `on` give the same numbers; the
keys of the protocol come from the operating system, and make no difference to them.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from rfa._types import Floats, Floats32
from rfa.aggregators.registry import build_private
from rfa.errors import OracleStoppedError
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import outcome_of, split_cohort
from rfa.lab.simulation.outcome import NothingToAggregateError, Outcome
from rfa.oracle import SumOracle, stopped_oracle
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.errors import NotFiniteError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.in_process import InProcess, Losses
from rfa.secagg.messages.round import OpenRound
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.oracle import SecureOracle, open_round
from rfa.secagg.security.parameters import LEAST_HONEST
from rfa.secagg.security.policy import Policy
from rfa.secagg.unmasked import UnmaskedOracle
from rfa.secagg.weights import EQUAL

Parts = dict[int, Contribution | None]


def aggregate_securely(
    updates: Floats32, weights: Floats, settings: Settings, t: int, state: Any = None
) -> tuple[Outcome, Any]:
    """The aggregate of round t, from sums alone.

    Args:
        updates: what each device holds, one row each; those that are not finite abstain.
        weights: the weights alpha_i, above 0 and at most 1.
        settings: the settings.
        t: the round.
        state: what the aggregator carries from the round before.

    Returns:
        The outcome, and what the aggregator carries to the next round.

    Raises:
        NothingToAggregateError: if no update is finite.
        OracleStoppedError: if too many devices dropped out, or a mean has no step after it.
    """
    equal = settings.training.weights == EQUAL
    parts = {row: _contribution(update, weights[row], equal) for row, update in enumerate(updates)}
    abstained = tuple(row for row, part in parts.items() if part is None)
    if len(abstained) == len(parts):
        msg = f"none of {len(parts)} updates is finite"
        raise NothingToAggregateError(msg)
    aggregator = build_private(settings.aggregation)
    opening = open_round(
        t + 1,
        settings.secure.terms,
        queries=settings.layout.queries,
        dim=updates.shape[1],
        max_share=settings.secure.max_share,
        equal_weights=equal,
        statistics=aggregator.statistics,
    )
    lost = draw_losses(len(parts), settings, t)
    oracles = [
        _part_oracle({row: parts[row] for row in rows}, opening, settings, lost, t)
        for rows in split_cohort(len(parts), settings, t)
    ]
    result, after = aggregator(oracles, updates.shape[1], state)
    outcome = outcome_of(result)
    return dataclasses.replace(outcome, dropped=abstained, lost=tuple(sorted(lost))), after


def device_policy(settings: Settings) -> Policy:
    """What a device insists on that was told of the settings.

    The lab has no colluders, and rounds of any size are studied in it: floors for a malicious
    server that follow from who is known, or from the rounds before, are spelled off.
    """
    return Policy(
        min_cohort=LEAST_HONEST,
        num_colluders=0,
        any_point=True,
        max_nu_factor=None,
        honest_per_query=settings.secure.honest_per_query,
        min_nu=build_private(settings.aggregation).min_nu,
        max_queries=settings.layout.queries,
        server_model=settings.secure.terms.server_model,
        max_share=settings.secure.max_share or 1.0,
    )


def _contribution(update: Floats32, weight: float, equal: bool) -> Contribution | None:
    row = np.ascontiguousarray(update, np.float32)
    try:
        return Contribution(row, float(weight), equal_weights=equal)
    except NotFiniteError:
        return None


def draw_losses(count: int, settings: Settings, t: int) -> Losses:
    """Who drops out of a round, by its row in the cohort, each before a random message."""
    masked_sums = settings.layout.queries * (2 if settings.secure.max_share else 1)
    rng = stream(settings.seed, "lost", t)
    gone = np.flatnonzero(rng.random(count) < settings.secure.dropout_rate)
    when = rng.integers(0, Moment(masked_sums - 1, Stage.UNMASK).number + 1, len(gone))
    return {int(row): Moment.numbered(int(number)) for row, number in zip(gone, when, strict=True)}


def rounding_key(settings: Settings, t: int, row: int) -> bytes:
    """By what the device in a row of the cohort of round t rounds."""
    return stream(settings.seed, "rounding", t, row).bytes(32)


def _part_oracle(
    parts: Parts, opening: OpenRound, settings: Settings, lost: Losses, t: int
) -> SumOracle:
    """An oracle over a part of the cohort; one that gives no sum if too few of it are there."""
    try:
        return _oracle(parts, opening, settings, lost, t)
    except OracleStoppedError as error:
        if settings.layout.parts == 1:
            raise
        return stopped_oracle(error)


def _oracle(
    parts: Parts, opening: OpenRound, settings: Settings, lost: Losses, t: int
) -> SumOracle:
    rounding = {row: rounding_key(settings, t, row) for row in parts}
    if settings.secure.mode == "unmasked":
        return UnmaskedOracle(opening, settings.secure.terms, parts, rounding=rounding, lost=lost)
    secrets = {row: os.urandom(32) for row in parts}
    known = {row: identity_of(secret) for row, secret in secrets.items()}
    policy = device_policy(settings)
    devices = {
        row: Device(
            part,
            Profile(row, policy, Identity(secrets[row], known)),
            rounding=rounding[row],
        )
        for row, part in parts.items()
    }
    return SecureOracle(opening, settings.secure.terms, parts, InProcess(devices, lost), known)
