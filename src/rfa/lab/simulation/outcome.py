"""What comes out of the aggregation of a round."""

from __future__ import annotations

from dataclasses import dataclass

from rfa._types import Floats, Floats32
from rfa.errors import OracleStoppedError
from rfa.lab.errors import LabError
from rfa.privacy import Charges


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
        charges: what devices were charged for noisy sums so far, after the round; None for none.
        groups: the rows of each group that had a sum of its own, and whether its result was farther
            from the others than honest devices take it; empty where nobody asks.
    """

    point: Floats32
    calls: int
    objective: float | None = None
    weights: Floats | None = None
    dropped: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    certificate: float | None = None
    near: float | None = None
    charges: Charges | None = None
    groups: tuple[tuple[tuple[int, ...], bool], ...] = ()


class AggregatorError(LabError):
    """An aggregator of the user's own failed; the message says where."""


class NothingToAggregateError(LabError):
    """No device of the cohort sent a finite update."""


class BudgetSpentError(LabError):
    """A round would cost a device more than is left of its privacy budget; none was asked."""


class RoundStoppedError(OracleStoppedError):
    """The sums of a round gave too little; what they cost stays spent.

    Attributes:
        charges: what devices were charged for noisy sums so far; None for none.
    """

    def __init__(self, message: str, charges: Charges | None = None) -> None:
        """Say why, and what was charged."""
        super().__init__(message)
        self.charges = charges
