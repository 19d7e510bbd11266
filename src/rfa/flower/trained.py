"""What came of a round of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flwr.app import MetricRecord

from rfa.aggregators import Result
from rfa.secagg.messages.records import PartRecord


@dataclass(frozen=True)
class TrainedRound:
    """What came of a round of training.

    Attributes:
        result: what the aggregator made of the sums.
        state: what the aggregator carries to the next round.
        metrics: the means of the nodes' metrics.
        abstained: the devices that had nothing to bring.
        devices: how many devices were ready.
        parts: what a receipt tells of each part of them; empty if none is wanted.
    """

    result: Result
    state: Any
    metrics: MetricRecord | None
    abstained: frozenset[int]
    devices: int = 0
    parts: tuple[PartRecord, ...] = ()
