"""The noise of the sums of a run, such that its rounds cost no node more than its budget."""

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
"""The most sizes of a cohort for which charges are computed."""
GROWTH = 2
"""The factor by which the number of nodes may grow during a run for which the noise was found."""


def wants_noise(options: Mapping[str, Any]) -> bool:
    """Return whether the options of a strategy ask for noise."""
    return options.get("epsilon") is not None or options.get("noise_multiplier") is not None


@dataclass(frozen=True)
class Draw:
    """How the nodes of a round are drawn.

    Attributes:
        fraction: the fraction of the connected nodes.
        least: the least number of nodes that are drawn.
        available: the least number of nodes that must be connected.
        uniform: whether all nodes are equally likely to be drawn.
    """

    fraction: float = 1.0
    least: int = 1
    available: int = 1
    uniform: bool = False

    @property
    def needed(self) -> int:
        """The number of nodes that must be connected for a round."""
        return max(self.least, self.available)

    def asked(self, there: int) -> int:
        """Return how many of the connected nodes are drawn."""
        return max(int(there * self.fraction), self.least)


def draw_of(strategy: FedAvg) -> Draw:
    """Return how a strategy draws nodes for training: uniformly, unless it overrides that."""
    evenly = type(strategy).configure_train is FedAvg.configure_train
    there = strategy.min_available_nodes
    return Draw(strategy.fraction_train, strategy.min_train_nodes, there, evenly)


@dataclass(frozen=True)
class RoundCost:
    """The cost of the rounds of a run for a node, by the number of nodes.

    Attributes:
        aggregator: the aggregator, which decides the queries.
        terms: the terms, which decide how many nodes are sure to be honest.
        dim: the number of coordinates.
        draw: how its nodes are drawn.
    """

    aggregator: SumAggregator[Any]
    terms: Terms
    dim: int
    draw: Draw

    def rho(self, multiplier: float, there: int) -> float:
        """Return the charge of a round to a node, if all nodes that are asked join.

        Args:
            multiplier: the noise multiplier.
            there: the number of connected nodes.

        Raises:
            InvalidValueError: if this noise does not fit a sum over this number of nodes.
        """
        layout = self._layout(there)
        cohort = max(self.draw.asked(there) // layout.parts, self.terms.smallest(layout.queries))
        return layout.queries * NoisySum(multiplier=multiplier, **self._sum(cohort)).rho

    def check(self, multiplier: float, there: int) -> None:
        """Check that noise fits the sums over any possible cohort.

        Raises:
            InvalidValueError: if it does not; the message says what would fit.
        """
        for cohort in self._sizes(there):
            NoisySum(multiplier=multiplier, **self._sum(cohort))

    def multiplier(self, budget: Budget, spent: float, rounds: int, there: int) -> float:
        """Return the least noise with which the rounds to come stay within a budget.

        Args:
            budget: the budget of a node.
            spent: what the most charged node has spent of it.
            rounds: the number of rounds to come; the node may be in all of them.
            there: the number of nodes that are connected now.

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
        """Return the possible sizes of a cohort, the smallest first; a sample if there are many.

        The terms say how many nodes may be lost. Sums over even fewer cost more; they are charged
        by their actual size.
        """
        layout, asked = self._layout(there), self.draw.asked(there)
        lost = math.floor(self.terms.max_dropout_fraction * asked)
        least = max(self.terms.smallest(layout.queries), (asked - lost) // layout.parts)
        most = max(least, GROWTH * asked // layout.parts)
        return (*range(least, most, max(1, (most - least) // MOST_SIZES)), most)

    def _layout(self, there: int) -> Layout:
        return self.aggregator.layout(self.draw.asked(there))

    def _sum(self, cohort: int) -> dict[str, Any]:
        """Return what the charge of a sum depends on, except the noise."""
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
    """Return whether a sum costs more than allowed, or is impossible with this little noise."""
    try:
        return NoisySum(multiplier=multiplier, **shape).rho > allowed
    except InvalidValueError:
        return True
