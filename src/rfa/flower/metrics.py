"""The metrics of an app, as a row of numbers that can be summed.

Each metric is summed times the weight, next to the weight itself, over the devices whose metric is
a number that a sum can hold. So if a device's loss is not finite, only this loss is missing in the
mean, and its update still counts.

>>> layout = layout_of({"loss": 0.5, "hits": [3, 4]})
>>> layout.names, layout.row({"loss": 0.5, "hits": [3, 4]}, 0.5)
(('hits', 'loss'), [1.5, 2.0, 0.5, 0.25, 0.5])
>>> layout.row({"loss": float("nan"), "hits": [3, 4]}, 0.5)
[1.5, 2.0, 0.5, 0.0, 0.0]
>>> dict(layout.means([3.0, 4.0, 1.0, 0.25, 0.5]))
{'hits': [3.0, 4.0], 'loss': 0.5}
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message, MetricRecord

from rfa.secagg.messages.opening import MAX_METRICS
from rfa.secagg.statistics import METRIC

LONGEST = 256
"""The most letters of the name of a metric."""
Values = Mapping[str, "int | float | Sequence[int] | Sequence[float]"]
LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class MetricLayout:
    """The metrics of a sum, the same on all its nodes.

    Attributes:
        names: their names, sorted.
        sizes: the number of values of each; 0 for one that is not a list.
    """

    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """The number of numbers that are summed: those of each metric, and its weight."""
        return sum(max(1, size) + 1 for size in self.sizes)

    @property
    def fault(self) -> str:
        """Why these metrics cannot be summed; empty if they can."""
        if self.count > MAX_METRICS:
            return (
                f"the app's metrics, with a weight behind each, make {self.count} numbers, and at "
                f"most {MAX_METRICS} are summed"
            )
        if any(first >= second for first, second in itertools.pairwise(self.names)):
            return "the names of metrics must be in order, without duplicates"
        longest = max(map(len, self.names), default=0)
        if longest > LONGEST:
            return f"a metric's name has {longest} letters, and {LONGEST} are the most"
        return ""

    @property
    def scalars(self) -> tuple[str, ...]:
        """The names of the metrics that are not lists."""
        return tuple(name for name, size in zip(self.names, self.sizes, strict=True) if not size)

    def row(self, values: Values, weight: float) -> list[float]:
        """Return the row of a device with this weight; zeros for a metric that no sum can hold."""
        row: list[float] = []
        for name in self.names:
            weighted = [weight * number for number in _numbers(values[name])]
            if all(METRIC.least <= number <= METRIC.largest for number in weighted):
                row.extend((*weighted, weight))
                continue
            LOG.warning("the metric %s is not finite, or too large: it does not count", name)
            row.extend([0.0] * (len(weighted) + 1))
        return row

    def means(self, totals: Sequence[float]) -> MetricRecord:
        """Return the weighted means by name, without metrics that no device has.

        Args:
            totals: the sums of rows.
        """
        means = MetricRecord()
        for name, size, numbers, weight in self._split(totals):
            if weight > 0:
                values = [number / weight for number in numbers]
                means[name] = values if size else values[0]
            else:
                LOG.warning("no node has a metric %s that is finite", name)
        return means

    def _split(self, totals: Sequence[float]) -> Iterator[tuple[str, int, list[float], float]]:
        """Yield each metric with its size, its numbers, and its weight."""
        rest = iter(totals)
        for name, size in zip(self.names, self.sizes, strict=True):
            yield name, size, [next(rest) for _ in range(max(1, size))], next(rest)


def metrics_of(message: Message) -> dict[str, int | float | list[int] | list[float]]:
    """Return the metrics of a message, by name."""
    records: list[MetricRecord] = list(message.content.metric_records.values())
    return {str(name): value for record in records for name, value in record.items()}


def layout_of(values: Values) -> MetricLayout:
    """Return the layout of metrics, without empty lists."""
    sizes: dict[str, int] = {}
    for name, value in sorted(values.items()):
        if isinstance(value, int | float):
            sizes[name] = 0
        elif len(value):
            sizes[name] = len(value)
    return MetricLayout(tuple(sizes), tuple(sizes.values()))


def as_float(number: float) -> float:
    """Return a number as a float; NaN for a whole number that is too large for one."""
    try:
        return float(number)
    except OverflowError:
        return math.nan


def _numbers(value: int | float | Sequence[int] | Sequence[float]) -> list[float]:
    return [as_float(value)] if isinstance(value, int | float) else [as_float(x) for x in value]
