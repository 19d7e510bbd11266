"""The numbers that an app returns beside its arrays, as a row of numbers that can be summed.

Each metric is summed times the weight, and beside it the weight itself: of the devices whose metric
is a number that a sum can hold. So a loss that is not finite costs the loss of one device in a
mean, and not its update.

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
"""Letters of the name of a metric."""
Values = Mapping[str, "int | float | Sequence[int] | Sequence[float]"]
LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class MetricLayout:
    """Which metrics there are: the same on all nodes of a sum.

    Attributes:
        names: their names, sorted.
        sizes: how many numbers each has; 0 for one that is no list.
    """

    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many numbers are summed: those of each metric, and the weight behind it."""
        return sum(max(1, size) + 1 for size in self.sizes)

    @property
    def fault(self) -> str:
        """Why no sum can be about these metrics; nothing if one can."""
        if self.count > MAX_METRICS:
            return (
                f"the app's metrics, with a weight behind each, make {self.count} numbers, and at "
                f"most {MAX_METRICS} are summed"
            )
        if any(first >= second for first, second in itertools.pairwise(self.names)):
            return "the names of metrics must be in order, and none there twice"
        longest = max(map(len, self.names), default=0)
        if longest > LONGEST:
            return f"a metric's name has {longest} letters, and {LONGEST} are the most"
        return ""

    @property
    def scalars(self) -> tuple[str, ...]:
        """The names of those that are no lists."""
        return tuple(name for name, size in zip(self.names, self.sizes, strict=True) if not size)

    def row(self, values: Values, weight: float) -> list[float]:
        """What a device of this weight adds; zeros for a metric that no sum can hold."""
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
        """The weighted means, by name, from sums of rows; without those that no device has."""
        means = MetricRecord()
        for name, size, numbers, weight in self._split(totals):
            if weight > 0:
                values = [number / weight for number in numbers]
                means[name] = values if size else values[0]
            else:
                LOG.warning("no node has a metric %s that is finite", name)
        return means

    def _split(self, totals: Sequence[float]) -> Iterator[tuple[str, int, list[float], float]]:
        """Each metric with its size, its numbers, and the weight behind it."""
        rest = iter(totals)
        for name, size in zip(self.names, self.sizes, strict=True):
            yield name, size, [next(rest) for _ in range(max(1, size))], next(rest)


def metrics_of(message: Message) -> dict[str, int | float | list[int] | list[float]]:
    """The metrics of a message, by name."""
    records: list[MetricRecord] = list(message.content.metric_records.values())
    return {str(name): value for record in records for name, value in record.items()}


def layout_of(values: Values) -> MetricLayout:
    """What metrics these are; empty lists are left out."""
    sizes: dict[str, int] = {}
    for name, value in sorted(values.items()):
        if isinstance(value, int | float):
            sizes[name] = 0
        elif len(value):
            sizes[name] = len(value)
    return MetricLayout(tuple(sizes), tuple(sizes.values()))


def as_float(number: float) -> float:
    """A number as a float; NaN for a whole number that is too large for one."""
    try:
        return float(number)
    except OverflowError:
        return math.nan


def _numbers(value: int | float | Sequence[int] | Sequence[float]) -> list[float]:
    return [as_float(value)] if isinstance(value, int | float) else [as_float(x) for x in value]
