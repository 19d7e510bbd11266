"""Secure sums over the nodes of a Flower grid: who is ready, and an oracle over them.

Nothing here holds an update, an example count or a metric of a single node.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator
from dataclasses import dataclass

from flwr.app import Message, MetricRecord
from flwr.serverapp import Grid

from rfa.flower import wire
from rfa.flower.exchange import GridExchange, send
from rfa.flower.metrics import Layout
from rfa.oracle import OracleStopped, Sum, Vector
from rfa.secagg.cohort import Identities
from rfa.secagg.messages import MOST_METRICS
from rfa.secagg.parameters import Terms
from rfa.secagg.protocol import SecureOracle, open_round

LOG = logging.getLogger("flwr")


class Skipped(OracleStopped):
    """There is nothing to sum in this round; the text says why."""


@dataclass(frozen=True)
class Cohort:
    """Nodes that are ready for a sum.

    Attributes:
        task: what they did: train or evaluate.
        round: in which round.
        nodes: who they are.
        layout: their metrics.
        dim: the length of their updates.
    """

    task: str
    round: int
    nodes: tuple[int, ...]
    layout: Layout
    dim: int


class Sums:
    """An oracle over a cohort, and what it told.

    Attributes:
        told: how many sums there were.
        last: the last of them.
    """

    def __init__(self, oracle: SecureOracle, layout: Layout) -> None:
        """Watch an oracle."""
        self._oracle, self._layout = oracle, layout
        self.told = 0
        self.last: Sum | None = None

    def __call__(self, v: Vector, nu: float) -> Sum:
        """Pass the question on, and log what anyone may know of the answer."""
        try:
            total = self._oracle(v, nu)
        except OracleStopped as error:
            LOG.info("\t> sum %s: none: %s", self.told + 1, error)
            raise
        self.told, self.last = self.told + 1, total
        LOG.info(
            "\t> sum %s: %s nodes, %s of them within %g; no share above %.0f %%",
            self.told,
            total.count,
            total.near,
            nu,
            100 * total.certificate(),
        )
        return total

    def metrics(self) -> MetricRecord | None:
        """The means of the metrics, weighted by examples."""
        if self.last is None or self._oracle.last is None or not self._layout.names:
            return None
        return self._layout.means(self._oracle.last.metrics, self.last.weight)


@dataclass
class GridSums:
    """How sums are taken over a grid.

    Attributes:
        terms: what the secure sum must withstand.
        identities: the public identities of nodes, where they do not trust the server.
        timeout: seconds to wait for the answers to a stage.
    """

    terms: Terms
    identities: Identities | None
    timeout: float
    _number: int = 0

    def gather(
        self, grid: Grid, work: wire.Work, messages: list[Message], t: int, timeout: float
    ) -> Cohort:
        """Let nodes train or evaluate, and see who is ready for a sum.

        Raises:
            Skipped: if nobody is.
        """
        found: dict[wire.Ready, list[int]] = {}
        for message in messages:
            message.content[wire.KEY] = work.record()
        for node, reply in send(grid, messages, timeout):
            try:
                found.setdefault(wire.read_ready(reply), []).append(node)
            except wire.WireError as error:
                LOG.info("\t> node %s is not ready: %s", node, error)
        ready = sum(map(len, found.values()))
        LOG.info("%s: %s of %s nodes are ready", work.task, ready, len(messages))
        if not found:
            msg = f"none of {len(messages)} nodes is ready"
            raise Skipped(msg)
        like = max(found, key=lambda one: len(found[one]))
        for other, nodes in found.items():
            if other != like:
                LOG.info("\t> nodes %s have other metrics or arrays than most", nodes)
        nodes = tuple(sorted(found[like]))
        return Cohort(work.task, t, nodes, like.layout, like.dim)

    @contextlib.contextmanager
    def over(self, grid: Grid, cohort: Cohort, steps: int) -> Generator[Sums]:
        """An oracle over a cohort; devices are told if it ends before all sums are taken.

        Raises:
            OracleStopped: if there are too few devices, or none that can be asked.
        """
        if cohort.layout.count > MOST_METRICS:
            msg = f"nodes have {cohort.layout.count} metrics, and at most {MOST_METRICS} are summed"
            raise Skipped(msg)
        self._number = max(self._number + 1, time.time_ns() // 1000)
        opening = open_round(
            self._number, self.terms, steps=steps, dim=cohort.dim, metrics=cohort.layout.count
        )
        exchange = GridExchange(grid, cohort.task, cohort.round, self.timeout)
        sums: Sums | None = None
        try:
            oracle = SecureOracle(opening, self.terms, cohort.nodes, exchange, self.identities)
            sums = Sums(oracle, cohort.layout)
            yield sums
        finally:
            if sums is None or sums.told < steps:
                exchange.tell_over(cohort.nodes)
