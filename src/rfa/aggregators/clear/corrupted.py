"""The number of points that an aggregator assumes to be corrupted: a count, or a fraction.

>>> from rfa.aggregators.clear.krum import Bulyan, Krum
>>> Krum(corrupted=3).count_corrupted(10), Krum(corrupted_fraction=0.25).count_corrupted(10)
(3, 3)
>>> Bulyan(corrupted_fraction=0.25).count_corrupted(10)
1
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rfa._checks import check_count, check_number
from rfa.errors import InvalidValueError

ROUNDING = 1e-9
"""By how much a fraction times a count may exceed the intended whole number: 0.07 x 100."""


@dataclass(frozen=True)
class AssumesCorrupted:
    """Adds the parameters `corrupted` and `corrupted_fraction` to an aggregator; one is set.

    Attributes:
        corrupted: the number f of points that may be corrupted, at most `max_corrupted` of them.
        corrupted_fraction: the fraction of the m points that may be corrupted, from 0 to 1. It is
            rounded up to a count, but to no more than `max_corrupted`.
    """

    corrupted: int | None = None
    corrupted_fraction: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the count or the fraction."""
        count, fraction = self.corrupted, self.corrupted_fraction
        if (count is None) == (fraction is None):
            msg = f"give one of corrupted and corrupted_fraction, not {count!r} and {fraction!r}"
            raise InvalidValueError(msg)
        if fraction is None:
            check_count("corrupted", count, least=0)
            return
        check_number("corrupted_fraction", fraction)
        if fraction > 1:
            msg = f"corrupted_fraction must be at most 1, not {fraction!r}"
            raise InvalidValueError(msg)

    @staticmethod
    def max_corrupted(m: int) -> int:
        """Return the most of m points that may be corrupted: less than half of them."""
        return (m - 1) // 2

    def count_corrupted(self, m: int) -> int:
        """Return how many of m points are assumed to be corrupted.

        Raises:
            ValueError: if the count `corrupted` is more than `max_corrupted` of m points.
        """
        limit = self.max_corrupted(m)
        if self.corrupted is None:
            return min(math.ceil((self.corrupted_fraction or 0) * m - ROUNDING), limit)
        if self.corrupted > limit:
            msg = (
                f"corrupted={self.corrupted} of {m} points is too many for "
                f"{type(self).__name__}: give at most {limit}, or more points"
            )
            raise InvalidValueError(msg)
        return self.corrupted
