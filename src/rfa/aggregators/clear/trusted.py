"""Aggregators with an update of the server's own, from clean data: FLTrust, and that update alone.

FLTrust (Cao et al. 2021) trusts updates that point in the same direction as the server's own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from rfa._checks import check_count
from rfa._types import Floats
from rfa.aggregators.clear.base import Aggregate, InPlaceAggregator, average, to_aggregate
from rfa.errors import InvalidValueError
from rfa.numerics.clustering import products
from rfa.numerics.weighted import WeightedPoints


@dataclass(frozen=True)
class HasReference(InPlaceAggregator):
    """An aggregator that needs the server's own update.

    Attributes:
        reference: the server's own update, in the form of the points, from its clean data. The lab
            trains one in each round, which replaces this value.
        examples: the number of training examples of the server in the lab; FLTrust's paper uses
            100.
    """

    set_in_rounds: ClassVar[tuple[str, ...]] = ("reference",)
    """Parameters that a run sets in each round, and a text cannot."""
    reference: Any = dataclasses.field(default=None, compare=False)
    examples: int = 100

    def __post_init__(self) -> None:
        """Check the number of examples."""
        check_count("examples", self.examples)

    def _reference(self, weighted: WeightedPoints) -> Floats:
        if self.reference is None:
            msg = f"{type(self).__name__} needs the server's own update: give it as reference"
            raise InvalidValueError(msg)
        own = weighted.points.flatten(self.reference, "reference").astype(np.float64)
        if not np.isfinite(own).all():
            msg = "reference must be finite, and is not: train it again from clean data"
            raise InvalidValueError(msg)
        return own


@final
@dataclass(frozen=True)
class FLTrust(HasReference):
    """The mean of points, scaled to the server's own update and weighted by their angle with it.

    The trust in a point is the cosine of its angle with the reference, or 0 if that is negative.
    All points are scaled to the length of the reference, and averaged by trust times weight. If no
    point is trusted, the aggregate is zero.
    """

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        own = self._reference(weighted)
        length, norms = float(np.linalg.norm(own)), np.sqrt(weighted.geometry.squared_norms)
        along = products(weighted.points, own)
        sizes = norms * length
        cosine = np.divide(along, sizes, out=np.zeros(len(norms)), where=sizes > 0)
        trust = weighted.alpha * np.clip(cosine, 0, 1)
        if not trust.any():
            return average(weighted, trust)
        rescale = np.divide(length, norms, out=np.zeros(len(norms)), where=norms > 0)
        return average(weighted, trust / trust.sum() * rescale)


@final
@dataclass(frozen=True)
class ServerAlone(HasReference):
    """The server's own update, whatever devices send.

    It is no defense, but what a defense that is given clean data must be better than.

    >>> ServerAlone(np.array([1.0, 2.0]))(np.ones((3, 2))).point
    array([1., 2.])
    """

    def _aggregate(self, weighted: WeightedPoints) -> Aggregate:
        nobody = np.zeros(weighted.points.count)
        return to_aggregate(weighted, self._reference(weighted), nobody)
