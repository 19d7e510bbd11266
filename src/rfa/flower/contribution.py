"""The input of a device to a sum: its update, its weight, and its metrics as a row of numbers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rfa._types import Floats32
from rfa.flower.fields import RecordError
from rfa.flower.metrics import MetricLayout, layout_of
from rfa.flower.records import Work
from rfa.flower.weighing import Surrogates, is_capped, weigh
from rfa.secagg.errors import NotFiniteError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.opening import MAX_METRICS
from rfa.secagg.weights import EQUAL

LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class Start:
    """What a device started from.

    Attributes:
        basis: the digest of all of it, to which the sum is bound.
        mark: the digest of the model that it evaluated; None if it trained.
    """

    basis: bytes
    mark: bytes | None


def prepare(
    work: Work,
    update: Floats32,
    metrics: dict[str, Any],
    kept: Path | Surrogates,
    start: Start,
) -> tuple[MetricLayout, Contribution | None]:
    """Return the metrics that a device has, and its input; None if it abstains.

    Args:
        work: the request for work.
        update: the change by training.
        metrics: the app's metrics.
        kept: where the device keeps its surrogates.
        start: what it started from.

    Raises:
        RecordError: if examples are not counted, or there are too many metrics.
        VaultError: if the file cannot be used.
    """
    examples = _examples_of(work, metrics)
    values = dict[str, Any]()
    if not work.noise:  # sums with noise hold no metrics
        values = work.bounds.clip(metrics)
        del values[work.weight]
    layout = layout_of(values)
    if layout.fault:
        raise RecordError(layout.fault)
    histograms = work.histograms.within(layout)
    equal = work.weights == EQUAL
    _check_count(layout, histograms.count, 0 if equal else 1)
    how = examples, work.cap, work.weights
    weight = weigh(*how, kept=kept, task=work.task)
    if not weight:
        LOG.warning("this device abstains: it has no examples")
        return layout, None
    capped = is_capped(*how, kept=kept, task=work.task)
    if capped:
        LOG.info("%s examples count as %g: the strategy's example_cap", examples, work.cap)
    flag = () if equal else (float(capped),)
    row = (*layout.row(values, weight), *flag, *histograms.votes(values))
    try:
        brought = Contribution(update, weight, row, start.basis, start.mark, equal_weights=equal)
    except NotFiniteError as error:
        LOG.warning("this device abstains: %s", error)
        return layout, None
    return layout, brought


def _examples_of(work: Work, metrics: dict[str, Any]) -> float:
    """Return the number of examples that the app reports.

    Raises:
        RecordError: if it reports none.
    """
    examples = metrics.get(work.weight)
    if isinstance(examples, int | float):
        return examples
    found = ", ".join(sorted(metrics)) or "nothing"
    msg = f"the app's metrics have no number {work.weight!r}, by which updates are weighted: "
    msg += f"return it beside {found}, or give the strategy its name, weighted_by_key"
    raise RecordError(msg)


def _check_count(layout: MetricLayout, bins: int, flags: int) -> None:
    """Check that a sum can hold all numbers.

    Raises:
        RecordError: if it cannot; the message names the metrics.
    """
    numbers = layout.count + bins + flags
    if numbers > MAX_METRICS:
        msg = (
            f"the app's metrics {', '.join(layout.names)}, a weight behind each and {bins} bins "
            f"make {numbers} numbers, and at most {MAX_METRICS} are summed: return fewer, or ask "
            "for fewer bins"
        )
        raise RecordError(msg)
