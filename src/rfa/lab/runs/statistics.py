"""The mean over seeds, and how far it can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rfa._types import Floats

NORMAL = 1.959964
"""The 97.5 % quantile of the normal law."""
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The same of Student's law with 1 to 30 degrees of freedom."""


@dataclass(frozen=True)
class Interval:
    """A mean, and its 95 % interval by Student's law.

    Attributes:
        mean: the mean.
        low: where the interval begins; NaN for a single number.
        high: where it ends; NaN for a single number.
        count: how many numbers there are.
    """

    mean: float
    low: float
    high: float
    count: int


def mean_interval(values: Any) -> Interval:
    """The mean of independent numbers and its 95 % interval; numbers that are NaN make it NaN.

    >>> mean_interval([1.0, 2.0, 3.0]).high
    4.484...
    """
    numbers: Floats = np.asarray(values, np.float64)
    count = len(numbers)
    mean = float(numbers.mean()) if count else math.nan
    if count < 2:  # noqa: PLR2004
        return Interval(mean, math.nan, math.nan, count)
    reach = student(count - 1) * float(numbers.std(ddof=1)) / math.sqrt(count)
    return Interval(mean, mean - reach, mean + reach, count)


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's law with so many degrees of freedom."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
