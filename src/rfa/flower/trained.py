"""The result of a round of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flwr.app import MetricRecord

from rfa.aggregators import Result
from rfa.secagg.messages.records import PartRecord


@dataclass(frozen=True)
class TrainedRound:
    """The result of a round of training.

    Attributes:
        result: the result of the aggregator.
        state: the state of the aggregator for the next round.
        metrics: the means of the nodes' metrics.
        abstained: the devices that abstained.
        devices: the number of devices that were ready.
        parts: the records of the parts for a receipt; empty if none is wanted.
    """

    result: Result
    state: Any
    metrics: MetricRecord | None
    abstained: frozenset[int]
    devices: int = 0
    parts: tuple[PartRecord, ...] = ()
