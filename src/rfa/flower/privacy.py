"""Keeps a run with noise within its budget: finds the noise, charges nodes, and ends the run.

The server charges a node before it asks the node. The charges that a round may cause are in the
checkpoint before the first request for a sum leaves. When the round is over, charges for sums that
were not requested are removed. A server that is killed in between has charged a round too much, and
never too little.

*Formal guarantees*, over all rounds in the checkpoint:
    nodes are charged no less than they charge themselves, whenever the server is killed
    (test_noise_kept.py::test_a_server_that_is_killed_has_never_charged_too_little);
    no node is asked for sums that would exceed its budget
    (flower/test_noise.py::test_fewer_nodes_than_there_were_do_not_overspend,
    flower/test_noise.py::test_the_budget_stops_the_run_and_keeps_the_model).
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from flwr.app import MetricRecord
from flwr.serverapp import Grid

from rfa.aggregators import SumAggregator
from rfa.errors import InvalidValueError
from rfa.flower.noise import Draw, RoundCost
from rfa.flower.options import SecureOptions
from rfa.flower.parts import PartOracle
from rfa.flower.refusals import RoundSkippedError
from rfa.flower.spending import Spending
from rfa.flower.transport import GridExchange
from rfa.privacy import Budget
from rfa.privacy.zcdp import large_delta
from rfa.secagg.errors import PrivacySpentError

LOG = logging.getLogger("flwr")
SERVER, READERS = "epsilon-against-server", "epsilon-against-readers"
"""The names of the spent epsilons in a result."""
MOST_GROWTH = 1.25
"""The largest factor by which noise may grow when a run continues."""
ALL_OF_THEM = (1, 1)
"""The draw of a round if its nodes must be assumed to be known: all nodes of all."""


class PrivacyMeter:
    """Measures the privacy of the nodes of a run; without noise there is nothing to measure.

    Attributes:
        multiplier: the noise multiplier of the run's sums; 0 for no noise, or before it is found.
        spending: what the run has spent so far.
        save: is called with what may be spent, before nodes are asked for it.
    """

    def __init__(self, aggregator: SumAggregator[Any], options: SecureOptions) -> None:
        """Set the aggregator and the options that the noise depends on."""
        self._options = options
        self._budget = Budget(options.epsilon, options.delta) if options.epsilon else None
        self._cost = RoundCost(aggregator, options.terms, 1, Draw())
        self._refused: set[int] = set()
        self._before: Spending | None = None
        self._drawn = ALL_OF_THEM
        self.multiplier = float(options.noise_multiplier or 0.0)
        self.spending: Spending = Spending()
        self.save: Callable[[Spending], None] = _keep_nothing

    def begin(self, grid: Grid, spending: Spending, draw: Draw, *, rounds: int, dim: int) -> None:
        """Continue from earlier spending, and find the noise of the next rounds.

        Args:
            grid: Flower's grid, with the connected nodes.
            spending: what the continued run has spent; if that is nothing, what earlier runs with
                this strategy have spent, which nodes do not forget.
            draw: how nodes are drawn.
            rounds: the number of rounds to come.
            dim: the number of coordinates.

        Raises:
            InvalidValueError: if earlier rounds had no noise, or the noise does not fit.
        """
        if spending == Spending():
            spending = self.spending
        self.spending, self._refused = spending, set()
        if not self._options.has_noise:
            self.spending = dataclasses.replace(spending, exact=spending.exact or rounds > 0)
            return
        if spending.exact:
            msg = "rounds of the checkpoint were without noise, so that no epsilon holds for the "
            msg += "run: give another checkpoint, or neither epsilon nor noise_multiplier"
            raise InvalidValueError(msg)
        self._cost = dataclasses.replace(self._cost, dim=dim, draw=draw)
        if rounds > 0:
            known = len(spending.charges.charges)  # even if no node is connected yet
            self._find(rounds, max(known, len(list(grid.get_node_ids()))))

    def _find(self, rounds: int, there: int) -> None:
        """Find the noise, or check that the given noise fits.

        A continued run spreads the rest of the budget over its rounds, because a killed server has
        charged a round that was lost. If that needed far more noise than before, because there are
        more rounds than planned, the noise stays, and the run ends when the budget is spent.
        """
        spent, before = self.spending.charges.largest, self.spending.multiplier
        if self._options.noise_multiplier is not None or self._budget is None:
            self._cost.check(self.multiplier, there)
        else:
            try:
                found = self._cost.multiplier(self._budget, spent, rounds, there)
            except InvalidValueError:
                if not before:
                    raise
                found = math.inf
            self.multiplier = before if before and found > MOST_GROWTH * before else found
        self.spending = dataclasses.replace(self.spending, multiplier=self.multiplier)
        LOG.info("noise: each sum has %.4g times what one node can add to it", self.multiplier)
        if fault := large_delta(self._options.delta, there):
            LOG.warning("delta=%g is large: %s", self._options.delta, fault)

    def __str__(self) -> str:
        """Return a description of the noise."""
        options = self._options
        if not options.has_noise:
            return "no noise: sums are exact"
        z = options.noise_multiplier
        noise = "found when it starts" if z is None else f"{z:g} times what one node can add"
        epsilon = "none" if options.epsilon is None else f"epsilon={options.epsilon:g}"
        return f"noise: {noise}; budget of a node: {epsilon} at delta={options.delta:g}"

    def within_budget(self, grid: Grid) -> Grid:
        """Return a grid that lists only the nodes that may be in a further round."""
        return cast("Grid", SolventGrid(grid, self._drawable)) if self._options.has_noise else grid

    def _drawable(self, nodes: Iterable[int]) -> list[int]:
        """Return the nodes from which a round is drawn; record if budgets leave some out."""
        there = list(nodes)
        left = self.solvent(there)
        if len(left) < len(there):
            self._link()
        return left

    def _link(self) -> None:
        """Record that the draw depends on earlier draws."""
        self.spending = dataclasses.replace(self.spending, linked=True)
        self._before = self._before and dataclasses.replace(self._before, linked=True)

    def solvent(self, nodes: Iterable[int]) -> list[int]:
        """Return the nodes whose budget covers a further round, and that do not refuse it."""
        there = list(nodes)
        if not self._options.has_noise or not there:
            return there
        gone = set(self._refused)
        if self._budget:
            rho = self._cost.rho(self.multiplier, len(there))
            gone.update(self.spending.charges.overspent(there, rho, self._budget))
        return [node for node in there if node not in gone]

    def over(self, grid: Grid) -> str:
        """Return why no further round is possible: too many nodes have no budget left.

        Args:
            grid: Flower's grid, with all nodes.

        Returns:
            The reason, and what to do; empty if a round is possible, or if only nodes are missing.
        """
        if not self._options.has_noise:
            return ""
        there, needed = list(grid.get_node_ids()), self._cost.draw.needed
        left = len(self.solvent(there))
        if left >= needed or len(there) < needed:
            return ""
        refused = len(self._refused.intersection(there))
        own = f" ({refused} of them say so themselves)" if refused else ""
        msg = f"{len(there) - left} of {len(there)} nodes have no privacy budget left{own}, and a "
        msg += f"round takes {needed} that have: take other nodes, or from the start more noise, "
        return msg + "fewer rounds or a larger epsilon"

    def ask(self, asked: int, population: int) -> None:
        """Record how many nodes the next round asks, and from how many they were drawn."""
        self._drawn = (asked, population) if self._cost.draw.uniform else ALL_OF_THEM

    def hear(self, nodes: Mapping[int, object]) -> None:
        """Record the replies of nodes that do not take part, some because of their budget."""
        spent = {node for node, text in nodes.items() if _is_spent(text)} - self._refused
        if not spent:
            return
        self._refused |= spent
        self._link()
        text = "\t> %s nodes refuse because their own privacy budgets are spent, and are asked no "
        text += "more (%s so far): whoever owns them can raise Policy(epsilon=...); or take others"
        LOG.warning(text, len(spent), len(self._refused))

    def charge(self, oracles: Sequence[PartOracle], exchange: GridExchange) -> None:
        """Charge nodes for all sums that a round may ask of them, before it does.

        Raises:
            RoundSkippedError: if that exceeds the budget of a node; no sum is requested then.
        """
        if not self._options.has_noise:
            return
        planned = _charges(oracles, exchange.joined, [oracle.queries for oracle in oracles])
        charges, budget = self.spending.charges, self._budget
        over = [i for i, rho in planned.items() if budget and charges.overspent([i], rho, budget)]
        if over:
            msg = f"nodes {over} have less budget left than sums over so few nodes cost"
            raise RoundSkippedError(msg)
        self._before = self.spending
        self.spending = self._before.charged(planned)
        self.save(self.spending)

    def settle(self, oracles: Sequence[PartOracle], exchange: GridExchange) -> None:
        """Remove the charges for sums that were not requested, when a round is over."""
        self.hear(exchange.refused)
        if self._before is None:
            return
        spent = _charges(oracles, exchange.joined, [oracle.begun for oracle in oracles])
        self.spending = self._before.charged(spent)
        rho = max((oracle.rho * oracle.begun for oracle in oracles if oracle.answers), default=0.0)
        if rho:
            self.spending = self.spending.played(rho, *self._drawn)
        self._before, self._drawn = None, ALL_OF_THEM

    def told(self, metrics: MetricRecord | None) -> MetricRecord | None:
        """Return the metrics of a round, with the epsilons of all rounds so far."""
        if not self._options.has_noise:
            return metrics
        record = MetricRecord(dict(metrics or {}))
        delta = self._options.delta
        server, readers = self.spending.epsilons(delta)
        record[SERVER] = server
        if readers is not None:
            record[READERS] = readers
        limit = f" of {self._budget.epsilon:g}" if self._budget else ""
        seen = "not known: pip install 'rfa[dp]'" if readers is None else f"{readers:.4g}"
        text = (
            "\t> epsilon against the server: %.4g%s; against readers of the models: %s (delta %g)"
        )
        LOG.info(text, server, limit, seen, delta)
        return record


class SolventGrid:
    """A grid that lists only the nodes that a rule allows.

    Attributes:
        rule: returns the allowed nodes.
    """

    def __init__(self, grid: Grid, rule: Callable[[Iterable[int]], list[int]]) -> None:
        """Wrap a grid with a rule."""
        self._grid, self.rule = grid, rule

    def get_node_ids(self) -> list[int]:
        """Return the allowed nodes."""
        return self.rule(self._grid.get_node_ids())

    def __getattr__(self, name: str) -> Any:
        """Return every other attribute of the grid."""
        return getattr(self._grid, name)


def _charges(
    oracles: Sequence[PartOracle], joined: Collection[int], sums: Sequence[int]
) -> dict[int, float]:
    """Return the charges of the nodes that joined, for this number of sums of each part."""
    costs = [oracle.rho * count for oracle, count in zip(oracles, sums, strict=True)]
    return {
        node: cost
        for oracle, cost in zip(oracles, costs, strict=True)
        for node in oracle.devices
        if cost and node in joined
    }


def _is_spent(text: object) -> bool:
    """Return whether a node says that it has no budget left."""
    return str(text).startswith(f"{PrivacySpentError.__name__}:")


def _keep_nothing(_: Spending) -> None:
    """Do nothing, for a run without a checkpoint."""
