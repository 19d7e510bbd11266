"""rfa: robust and private aggregation for federated learning.

The geometric median of points you hold, and as an iterative secure aggregate of updates that you
never see. Aggregators are values in `rfa.aggregators`; see README.md for a start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rfa._lazy import names_on_use

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
    from rfa.radii import Radii

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
    "rfa.radii": ("Radii",),
}
_ROOMS = ("aggregators", "errors", "median", "numerics", "oracle")
"""Modules that need no import of their own."""

__all__ = [
    "InvalidTypeError",
    "InvalidValueError",
    "Median",
    "OracleStoppedError",
    "PlainOracle",
    "PluginError",
    "Radii",
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

__getattr__, __dir__ = names_on_use(__name__, _HOMES, _ROOMS)
