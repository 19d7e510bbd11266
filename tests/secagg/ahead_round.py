"""Rounds that begin with their first sum, with keys from a round before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rfa.secagg.in_process import Losses
from rfa.secagg.messages.round import DeviceKeys
from rfa.secagg.messages.stages import START, Moment, Stage
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.terms import Terms
from rfa.secagg.unmasked import UnmaskedOracle
from tests.secagg.party import SMALL, Party, contributions, equals, party

NU = 1.5
FIRST_SUM = Moment(0, Stage.ROSTER)
"""When the first sum of a fast round is asked for."""


@dataclass
class AheadParty(Party):
    """A round whose devices sent their keys in the one before."""

    keys: dict[int, DeviceKeys] = field(default_factory=dict[int, DeviceKeys])

    @property
    def joined(self) -> int:
        """All are in the roster."""
        return len(self.parts)

    def oracle(self, *, ask_ahead: bool = False) -> SecureOracle:
        return SecureOracle(
            self.opening,
            self.terms,
            self.parts,
            self.carry,
            keys_ahead=self.keys,
            ask_ahead=ask_ahead,
        )

    def unmasked(self) -> UnmaskedOracle:
        """Who does not answer the opening does not answer the first sum: they are one request."""
        real = self.exchange.lost
        self.exchange.lost = {name: max(when, FIRST_SUM) for name, when in real.items()}
        try:
            return super().unmasked()
        finally:
            self.exchange.lost = real


def ahead_party(
    count: int,
    terms: Terms = SMALL,
    *,
    queries: int = 1,
    lost: Losses | None = None,
    noise: float = 0.0,
    **how: Any,
) -> AheadParty:
    """A round that is about to begin, after one in which all sent their keys."""
    made = equals if noise else contributions
    before = party(made(count, 3, seed=1), terms, queries=queries, fast=True, noise=noise, **how)
    ask = SecureOracle(before.opening, terms, before.parts, before.carry, ask_ahead=True)
    for _ in range(queries):
        ask(np.zeros(3), NU)
    begin = {name: START if when <= FIRST_SUM else when for name, when in (lost or {}).items()}
    now = party(
        made(count, 3),
        terms,
        queries=queries,
        fast=True,
        noise=noise,
        number=2,
        lost=begin,
        **how,
    )
    for name, device in now.devices.items():
        device.memory = before.devices[name].memory.before_next()
    fields = {name: getattr(now, name) for name in Party.__dataclass_fields__}
    return AheadParty(**fields, keys=dict(ask.server.keys_ahead))
