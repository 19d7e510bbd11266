"""rfa: robust and private aggregation for federated learning.

The geometric median of points you hold, and as an iterative secure aggregate of updates that you
never see. Aggregators are values in `rfa.aggregators`; see README.md for a start.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rfa.aggregators.accelerated import accelerated
    from rfa.aggregators.weiszfeld import one_step, weiszfeld
    from rfa.errors import (
        InvalidTypeError,
        InvalidValueError,
        OracleStoppedError,
        PluginError,
        RfaError,
    )
    from rfa.median import Median, geometric_median
    from rfa.numerics.plain_oracle import PlainOracle
    from rfa.numerics.smoothing import Relative, Smoothing
    from rfa.oracle import RecordingOracle, Sum, SumOracle

_HOMES = {
    "rfa.aggregators.accelerated": ("accelerated",),
    "rfa.aggregators.weiszfeld": ("one_step", "weiszfeld"),
    "rfa.errors": (
        "InvalidTypeError",
        "InvalidValueError",
        "OracleStoppedError",
        "PluginError",
        "RfaError",
    ),
    "rfa.median": ("Median", "geometric_median"),
    "rfa.numerics.plain_oracle": ("PlainOracle",),
    "rfa.numerics.smoothing": ("Relative", "Smoothing"),
    "rfa.oracle": ("RecordingOracle", "Sum", "SumOracle"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_ROOMS = ("aggregators", "errors", "median", "numerics", "oracle")
"""Modules that need no import of their own."""

__all__ = [
    "InvalidTypeError",
    "InvalidValueError",
    "Median",
    "OracleStoppedError",
    "PlainOracle",
    "PluginError",
    "RecordingOracle",
    "Relative",
    "RfaError",
    "Smoothing",
    "Sum",
    "SumOracle",
    "accelerated",
    "geometric_median",
    "one_step",
    "weiszfeld",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"rfa.{name}")
    if name not in _HOME_OF:
        msg = f"module 'rfa' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
