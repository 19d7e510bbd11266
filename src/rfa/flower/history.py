"""The results of a run, in Flower's result and in the log."""

from __future__ import annotations

import io
import logging

from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

LOG = logging.getLogger("flwr")


def note_metrics(history: dict[int, MetricRecord], t: int, metrics: MetricRecord | None) -> None:
    """Store the metrics of a round, if there are any."""
    if metrics is not None:
        LOG.info("\t└──> MetricRecord: %s", metrics)
        history[t] = metrics


def log_result(result: Result, seconds: float) -> None:
    """Log the result, as Flower does."""
    LOG.info("")
    LOG.info("Strategy execution finished in %.2fs", seconds)
    for line in io.StringIO(str(result)):
        LOG.info("\t%s", line.rstrip("\n"))
