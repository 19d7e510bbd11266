"""The sums of a round: nodes work, and their results are summed, at once or when all are ready."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from rfa.aggregators import Layout
from rfa.errors import OracleStoppedError
from rfa.flower import records
from rfa.flower.ahead import FirstWork, Prepared
from rfa.flower.basis import basis_of
from rfa.flower.oracles import GridSums
from rfa.flower.parts import Cohort, PartOracle
from rfa.flower.refusals import RoundSkippedError
from rfa.flower.transport import Addressed
from rfa.secagg.weights import EQUAL

if TYPE_CHECKING:
    from rfa.flower.strategy import SecureStrategy

LOG = logging.getLogger("flwr")
Value = TypeVar("Value")
Use = Callable[[list[PartOracle]], Value]
"""Computes a value from the oracles over the parts of a cohort."""


@dataclass(frozen=True)
class Asked:
    """The work of nodes in a round.

    Attributes:
        work: the request to train or evaluate, and how to weight the result.
        messages: the messages that ask for it, by node.
        round: the round.
        timeout: seconds to wait.
        dim: the length of their updates.
    """

    work: records.Work
    messages: list[Addressed]
    round: int
    timeout: float
    dim: int

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that are asked."""
        return tuple(sorted(name for name, _ in self.messages))

    def anew(self, nodes: Collection[int], unopened: int) -> Asked:
        """Return the request for some of these nodes, after a round in which no sum was opened.

        Raises:
            RoundSkippedError: if there are none.
        """
        left = [each for each in self.messages if each[0] in nodes]
        if self.messages and not left:
            msg = f"none of {len(self.messages)} nodes has a privacy budget left"
            raise RoundSkippedError(msg)
        work = dataclasses.replace(self.work, unopened=unopened)
        return dataclasses.replace(self, work=work, messages=left)


@dataclass(frozen=True)
class Summed(Generic[Value]):
    """The result of a round.

    Attributes:
        cohort: the nodes that were ready.
        oracles: the oracles over its parts.
        value: the value that was computed from their sums.
    """

    cohort: Cohort
    oracles: list[PartOracle]
    value: Value


def one_part(nodes: int) -> Layout:  # noqa: ARG001 as aggregators have it
    """Return the layout of one sum over all nodes."""
    return Layout()


def take_sums(
    strategy: SecureStrategy,
    sums: GridSums,
    asked: Asked,
    use: Use[Value],
    layout_of: Callable[[int], Layout] = one_part,
) -> Summed[Value]:
    """Let nodes work, and use the sums over their results.

    Args:
        strategy: the strategy.
        sums: how sums are taken.
        asked: the work of nodes.
        use: computes a value from the oracles over the parts of the nodes that are ready.
        layout_of: returns the layout for a number of nodes.

    Raises:
        OracleStoppedError: if there is no sum; the message says why.
    """
    layout = layout_of(len(asked.messages))
    prepared = strategy.ahead.take(asked.work.task, asked.nodes, 2 * layout.queries)
    done = None
    if prepared and layout.parts == 1:
        done = _begin_at_once(strategy, sums, asked, use, prepared)
    if isinstance(done, int):
        asked = asked.anew(strategy.privacy.solvent(asked.nodes), done)
    if not isinstance(done, Summed):
        cohort = sums.gather(asked.work, asked.messages, asked.round, asked.timeout, asked.dim)
        strategy.missing.note(cohort.task, cohort.layout)
        layout = layout_of(len(cohort.devices))
        parts = strategy.partition(cohort.devices, layout.parts, asked.round)
        sums = sums.asking(layout.queries)  # fewer nodes may need another number of sums
        with strategy.over(sums, cohort, parts) as oracles:
            done = Summed(cohort, oracles, use(oracles))
    strategy.ahead.keep(done.cohort, done.oracles)
    return done


def _begin_at_once(
    strategy: SecureStrategy,
    sums: GridSums,
    asked: Asked,
    use: Use[Value],
    prepared: Prepared,
) -> Summed[Value] | int:
    """Take sums among nodes that sent their keys a round ahead, if that works.

    It fails if no node was asked to open a sum. Nodes that masked an input learn that the round is
    over, forget their input, and work once more. Nodes that miss this message learn it with the
    next request for work.

    Returns:
        The result; or the number of the round of the secure sum that is over, 0 for none.

    Raises:
        OracleStoppedError: if a sum was to be opened, and failed.
    """
    cohort = _expect(sums, asked, prepared)
    like = records.Ready(cohort.layout, cohort.dim, cohort.run)
    first = FirstWork(dict(asked.messages), like, asked.timeout)
    strategy.missing.note(cohort.task, cohort.layout)
    oracles = list[PartOracle]()
    try:
        with strategy.over(sums, cohort, [cohort.devices], first) as oracles:
            done = Summed(cohort, oracles, use(oracles))
    except OracleStoppedError as error:
        strategy.ahead.count(cohort.task, worked=False)
        if any(oracle.opened for oracle in oracles):
            raise
        LOG.info("\t> nodes are asked again, for their keys: %s", error)
        if sums.recorders:
            sums.recorders.clear()
        return max((oracle.number for oracle in oracles), default=0)
    strategy.ahead.count(cohort.task, worked=True)
    return done


def _expect(sums: GridSums, asked: Asked, prepared: Prepared) -> Cohort:
    """Return the cohort, assuming that nodes have the same as in the round before.

    Raises:
        UnequalMessagesError: if nodes would get different messages.
    """
    work, last = asked.work, prepared.cohort
    sent = sums.address(work, asked.messages, asked.round, asked.timeout)
    return Cohort(
        work.task,
        asked.round,
        asked.nodes,
        last.layout,
        asked.dim,
        basis_of(sent, last.run),
        histograms=work.histograms.within(last.layout),
        equal_weights=work.weights == EQUAL,
        cap=work.cap,
        noise=work.noise,
        run=last.run,
        keys=prepared.keys,
    )
