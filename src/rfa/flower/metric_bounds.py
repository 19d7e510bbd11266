"""Bounds within which a metric of a node counts: what is beyond them counts as the bound.

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
    """Bounds of metrics: part of what devices are told, and so public.

    Attributes:
        names: the names of the metrics, sorted.
        bounds: the least and the largest number that counts, of each.
    """

    names: tuple[str, ...] = ()
    bounds: tuple[Bounds, ...] = ()

    def __post_init__(self) -> None:
        """Check that these are bounds.

        Raises:
            InvalidValueError: naming what is not.
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
        """The values, those beyond their bounds as the bound; what is no number stays as it is."""
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
    """Bounds as an option gives them, by name.

    Raises:
        InvalidValueError: naming what cannot be.
    """
    return MetricBounds(*read_bounds("metric_bounds", given))


def read_bounds(
    option: str, given: Mapping[str, Bounds] | None
) -> tuple[tuple[str, ...], tuple[Bounds, ...]]:
    """Names and bounds from what an option was given, sorted by name.

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
    """A number within bounds; NaN, which compares with nothing, stays."""
    return min(max(number, low), high)
