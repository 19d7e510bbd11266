"""What a device brings into a sum: its update, its weight, and its metrics as a row of numbers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rfa._types import Floats32
from rfa.flower.metrics import MetricLayout, layout_of
from rfa.flower.records import RecordError, Work
from rfa.flower.weighing import weigh
from rfa.secagg.errors import NotFiniteError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.round import MAX_METRICS
from rfa.secagg.weights import EQUAL

LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class Start:
    """What a device started from.

    Attributes:
        basis: the digest of all of it, to which the sum is bound.
        mark: the digest of the model that it evaluated; None where it trained.
    """

    basis: bytes
    mark: bytes | None


def prepare(
    work: Work, update: Floats32, metrics: dict[str, Any], kept: Path, start: Start
) -> tuple[MetricLayout, Contribution | None]:
    """Which metrics a device has, and what it brings; nothing where it abstains.

    Args:
        work: what it was asked for.
        update: what training changed.
        metrics: what the app returned beside it.
        kept: the file in which the device keeps its surrogates.
        start: what it started from.

    Raises:
        RecordError: if examples are not counted, or there are too many metrics.
        VaultError: if the file cannot be used.
    """
    values = dict(metrics)
    examples = values.pop(work.weight, None)
    if not isinstance(examples, int | float):
        msg = f"the app's metrics have no number {work.weight!r}, by which updates are weighted"
        raise RecordError(msg)
    layout = layout_of(values)
    if layout.fault:
        raise RecordError(layout.fault)
    histograms = work.histograms.within(layout)
    numbers = layout.count + histograms.count
    if numbers > MAX_METRICS:
        msg = (
            f"the app's metrics, a weight behind each and {histograms.count} bins make {numbers} "
            f"numbers, and at most {MAX_METRICS} are summed: return fewer, or ask for fewer bins"
        )
        raise RecordError(msg)
    if examples > work.cap and work.weights != EQUAL:
        LOG.info("%s examples count as %g: the strategy's example_cap", examples, work.cap)
    weight = weigh(examples, work.cap, work.weights, kept=kept, task=work.task)
    if not weight:
        LOG.warning("this device abstains: it has no examples")
        return layout, None
    row = (*layout.row(values, weight), *histograms.votes(values))
    equal = work.weights == EQUAL
    try:
        brought = Contribution(update, weight, row, start.basis, start.mark, equal_weights=equal)
    except NotFiniteError as error:
        LOG.warning("this device abstains: %s", error)
        return layout, None
    return layout, brought
