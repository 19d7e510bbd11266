"""What a round on the grid tells of its nodes, for the ledger of suspicion."""

from __future__ import annotations

from collections.abc import Sequence

from rfa.aggregators.partition import outlying
from rfa.flower.oracles import PartOracle
from rfa.flower.transport import GridExchange
from rfa.secagg.errors import (
    BadShareError,
    ImplausibleSumError,
    OutOfStageError,
    RefusalError,
    SecAggError,
)
from rfa.secagg.server.complaints import Dispute
from rfa.secagg.server.suspicion import GroupReport, RoundReport


def report_of(oracles: Sequence[PartOracle], exchange: GridExchange) -> RoundReport:
    """What the sums of a round, and the messages that carried them, tell of its nodes."""
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
        joined=frozenset(exchange.joined),
        lost=frozenset(exchange.silent),
        faults=faults,
        disputes=frozenset[Dispute]().union(*(oracle.disputes for oracle in oracles)),
    )


def _members(oracle: PartOracle, exchange: GridExchange) -> frozenset[int]:
    """Whose inputs may be in the sum."""
    there = exchange.joined - exchange.silent - exchange.late
    return frozenset(oracle.devices) & there


def _badness(oracle: PartOracle, *, far: bool) -> str:
    """What was wrong with a group that cannot be told to be one node's fault."""
    if far:
        return "its result was far from that of the others"
    if isinstance(oracle.stopped, ImplausibleSumError):
        return "its sum was implausible"
    named = any(isinstance(fault, BadShareError) for fault in oracle.faults.values())
    if isinstance(oracle.stopped, BadShareError) and not named:
        return "its sum could not be opened"
    return ""


def _is_proof(fault: SecAggError) -> bool:
    """Whether no honest node does this, as it may abstain, or answer twice."""
    return type(fault) is not RefusalError and not isinstance(fault, OutOfStageError)
