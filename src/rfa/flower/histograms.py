"""Medians and quantiles of metrics, from sums in which each device counts once.

In a weighted mean, one lying device can move a metric anywhere. Here each device puts one vote into
one of several bins between public bounds. The bins are further metrics of the same sum. One vote
moves a quantile to the next vote at most.

Formal guarantees (tests/flower/test_histograms.py):
    the error of the quantile q of the votes is less than a bin, for values within the bounds;
    values outside count in the first or last bin;
    the quantile q is the least value that at least the fraction q of the votes do not exceed.

>>> asked = Histograms(("accuracy",), ((0.0, 1.0),), bins=4)
>>> asked.votes({"accuracy": 0.3}), asked.votes({"accuracy": float("nan")})
([0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0])
>>> quantile((0, 2, 2, 0), (0.0, 1.0), 50)
0.5
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import MetricRecord

from rfa.errors import InvalidValueError
from rfa.flower.metric_bounds import Bounds, read_bounds
from rfa.flower.metrics import LONGEST, MetricLayout, Values, as_float
from rfa.secagg.messages.opening import MAX_METRICS

LOG = logging.getLogger("flwr")
BINS = 32
LARGEST_BINS = 128
LEAST_NODES = 10
"""Sums over fewer nodes have no histogram, because a bin would reveal single nodes."""
QUANTILES = {"q10": 10, "q25": 25, "median": 50, "q75": 75, "q90": 90}
"""The reported quantiles in percent, by the ending of their name."""


@dataclass(frozen=True)
class Histograms:
    """The metrics that have histograms; devices get this value, so it is public.

    Attributes:
        names: their names, sorted.
        bounds: the bounds of the bins of each.
        bins: the number of bins of each, a power of two.
    """

    names: tuple[str, ...] = ()
    bounds: tuple[Bounds, ...] = ()
    bins: int = BINS

    def __post_init__(self) -> None:
        """Check that they can be summed.

        Raises:
            InvalidValueError: if they cannot; the message says why.
        """
        for reason in self._reasons():
            raise InvalidValueError(reason)

    def _reasons(self) -> Iterator[str]:
        bins, largest = self.bins, LARGEST_BINS
        if type(bins) is not int or bins not in (1 << power for power in range(1, 8)):
            yield f"metric_bins must be a power of two from 2 to {largest}, not {bins!r}"
            return
        for name, (low, high) in zip(self.names, self.bounds, strict=True):
            if not (-math.inf < low < low + (high - low) / bins < high < math.inf):
                yield (
                    f"robust_metrics[{name!r}] must be two finite bounds, the lower one first, "
                    f"not {(low, high)}"
                )
        if (longest := max(map(len, self.names), default=0)) > LONGEST:
            yield f"robust_metrics have a name of {longest} letters, and metrics at most {LONGEST}"
        if self.names != tuple(sorted(set(self.names))):
            yield f"robust_metrics must have each name once, not {self.names}"
        if self.count + 2 * len(self.names) > MAX_METRICS:
            yield (
                f"{len(self.names)} robust_metrics of {bins} bins, and their means, are more than "
                f"the {MAX_METRICS} numbers that can be summed: give fewer, or fewer metric_bins"
            )

    @property
    def count(self) -> int:
        """The number of numbers that are summed."""
        return len(self.names) * self.bins

    def within(self, layout: MetricLayout) -> Histograms:
        """Return the histograms of the metrics that devices have and that are not lists."""
        there = set(layout.scalars)
        kept = [pair for pair in zip(self.names, self.bounds, strict=True) if pair[0] in there]
        return Histograms(tuple(n for n, _ in kept), tuple(b for _, b in kept), self.bins)

    def votes(self, values: Values) -> list[float]:
        """Return the votes of a device: 1 in one bin per metric; none if a value is not finite."""
        row: list[float] = []
        for name, (low, high) in zip(self.names, self.bounds, strict=True):
            value: Any = values[name]
            row.extend(_one_hot(as_float(value), low, high, self.bins))
        return row

    def quantiles(self, parts: Sequence[tuple[Sequence[float], int]]) -> MetricRecord:
        """Return the quantiles of the votes in all parts together, by name.

        Args:
            parts: the sums of the votes in each part, and the number of devices in it.
        """
        found = MetricRecord()
        for place, (name, bounds) in enumerate(zip(self.names, self.bounds, strict=True)):
            span = slice(place * self.bins, (place + 1) * self.bins)
            kept = [votes[span] for votes, count in parts if _is_told(name, votes[span], count)]
            total = [int(sum(column)) for column in zip(*kept, strict=True)]
            if any(total):
                for end, percent in QUANTILES.items():
                    found[f"{name}-{end}"] = quantile(total, bounds, percent)
        return found


class MissingMetrics:
    """Warns once about each metric that an option names and that no node has.

    Training and evaluation may have different metrics: one is missing if neither has it.
    """

    def __init__(self, robust: Iterable[str] | None, bounded: Iterable[str] | None) -> None:
        """Watch for the metrics of robust_metrics, and for those of metric_bounds."""
        self._robust, self._bounded = set(robust or ()), set(bounded or ())
        self._seen = dict[str, MetricLayout]()

    def note(self, task: str, layout: MetricLayout) -> None:
        """Record the metrics of nodes that trained or evaluated."""
        self._seen[task] = layout

    def warn(self) -> None:
        """Warn about metrics that no node has had so far, if any node had a metric."""
        if not self._seen:
            return
        numbers = {name for layout in self._seen.values() for name in layout.scalars}
        there = {name for layout in self._seen.values() for name in layout.names}
        known = "; ".join(f"{', '.join(at.names) or 'none'} ({t})" for t, at in self._seen.items())
        for name in sorted(self._robust - numbers):
            what = "is a list on all nodes" if name in there else "is missing on all nodes"
            text = "robust_metrics: %r %s, so there are no quantiles of it; nodes have %s"
            LOG.warning(text, name, what, known)
        for name in sorted(self._bounded - there):
            text = "metric_bounds: %r is missing on all nodes, so nothing is bounded; nodes have %s"
            LOG.warning(text, name, known)
        self._robust, self._bounded = self._robust & numbers, self._bounded & there


def histograms_of(robust_metrics: Mapping[str, Bounds] | None, bins: int = BINS) -> Histograms:
    """Return the histograms for an option that gives bounds by name.

    Raises:
        InvalidValueError: if they are not valid; the message says why.
    """
    return Histograms(*read_bounds("robust_metrics", robust_metrics), bins)


def quantile(votes: Sequence[int], bounds: Bounds, percent: int) -> float:
    """Return the quantile of votes in bins between bounds, interpolated within its bin."""
    low, high = bounds
    needed, before = percent * sum(votes), 0
    for place, here in enumerate(votes):
        if here and 100 * (before + here) >= needed:
            inside = (needed / 100 - before) / here
            return low + (high - low) * (place + inside) / len(votes)
        before += here
    msg = "there are no votes"
    raise InvalidValueError(msg)


def _one_hot(value: float, low: float, high: float, bins: int) -> list[float]:
    votes = [0.0] * bins
    if math.isfinite(value):
        place = (min(max(value, low), high) - low) / (high - low) * bins
        votes[min(int(place), bins - 1)] = 1.0
    return votes


def _is_told(name: str, votes: Sequence[float], count: int) -> bool:
    """Return whether votes come from enough devices, and can be those of honest ones."""
    if count < LEAST_NODES:
        LOG.info("no histogram of %s: %s nodes, of at least %s", name, count, LEAST_NODES)
        return False
    if any(vote < 0 or vote != int(vote) for vote in votes) or sum(votes) > count:
        LOG.warning("no histogram of %s: its bins are not those of %s nodes: one lies", name, count)
        return False
    return True
