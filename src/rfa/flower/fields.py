"""Reading of values in the records of messages, with checks of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from rfa.errors import InvalidValueError
from rfa.flower.errors import FlowerError
from rfa.flower.histograms import Histograms
from rfa.flower.metric_bounds import MetricBounds

KEY = "rfa"
"""The record for values between strategy and mod."""


class RecordError(FlowerError):
    """A message has the wrong form, or a node refuses a request."""


def read_opening(more: Mapping[str, Any]) -> bytes:
    """Return the opening of a round of the secure sum; empty if there is none yet.

    Raises:
        RecordError: if it is not bytes.
    """
    opening = more.get("opening", b"")
    if not isinstance(opening, bytes):
        msg = f"the record {KEY!r} has no bytes where the opening of a round is wanted"
        raise RecordError(msg)
    return opening


def read_noise(more: Mapping[str, Any]) -> float:
    """Return the noise multiplier of the next sums; 0 for none.

    Raises:
        RecordError: if it is not a multiplier.
    """
    noise = more.get("noise", 0.0)
    if not isinstance(noise, float) or not 0 <= noise < math.inf:
        msg = f"noise={noise!r} is not a multiplier"
        raise RecordError(msg)
    return noise


def read_histograms(more: Mapping[str, Any]) -> Histograms:
    """Return the histograms that a request for work asks for.

    Raises:
        RecordError: if they are not valid.
    """
    names, bounds = flat(more.get("robust", [])), flat(more.get("bounds", []))
    if not names and not bounds:
        return Histograms()
    try:
        pairs = tuple(zip(bounds[::2], bounds[1::2], strict=True))
        return Histograms(tuple(map(str, names)), pairs, more.get("bins", 0))
    except (InvalidValueError, TypeError, ValueError) as error:
        msg = f"these histograms cannot be summed: {error}"
        raise RecordError(msg) from None


def read_bounds(more: Mapping[str, Any]) -> MetricBounds:
    """Return the bounds of metrics that a request for work gives.

    Raises:
        RecordError: if they are not valid.
    """
    names, limits = flat(more.get("clipped", [])), flat(more.get("limits", []))
    try:
        pairs = tuple(zip(limits[::2], limits[1::2], strict=True))
        return MetricBounds(tuple(map(str, names)), pairs)
    except (InvalidValueError, TypeError, ValueError) as error:
        msg = f"these are not bounds of metrics: {error}"
        raise RecordError(msg) from None


def read_bytes(value: Any, size: int) -> bytes:
    """Return a value of a record that is empty or a byte string of this size.

    Raises:
        RecordError: if it is something else.
    """
    if not isinstance(value, bytes) or len(value) not in (0, size):
        msg = f"the record {KEY!r} has something else where {size} bytes are wanted"
        raise RecordError(msg)
    return value


def read_count(more: Mapping[str, Any], name: str) -> int:
    """Return a whole number of a request for work; 0 if there is none.

    Raises:
        RecordError: if it is something else.
    """
    value = more.get(name, 0)
    if type(value) is not int or value < 0:
        msg = f"the record {KEY!r} has {value!r} where {name} must be a whole number"
        raise RecordError(msg)
    return value


def flat(value: Any) -> tuple[Any, ...]:
    """Return a value of a record as a tuple, whether it is a list or not."""
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else (value,)
