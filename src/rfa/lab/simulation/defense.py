"""The defense as an attacker tries it: what the server would make of a round."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from typing import Any

import numpy as np

from rfa._types import Floats, Floats32, Ints
from rfa.aggregators import Groups
from rfa.lab.settings.groups import OFF, Secure
from rfa.lab.settings.privacy import Privacy
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import aggregate
from rfa.lab.simulation.outcome import NothingToAggregateError

OTHER = 1 << 40
"""Rounds whose random parts are no round's own."""


@dataclasses.dataclass(frozen=True)
class Defense:
    """The aggregate of a round by what its corrupted devices send, without a trace.

    Secure sums are computed in the clear, which is the same up to rounding; who drops out of them,
    their noise, clip norm and limit of shares are left out. Random groups and sub-cohorts are the
    server's secret: the attacker tries others.

    Attributes:
        updates: what all devices would send.
        weights: their weights.
        corrupted: the rows of the corrupted ones.
        settings: the settings.
        round: the round t.
        state: what the aggregator carries from the round before.
        trusted: the server's own update, where the aggregator compares with one.
    """

    updates: Floats32
    weights: Floats
    corrupted: Ints
    settings: Settings
    round: int = 0
    state: Any = None
    trusted: Floats32 | None = None

    def __call__(self, rows: Any) -> Floats:
        """What the server adds to the model: nothing, if there is nothing, or it is rejected."""
        with np.errstate(over="ignore"):
            self._sent[self.corrupted] = rows
        try:
            outcome, _ = aggregate(
                self._sent,
                self.weights,
                self._settings,
                OTHER + self.round,
                self.state,
                trusted=self.trusted,
            )
        except NothingToAggregateError:
            return np.zeros(len(self.updates[0]))
        point: Floats = outcome.point.astype(np.float64)
        if is_too_large(float(np.linalg.norm(point)), self.settings):
            return np.zeros(len(point))
        return point

    @cached_property
    def _sent(self) -> Floats32:
        return self.updates.copy()

    @cached_property
    def _settings(self) -> Settings:
        in_clear = dataclasses.replace(self.settings, secure=Secure(OFF), privacy=Privacy())
        aggregator = self.settings.aggregation
        if isinstance(aggregator, Groups):
            return in_clear.replace(groups=aggregator.count)
        return in_clear


def is_too_large(norm: float, settings: Settings) -> bool:
    """Whether an aggregate of that norm is rejected; one that is not finite always is."""
    return not norm < (settings.server.max_norm or math.inf)
