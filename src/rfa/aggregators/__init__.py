"""Aggregators as values: private ones on sums, clear ones on updates.

    RFA(budget=3)   OneStepRFA()   Mean(clip_norm=100.0)   CenteredClipping()
    BlockClipping(size=8)   SubCohorts(RFA(budget=3))   Groups(RFA(budget=3), 7)   Groups(Mean(), 7)

A private aggregator is a `SumAggregator`: it gets oracles, never updates. Aggregators that see
single updates are in `rfa.aggregators.clear`. `build` makes either kind from a text.
"""

from rfa.aggregators.adaptive_radius import AdaptiveRadius
from rfa.aggregators.base import Layout, Result, SumAggregator
from rfa.aggregators.block_clipping import BlockClipping
from rfa.aggregators.clear import ClearAggregator
from rfa.aggregators.clipping import CenteredClipping, Mean
from rfa.aggregators.partition import Groups, SubCohorts
from rfa.aggregators.registry import build, spec_of
from rfa.aggregators.rfa import RFA, OneStepRFA

__all__ = [
    "RFA",
    "AdaptiveRadius",
    "BlockClipping",
    "CenteredClipping",
    "ClearAggregator",
    "Groups",
    "Layout",
    "Mean",
    "OneStepRFA",
    "Result",
    "SubCohorts",
    "SumAggregator",
    "build",
    "spec_of",
]
