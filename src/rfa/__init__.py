"""rfa: robust and private aggregation for federated learning.

The geometric median of points you hold, and as an iterative secure aggregate of updates that you
never see. See README.md for a start and docs/paper-to-code.md for the way from the paper.
"""

from rfa.aggregators.accelerated import accelerated
from rfa.aggregators.adaptive_radius import Radius
from rfa.aggregators.clear import (
    Aggregate,
    Bucketing,
    Bulyan,
    CenteredClipping,
    ClearAggregator,
    CoordinateMedian,
    Krum,
    MeaMed,
    MultiKrum,
    NearestNeighborMixing,
    NormClipping,
    TrimmedMean,
)
from rfa.aggregators.summed import center_of_groups, centered_clipping, sub_cohorts
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
    "Aggregate",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "ClearAggregator",
    "CoordinateMedian",
    "InvalidTypeError",
    "InvalidValueError",
    "Krum",
    "MeaMed",
    "Median",
    "MultiKrum",
    "NearestNeighborMixing",
    "NormClipping",
    "OracleStoppedError",
    "PlainOracle",
    "PluginError",
    "Radius",
    "RecordingOracle",
    "Relative",
    "RfaError",
    "Smoothing",
    "Sum",
    "SumOracle",
    "TrimmedMean",
    "accelerated",
    "center_of_groups",
    "centered_clipping",
    "geometric_median",
    "one_step",
    "sub_cohorts",
    "weiszfeld",
]
