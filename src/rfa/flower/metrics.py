"""The numbers that an app returns beside its arrays, as a row of numbers that can be summed.

>>> layout, row = flatten({"loss": 0.5, "hits": [3, 4]})
>>> layout.names, row
(('hits', 'loss'), [3.0, 4.0, 0.5])
>>> dict(layout.means([6.0, 8.0, 1.0], 2.0))
{'hits': [3.0, 4.0], 'loss': 0.5}
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message, MetricRecord

from rfa.secagg.messages.round import MAX_METRICS

LONGEST = 256
"""Letters of the name of a metric."""
Values = Mapping[str, "int | float | Sequence[int] | Sequence[float]"]


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
        """How many numbers they are."""
        return sum(max(1, size) for size in self.sizes)

    @property
    def fault(self) -> str:
        """Why no sum can be about these metrics; nothing if one can."""
        if self.count > MAX_METRICS:
            return f"the app has {self.count} metrics, and at most {MAX_METRICS} are summed"
        if any(first >= second for first, second in itertools.pairwise(self.names)):
            return "the names of metrics must be in order, and none there twice"
        longest = max(map(len, self.names), default=0)
        if longest > LONGEST:
            return f"a metric's name has {longest} letters, and {LONGEST} are the most"
        return ""

    def means(self, totals: Sequence[float], weight: float) -> MetricRecord:
        """The weighted means, by name, from sums of weighted values."""
        means = MetricRecord()
        values = iter(totals)
        for name, size in zip(self.names, self.sizes, strict=True):
            numbers = [next(values) / weight for _ in range(max(1, size))]
            means[name] = numbers if size else numbers[0]
        return means


def metrics_of(message: Message) -> dict[str, int | float | list[int] | list[float]]:
    """The metrics of a message, by name."""
    records: list[MetricRecord] = list(message.content.metric_records.values())
    return {str(name): value for record in records for name, value in record.items()}


def flatten(values: Values) -> tuple[MetricLayout, list[float]]:
    """Metrics as a row of numbers, and what they are; empty lists are left out."""
    names: list[str] = []
    sizes: list[int] = []
    row: list[float] = []
    for name, value in sorted(values.items()):
        numbers = [value] if isinstance(value, int | float) else list(value)
        if numbers:
            names.append(name)
            sizes.append(0 if isinstance(value, int | float) else len(numbers))
            row.extend(float(number) for number in numbers)
    return MetricLayout(tuple(names), tuple(sizes)), row
