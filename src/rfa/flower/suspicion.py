"""The ledger of suspicion of a strategy: evidence from rounds, and the nodes that are left out."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterable, Sequence

from rfa.aggregators.partition import outlying
from rfa.flower.parts import PartOracle
from rfa.flower.transport import GridExchange
from rfa.secagg.errors import (
    BadShareError,
    ComplaintsError,
    DuplicateKeyError,
    ImplausibleSumError,
    OutOfStageError,
    RefusalError,
    SecAggError,
)
from rfa.secagg.security.odds import around
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.complaints import Dispute, Unopened
from rfa.secagg.server.suspicion import GroupReport, RoundReport, Suspicion

LOG = logging.getLogger("flwr")
RARE = 1e-3
"""The largest chance that liars keep a secret of an honest node from opening, below LEAST_LOSS."""
MOST, LEAST_LOSS = 0.49, 0.05
"""The largest fractions that a ledger can use, and the least loss that it tolerates."""


class Watch:
    """Updates the ledger over the rounds of a strategy.

    Attributes:
        ledger: the evidence against nodes.
        round: the number of rounds it has seen.
    """

    def __init__(self, terms: Terms, num_liars: int | None) -> None:
        """Create a ledger that tolerates what the terms allow.

        Args:
            terms: the fractions of nodes that may lie about shares, and be lost.
            num_liars: the number of nodes that may lie together in sums; None for as many as the
                groups withstand.
        """
        self.ledger = Suspicion(
            num_liars=num_liars,
            liar_fraction=min(terms.colluder_fraction, MOST),
            tolerated_loss=min(max(terms.max_dropout_fraction, LEAST_LOSS), MOST),
        )
        self.round = 0
        self._told: set[int] = set()

    def go_on(self, ledger: Suspicion, t: int) -> None:
        """Continue with the records of another ledger, after a round of a checkpoint."""
        self.round, self.ledger = t, dataclasses.replace(self.ledger, records=ledger.records)

    def note(self, oracles: Sequence[PartOracle], exchange: GridExchange, t: int) -> None:
        """Record the evidence of a round."""
        report = report_of(oracles, exchange, self.ledger.liar_fraction)
        self.round, self.ledger = t, self.ledger.after(report)

    def trusted(self, nodes: Iterable[int], least: int) -> list[int]:
        """Return the nodes without evidence against them, and more if they are too few."""
        there = list(nodes)
        out = self.ledger.excluded(there, least)
        for node in sorted(out.keys() - self._told):
            since = self.round + 1
            LOG.warning("node %s is left out from round %s on: %s", node, since, out[node])
        self._told |= out.keys()
        return [node for node in there if node not in out]


def report_of(
    oracles: Sequence[PartOracle], exchange: GridExchange, liar_fraction: float
) -> RoundReport:
    """Return the evidence about nodes, from the sums of a round and its messages."""
    joined = frozenset(exchange.joined)
    liars = math.ceil(liar_fraction * len(joined))
    shut = {oracle.unopened for oracle in oracles if oracle.unopened}
    faults = {
        device: str(fault)
        for oracle in oracles
        for device, fault in oracle.faults.items()
        if _is_proof(fault)
    }
    return RoundReport(
        groups=tuple(
            GroupReport(_members(oracle, exchange), _badness(oracle, far=far))
            for oracle, far in zip(oracles, outlying(oracles), strict=True)
        ),
        joined=joined,
        lost=frozenset(exchange.silent) | {s.dealer for s in shut if _is_own(s, joined, liars)},
        faults=faults,
        disputes=frozenset[Dispute]().union(*(oracle.disputes for oracle in oracles)),
    )


def _members(oracle: PartOracle, exchange: GridExchange) -> frozenset[int]:
    """Return the nodes whose inputs may be in the sum."""
    there = exchange.joined - exchange.silent - exchange.late
    return frozenset(oracle.devices) & there


def _badness(oracle: PartOracle, *, far: bool) -> str:
    """Return what was wrong with a group, if no single node is known to be at fault."""
    if far:
        return "its result was far from that of the others"
    if isinstance(oracle.stopped, ImplausibleSumError):
        return "its sum was implausible"
    if isinstance(oracle.stopped, BadShareError):
        return "its sum could not be opened"
    return ""


def _is_own(shut: Unopened, joined: frozenset[int], liars: int) -> bool:
    """Return whether others can hardly keep a secret from opening, so its node counts as lost."""
    return around(len(joined), liars, shut.holders, shut.forgers) <= RARE


def _is_proof(fault: SecAggError) -> bool:
    """Return whether no honest node does this; an honest one may abstain, or answer twice.

    Complaints about a node are disputes: a group may hold more liars than may collude there. Of two
    nodes that offer the same key, the later one is refused, and may be its owner.
    """
    excused = (OutOfStageError, ComplaintsError, DuplicateKeyError)
    return type(fault) is not RefusalError and not isinstance(fault, excused)
