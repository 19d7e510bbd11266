"""Bounds of metrics: a value of a node beyond them counts as the bound.

>>> MetricBounds(("loss",), ((0.0, 10.0),)).clip({"loss": 1e9, "hits": [3, 4]})
{'loss': 10.0, 'hits': [3, 4]}
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rfa.errors import InvalidValueError

Bounds = tuple[float, float]


@dataclass(frozen=True)
class MetricBounds:
    """Bounds of metrics; devices get this value, so it is public.

    Attributes:
        names: the names of the metrics, sorted.
        bounds: the least and the largest number that counts, of each.
    """

    names: tuple[str, ...] = ()
    bounds: tuple[Bounds, ...] = ()

    def __post_init__(self) -> None:
        """Check that these are bounds.

        Raises:
            InvalidValueError: if they are not; the message names the metric.
        """
        for reason in self._reasons():
            raise InvalidValueError(reason)

    def _reasons(self) -> Iterator[str]:
        for name, (low, high) in zip(self.names, self.bounds, strict=True):
            if not -math.inf < low <= high < math.inf:
                yield (
                    f"metric_bounds[{name!r}] must be two finite numbers, the lower one first, "
                    f"not {(low, high)}"
                )
        if self.names != tuple(sorted(set(self.names))):
            yield f"metric_bounds must have each name once, not {self.names}"

    def clip(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values clipped to their bounds; values that are not numbers are unchanged."""
        clipped = dict(values)
        for name, (low, high) in zip(self.names, self.bounds, strict=True):
            match values.get(name):
                case int() | float() as number:
                    clipped[name] = _within(number, low, high)
                case list() as numbers:  # pyright: ignore[reportUnknownVariableType]
                    clipped[name] = [_within(number, low, high) for number in numbers]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                case _:
                    continue
        return clipped


def metric_bounds_of(given: Mapping[str, Bounds] | None) -> MetricBounds:
    """Return the bounds for an option that gives them by name.

    Raises:
        InvalidValueError: if they are not valid; the message names the metric.
    """
    return MetricBounds(*read_bounds("metric_bounds", given))


def read_bounds(
    option: str, given: Mapping[str, Bounds] | None
) -> tuple[tuple[str, ...], tuple[Bounds, ...]]:
    """Return names and bounds from an option, sorted by name.

    Raises:
        InvalidValueError: if they are not bounds by name.
    """
    try:
        named = dict(sorted((given or {}).items()))
        if not all(isinstance(name, str) and name for name in named):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError
        pairs = tuple((float(low), float(high)) for low, high in named.values())
    except (AttributeError, TypeError, ValueError):
        msg = f"{option} are bounds by name, such as {{'loss': (0.0, 10.0)}}, not {given!r}"
        raise InvalidValueError(msg) from None
    return tuple(named), pairs


def _within(number: float, low: float, high: float) -> float:
    """Return a number clipped to bounds; NaN stays NaN."""
    return min(max(number, low), high)
