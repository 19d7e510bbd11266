"""Sums with a liar in them: the arithmetic of the ring, and the checks of the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rfa._types import Floats, Vector
from rfa.lab.attacks.corruption import Totals
from rfa.oracle import Sum
from rfa.radii import Radius
from rfa.secagg.fixed_point import Encoding
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.unmasked import UnmaskedOracle
from rfa.secagg.words import WORD


@dataclass(frozen=True)
class Liars:
    """Who lies in a round, and how.

    Attributes:
        rows: the rows of the liars in the cohort.
        lie: the total that they make of the honest one, given the mean of the honest updates.
        mean: that mean.
    """

    rows: frozenset[int]
    lie: Callable[[Sum, Floats], tuple[Vector, Totals]]
    mean: Floats


@dataclass(frozen=True)
class LyingOracle:
    """A sum whose total a liar sets.

    Attributes:
        oracle: the sum without the lie, which keeps the rules of the protocol.
        opening: the round.
        liars: what the total is made into.
    """

    oracle: UnmaskedOracle
    opening: OpenRound
    liars: Liars

    def __call__(self, v: Vector, nu: Radius) -> Sum:
        """The total that the server decodes.

        Raises:
            OracleStoppedError: if there is no sum, or the lie is not plausible.
        """
        push, totals = self.liars.lie(self.oracle(v, nu), self.liars.mean)
        encoding = Encoding.of(self.opening, self.oracle.parameters)
        words = (np.rint(push * encoding.scale).astype(np.int64) << encoding.bits).astype(WORD)
        tail = [row.encode(totals[row.name]) for row in encoding.rows]
        return encoding.decode(words, [*tail, *[0] * self.opening.metrics]).sum
