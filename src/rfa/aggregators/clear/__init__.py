"""Aggregators that see single updates, and say so in their type.

Those that the paper compares with, and defenses from later work; each module names its papers. All
are values that are called with points and weights, and `ClearAggregator` says how to add yours.
"""

from rfa.aggregators.clear.base import Aggregate, ClearAggregator
from rfa.aggregators.clear.clipping import CenteredClipping, NormClipping
from rfa.aggregators.clear.coordinatewise import CoordinateMedian, MeaMed, TrimmedMean
from rfa.aggregators.clear.corrupted import AssumesCorrupted
from rfa.aggregators.clear.krum import Bulyan, Krum, MultiKrum
from rfa.aggregators.clear.mixed_median import MixedMedian
from rfa.aggregators.clear.mixing import Bucketing, InnerAggregator, NearestNeighborMixing

__all__ = [
    "Aggregate",
    "AssumesCorrupted",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "ClearAggregator",
    "CoordinateMedian",
    "InnerAggregator",
    "Krum",
    "MeaMed",
    "MixedMedian",
    "MultiKrum",
    "NearestNeighborMixing",
    "NormClipping",
    "TrimmedMean",
]
