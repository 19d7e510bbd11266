"""Aggregators on sums that are secure: as whole numbers in a ring, or by the real protocol.

The server's part of each holds an oracle and nothing else. Which devices drop out, and when, how
they round, and their noise, come from the run's seed, so that `unmasked` and `on` give
the same numbers; the keys of the protocol come from the operating system, and make no difference to
them.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from rfa._types import Floats, Floats32
from rfa.aggregators.base import SumAggregator
from rfa.aggregators.partition import outlying
from rfa.aggregators.registry import build_private
from rfa.errors import InvalidValueError, OracleStoppedError
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import outcome_of, split_cohort
from rfa.lab.simulation.liars import Liars, LyingOracle
from rfa.lab.simulation.losses import draw_losses, who_joins
from rfa.lab.simulation.meter import Meter
from rfa.lab.simulation.noise import noise_key
from rfa.lab.simulation.outcome import NothingToAggregateError, Outcome, RoundStoppedError
from rfa.oracle import RecordingOracle, SumOracle, stopped_oracle
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.errors import NotFiniteError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.in_process import InProcess, Losses
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.oracle import SecureOracle, open_round
from rfa.secagg.security.parameters import LEAST_HONEST
from rfa.secagg.security.policy import Policy
from rfa.secagg.unmasked import UnmaskedOracle
from rfa.secagg.weights import EQUAL

Parts = dict[int, Contribution | None]


def aggregate_securely(  # noqa: PLR0913
    updates: Floats32,
    weights: Floats,
    settings: Settings,
    t: int,
    state: Any = None,
    *,
    meter: Meter | None = None,
    liars: Liars | None = None,
) -> tuple[Outcome, Any]:
    """The aggregate of round t, from sums alone.

    Args:
        updates: what each device holds, one row each; those that are not finite abstain.
        weights: the weights alpha_i, above 0 and at most 1.
        settings: the settings.
        t: the round.
        state: what the aggregator carries from the round before.
        meter: charges the devices, where their sums hold noise.
        liars: who lies inside the sums, which then have no masks.

    Returns:
        The outcome, and what the aggregator carries to the next round.

    Raises:
        InvalidValueError: if the settings ask for noise, and there is no meter.
        NothingToAggregateError: if no update is finite.
        RoundStoppedError: if too many devices dropped out, or a mean has no step after it.
        BudgetSpentError: if a device has too little left of its privacy budget; none was asked.
    """
    if settings.privacy.is_on and meter is None:
        msg = "these settings ask for noise: give the meter that charges devices for it"
        raise InvalidValueError(msg)
    parts = _contributions(updates, weights, equal=settings.training.weights == EQUAL)
    lost = draw_losses(len(parts), settings, t)
    cohort = _Cohort(settings, t, parts, lost, meter, liars)
    aggregator = build_private(settings.aggregation)
    opening = cohort.open(aggregator, updates.shape[1])
    groups = split_cohort(len(updates), settings, t)
    try:
        oracles = [RecordingOracle(cohort.oracle(rows, opening)) for rows in groups]
        result, after = aggregator(oracles, updates.shape[1], state)
    except OracleStoppedError as error:
        raise RoundStoppedError(str(error), meter.charges if meter else None) from error
    absent = {*cohort.abstained, *lost}
    outcome = dataclasses.replace(
        outcome_of(result),
        dropped=cohort.abstained,
        lost=tuple(sorted(lost)),
        charges=meter.charges if meter else None,
        groups=_seen(groups, oracles, absent) if settings.secure.exclude_liars else (),
    )
    return outcome, after


@dataclass(frozen=True)
class _Cohort:
    """The devices of a round, by the rows of their updates.

    Attributes:
        settings: the settings.
        t: the round.
        parts: the contribution of each device; None if the device abstains.
        lost: when devices drop out.
        meter: charges the devices, if their sums contain noise.
        liars: the devices that lie inside the sums.
    """

    settings: Settings
    t: int
    parts: Parts
    lost: Losses
    meter: Meter | None
    liars: Liars | None

    @property
    def abstained(self) -> tuple[int, ...]:
        """The devices whose updates are not finite."""
        return tuple(row for row, part in self.parts.items() if part is None)

    def open(self, aggregator: SumAggregator[Any], dim: int) -> OpenRound:
        """Return the message that opens the round for the sums of an aggregator."""
        return open_round(
            self.t + 1,
            self.settings.secure.terms,
            queries=self.settings.layout.queries,
            dim=dim,
            max_share=self.settings.secure.max_share,
            equal_weights=self.settings.training.weights == EQUAL,
            statistics=aggregator.statistics,
            noise=self.meter.noise.opened if self.meter else 0.0,
            block=aggregator.block,
        )

    def oracle(self, rows: list[int], opening: OpenRound) -> SumOracle:
        """Return the oracle over some rows, whose total a liar sets if there is one among them.

        If too few devices are left in one of several groups, the oracle gives no sum.

        Raises:
            OracleStoppedError: if too few devices are left, and there is one group.
        """
        parts = {row: self.parts[row] for row in rows}
        try:
            oracle = _oracle(parts, opening, self.settings, self.lost, self.t)
        except OracleStoppedError as error:
            if self.settings.layout.parts == 1:
                raise
            return stopped_oracle(error)
        if self.meter:
            joined = who_joins([row for row, part in parts.items() if part], self.lost)
            return self.meter.watch(oracle, joined, self.lost)
        return with_liars(oracle, rows, opening, self.liars)


def _seen(
    groups: list[list[int]], oracles: list[RecordingOracle], absent: set[int]
) -> tuple[tuple[tuple[int, ...], bool], ...]:
    """Who was in each group, and whether the server sees that someone in it lied."""
    return tuple(
        (tuple(row for row in rows if row not in absent), far)
        for rows, far in zip(groups, outlying(oracles), strict=True)
    )


def with_liars(
    oracle: SumOracle, rows: list[int], opening: OpenRound, liars: Liars | None
) -> SumOracle:
    """An oracle over some rows of the cohort, whose total a liar sets if there is one in it."""
    if liars is None or not liars.rows & set(rows) or not isinstance(oracle, UnmaskedOracle):
        return oracle
    return LyingOracle(oracle, opening, liars)


def device_policy(settings: Settings) -> Policy:
    """What a device insists on that was told of the settings.

    The lab has no colluders, and rounds of any size are studied in it: floors for a malicious
    server that follow from who is known, or from the rounds before, are spelled off.
    """
    return Policy(
        min_cohort=LEAST_HONEST,
        num_colluders=0,
        any_point=True,
        any_radii=True,
        max_nu_factor=None,
        honest_per_query=settings.secure.honest_per_query,
        min_nu=build_private(settings.aggregation).min_nu,
        max_queries=settings.layout.queries,
        server_model=settings.secure.terms.server_model,
        max_share=settings.secure.max_share or 1.0,
    )


def _contributions(updates: Floats32, weights: Floats, *, equal: bool) -> Parts:
    """Return the contribution of each row; None for a row that is not finite.

    Raises:
        NothingToAggregateError: if no row is finite.
    """
    parts: Parts = {}
    for row, update in enumerate(updates):
        vector = np.ascontiguousarray(update, np.float32)
        try:
            parts[row] = Contribution(vector, float(weights[row]), equal_weights=equal)
        except NotFiniteError:
            parts[row] = None
    if not any(parts.values()):
        msg = f"none of {len(parts)} updates is finite"
        raise NothingToAggregateError(msg)
    return parts


def rounding_key(settings: Settings, t: int, row: int) -> bytes:
    """By what the device in a row of the cohort of round t rounds."""
    return stream(settings.seed, "rounding", t, row).bytes(32)


def _oracle(
    parts: Parts, opening: OpenRound, settings: Settings, lost: Losses, t: int
) -> SumOracle:
    rounding = {row: rounding_key(settings, t, row) for row in parts}
    noise = {row: noise_key(settings, t, row) for row in parts if opening.noise}
    if settings.secure.mode == "unmasked":
        return UnmaskedOracle(
            opening,
            settings.secure.terms,
            parts,
            rounding=rounding,
            noise=noise or None,
            lost=lost,
        )
    secrets = {row: os.urandom(32) for row in parts}
    known = {row: identity_of(secret) for row, secret in secrets.items()}
    policy = device_policy(settings)
    devices = {
        row: Device(
            part,
            Profile(row, policy, Identity(secrets[row], known)),
            rounding=rounding[row],
            noise=noise.get(row),
        )
        for row, part in parts.items()
    }
    return SecureOracle(opening, settings.secure.terms, parts, InProcess(devices, lost), known)
