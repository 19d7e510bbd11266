"""How much noise the sums of a run have, so that its rounds cost no node more than its budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.serverapp.strategy import FedAvg

from rfa.aggregators import Layout, SumAggregator
from rfa.errors import InvalidValueError
from rfa.privacy import Budget, NoisySum, epsilon_of, multiplier_for
from rfa.privacy.budget import SLACK
from rfa.secagg.security.terms import Terms
from rfa.secagg.statistics import mask_of_round, rows_of

MOST_SIZES = 1024
"""Of how many sizes of a cohort the charges are looked at."""
GROWTH = 2
"""By what factor nodes may become more while a run goes on for which the noise was found."""


def wants_noise(options: Mapping[str, Any]) -> bool:
    """Whether the options of a strategy ask for noise."""
    return options.get("epsilon") is not None or options.get("noise_multiplier") is not None


@dataclass(frozen=True)
class Draw:
    """How the nodes of a round are drawn.

    Attributes:
        fraction: the fraction of those that are there.
        least: how many at least.
        available: how many must be there, at least.
        uniform: whether each of them is as likely to be drawn as any other.
    """

    fraction: float = 1.0
    least: int = 1
    available: int = 1
    uniform: bool = False

    @property
    def needed(self) -> int:
        """How many nodes must be there for a round."""
        return max(self.least, self.available)

    def asked(self, there: int) -> int:
        """How many are drawn of so many."""
        return max(int(there * self.fraction), self.least)


def draw_of(strategy: FedAvg) -> Draw:
    """How a strategy draws nodes for training: evenly, unless it is one that draws them itself."""
    evenly = type(strategy).configure_train is FedAvg.configure_train
    there = strategy.min_available_nodes
    return Draw(strategy.fraction_train, strategy.min_train_nodes, there, evenly)


@dataclass(frozen=True)
class RoundCost:
    """What the rounds of a run cost a node, by how many take part.

    Attributes:
        aggregator: how a cohort is asked.
        terms: how many of it are sure to be honest.
        dim: the number of coordinates.
        draw: how its nodes are drawn.
    """

    aggregator: SumAggregator[Any]
    terms: Terms
    dim: int
    draw: Draw

    def rho(self, multiplier: float, there: int) -> float:
        """The charge of a round to a node, where so many are there, and all that are asked join.

        Raises:
            InvalidValueError: if so much noise does not fit a sum over so many.
        """
        layout = self._layout(there)
        cohort = max(self.draw.asked(there) // layout.parts, self.terms.smallest(layout.queries))
        return layout.queries * NoisySum(multiplier=multiplier, **self._sum(cohort)).rho

    def check(self, multiplier: float, there: int) -> None:
        """Check that noise fits the sums over any cohort that may come.

        Raises:
            InvalidValueError: naming it, and what would fit.
        """
        for cohort in self._sizes(there):
            NoisySum(multiplier=multiplier, **self._sum(cohort))

    def multiplier(self, budget: Budget, spent: float, rounds: int, there: int) -> float:
        """The least noise with which so many rounds of about as many nodes stay within a budget.

        Args:
            budget: the budget of a node.
            spent: what the node that was charged most has spent of it.
            rounds: the rounds to come, in all of which it may be.
            there: how many nodes are there now.

        Raises:
            InvalidValueError: if no noise is enough; the message says what would help.
        """
        left = budget.rho - spent
        if left <= 0:
            msg = f"epsilon={budget.epsilon:g} is spent"
            raise InvalidValueError(msg)
        target = Budget(epsilon_of(left, budget.delta), budget.delta) if spent else budget
        sums, found = rounds * self._layout(there).queries, 0.0
        allowed = target.rho * (1 - SLACK) / sums
        for cohort in self._sizes(there):
            shape = self._sum(cohort)
            if not found or _costs_more(allowed, found, shape):
                found = max(found, multiplier_for(target, queries=sums, **shape))
        return found

    def _sizes(self, there: int) -> Sequence[int]:
        """The sizes that a cohort may have, the smallest first; some of them if they are many.

        As many may be lost as the terms allow. Sums over fewer cost more; they are charged as what
        they are.
        """
        layout, asked = self._layout(there), self.draw.asked(there)
        lost = math.floor(self.terms.max_dropout_fraction * asked)
        least = max(self.terms.smallest(layout.queries), (asked - lost) // layout.parts)
        most = max(least, GROWTH * asked // layout.parts)
        return (*range(least, most, max(1, (most - least) // MOST_SIZES)), most)

    def _layout(self, there: int) -> Layout:
        return self.aggregator.layout(self.draw.asked(there))

    def _sum(self, cohort: int) -> dict[str, Any]:
        """What the charge of a sum depends on, but for the noise."""
        statistics = mask_of_round(
            self.aggregator.statistics,
            queries=self.aggregator.layout(cohort).queries,
            max_share=0.0,
            equal_weights=True,
            noise=1.0,
        )
        names = {row.name for row in rows_of(statistics)}
        sent = {name: name in names for name in ("mass", "near")}
        honest = self.terms.honest(cohort)
        return {"cohort": cohort, "honest": honest, "dim": self.dim, **sent}


def _costs_more(allowed: float, multiplier: float, shape: dict[str, Any]) -> bool:
    """Whether a sum costs more than is allowed, or cannot be with so little noise."""
    try:
        return NoisySum(multiplier=multiplier, **shape).rho > allowed
    except InvalidValueError:
        return True
