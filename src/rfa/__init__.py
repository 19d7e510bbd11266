"""rfa: robust and private aggregation for federated learning.

The geometric median of points you hold, and as an iterative secure aggregate of updates that you
never see. Aggregators are values in `rfa.aggregators`; see README.md for a start.
"""

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
