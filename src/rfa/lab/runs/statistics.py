"""The mean over seeds, and how far it can be trusted."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from rfa._types import Floats

USUAL = 0.975
"""The quantile behind a two-sided 95 % interval."""
MANY = 200
"""With more degrees of freedom a series around the normal law is as good to six digits."""


@dataclass(frozen=True)
class Interval:
    """A mean, and its interval by Student's law.

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


def mean_interval(values: Any, quantile: float = USUAL) -> Interval:
    """The mean of independent numbers and its interval, of 95 % where no other quantile is given.

    Numbers that are NaN make it NaN.

    >>> mean_interval([1.0, 2.0, 3.0]).high
    4.484...
    """
    numbers: Floats = np.asarray(values, np.float64)
    count = len(numbers)
    mean = float(numbers.mean()) if count else math.nan
    if count < 2:  # noqa: PLR2004
        return Interval(mean, math.nan, math.nan, count)
    reach = student(count - 1, quantile) * float(numbers.std(ddof=1)) / math.sqrt(count)
    return Interval(mean, mean - reach, mean + reach, count)


@functools.cache
def student(freedom: int, quantile: float = USUAL) -> float:
    """Return a quantile above one half of Student's distribution.

    >>> round(student(1), 3), round(student(4, 0.95), 3), round(student(30), 3)
    (12.706, 2.132, 2.042)
    """
    if freedom > MANY:
        z = NormalDist().inv_cdf(quantile)
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < quantile else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _below(angle: float, freedom: int) -> float:
    """The mass of Student's law below t = sqrt(freedom) tan(angle), as a finite sum.

    With n degrees of freedom that is a polynomial in the sine and cosine of the angle.
    """
    sine, square = math.sin(angle), math.cos(angle) ** 2
    even = freedom % 2 == 0
    term = 1.0 if even else math.cos(angle)
    total = 0.0
    for power in range(0 if even else 1, freedom - 1, 2):
        total += term
        term *= square * (power + 1) / (power + 2)
    both = sine * total if even else (angle + sine * total) * 2 / math.pi
    return (1 + both) / 2
