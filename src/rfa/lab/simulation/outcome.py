"""What comes out of the aggregation of a round."""

from __future__ import annotations

from dataclasses import dataclass

from rfa._types import Floats, Floats32
from rfa.lab.errors import LabError


@dataclass(frozen=True)
class Outcome:
    """What the server learns from a cohort, and what only the lab can know.

    Attributes:
        point: the aggregate of the updates.
        calls: calls of the secure average oracle.
        objective: the average distance of the updates from the aggregate, where it is known.
        weights: the effective weights of the updates, where there are such.
        dropped: the updates that were left out because they are not finite.
        lost: the devices that dropped out of the secure sum.
        certificate: a proven bound on the share of any one device in the last step.
        near: the fraction of the devices that the last sum counts as near, where there are sums.
    """

    point: Floats32
    calls: int
    objective: float | None = None
    weights: Floats | None = None
    dropped: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    certificate: float | None = None
    near: float | None = None


class AggregatorError(LabError):
    """An aggregator of the user's own failed; the message says where."""


class NothingToAggregateError(LabError):
    """No device of the cohort sent a finite update."""
