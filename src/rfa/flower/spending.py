"""The privacy that a run has spent: a value in the checkpoint."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rfa.errors import MissingExtraError
from rfa.privacy import Charges, SampledRounds, readers_epsilon

MOST_KINDS = 8
"""The most kinds of rounds, before similar ones are combined."""
ALIKE = 1.02
"""The factor by which similar rounds may differ, in their charges and drawn fractions."""


@dataclass(frozen=True)
class Spending:
    """The privacy that a run has spent so far.

    Attributes:
        charges: the charge of each node, for all sums that it may have been in.
        rounds: the rounds that made a model, with equal ones combined.
        exact: whether nodes were asked for sums without noise.
        multiplier: the noise multiplier of the last rounds; 0 before the first.
        linked: whether the draw of a round depended on earlier draws, as it does when budgets leave
            nodes out; the draw then gives no amplification.
    """

    charges: Charges = field(default_factory=Charges)
    rounds: tuple[SampledRounds, ...] = ()
    exact: bool = False
    multiplier: float = 0.0
    linked: bool = False

    def charged(self, charges: Mapping[int, float]) -> Spending:
        """Return the spending after nodes were charged."""
        after = self.charges
        for rho in sorted(set(charges.values())):
            after = after.after([node for node, each in charges.items() if each == rho], rho)
        return dataclasses.replace(self, charges=after)

    def played(self, rho: float, asked: int, population: int) -> Spending:
        """Return the spending after a round that made a model.

        Args:
            rho: the charge of its sums to a node, the largest of all parts.
            asked: the number of nodes drawn.
            population: the number of nodes from which they were drawn.
        """
        counts = {(each.rho, each.cohort, each.population): each.count for each in self.rounds}
        key = (rho, asked, population)
        counts[key] = counts.get(key, 0) + 1
        rounds = tuple(SampledRounds(*drawn, count) for drawn, count in counts.items())
        return dataclasses.replace(self, rounds=rounds)

    def epsilons(self, delta: float) -> tuple[float, float | None]:
        """Return epsilon against the server, and against readers of the models.

        The second is None without the extra dp, which computes it. If the draws of nodes were not
        independent, readers of the models learn at most what all sums of the most charged node
        reveal.
        """
        server, kinds = self.charges.epsilon(delta), self._kinds()
        if self.linked:
            kinds = [SampledRounds(self.charges.largest, 1, 1)]
        try:
            return server, readers_epsilon(kinds, delta)
        except MissingExtraError:
            return server, None

    def _kinds(self) -> Iterable[SampledRounds]:
        """Return the rounds; if they have many kinds, similar ones as the worst of them.

        Composing rounds takes time for each kind.
        """
        if len(self.rounds) <= MOST_KINDS:
            return self.rounds
        alike: dict[tuple[int, int], list[SampledRounds]] = {}
        for each in self.rounds:
            alike.setdefault((_step_of(each.rho), _step_of(each.fraction)), []).append(each)
        return [_worst(rounds) for rounds in alike.values()]

    def pack(self) -> dict[str, Any]:
        """Return plain values."""
        rounds = [dataclasses.astuple(each) for each in self.rounds]
        about = {"exact": self.exact, "multiplier": self.multiplier, "linked": self.linked}
        return {"charges": self.charges.pack(), "rounds": rounds, **about}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any]) -> Spending:
        """Return the spending that `pack` packed.

        Raises:
            KeyError, TypeError, ValueError: if it is something else.
        """
        rounds = tuple(SampledRounds(*each) for each in packed["rounds"])
        linked = bool(packed.get("linked"))
        about = bool(packed["exact"]), float(packed["multiplier"]), linked
        return cls(Charges.unpack(packed["charges"]), rounds, *about)


def _step_of(value: float) -> int:
    """Return the exponent of the least power of ALIKE that is not below a positive value."""
    return math.ceil(math.log(value) / math.log(ALIKE))


def _worst(rounds: Sequence[SampledRounds]) -> SampledRounds:
    """Return the same number of rounds, with the largest charge and the largest fraction."""
    drawn = max(rounds, key=lambda each: each.fraction)
    rho, count = max(each.rho for each in rounds), sum(each.count for each in rounds)
    return dataclasses.replace(drawn, rho=rho, count=count)
