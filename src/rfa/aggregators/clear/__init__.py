"""Aggregators that see single updates, as their type says.

These are the baselines of the paper and defenses from later work; each module names its papers. All
are values that are called with points and weights. `ClearAggregator` says how to write your own.
"""

from rfa.aggregators.clear.base import Aggregate, ClearAggregator
from rfa.aggregators.clear.clipping import CenteredClipping, NormClipping
from rfa.aggregators.clear.coordinatewise import CoordinateMedian, MeaMed, TrimmedMean
from rfa.aggregators.clear.corrupted import AssumesCorrupted
from rfa.aggregators.clear.krum import Bulyan, Krum, MultiKrum
from rfa.aggregators.clear.mixed_median import MixedMedian
from rfa.aggregators.clear.mixing import Bucketing, InnerAggregator, NearestNeighborMixing
from rfa.aggregators.clear.randomized import Randomized
from rfa.aggregators.clear.similarity import FLAME, SignGuard
from rfa.aggregators.clear.spectral import DnC
from rfa.aggregators.clear.trusted import FLTrust, ServerAlone

__all__ = [
    "FLAME",
    "Aggregate",
    "AssumesCorrupted",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "ClearAggregator",
    "CoordinateMedian",
    "DnC",
    "FLTrust",
    "InnerAggregator",
    "Krum",
    "MeaMed",
    "MixedMedian",
    "MultiKrum",
    "NearestNeighborMixing",
    "NormClipping",
    "Randomized",
    "ServerAlone",
    "SignGuard",
    "TrimmedMean",
]
