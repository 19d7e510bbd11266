"""Exact (epsilon, delta) by direct summation, which the accounting must not be below."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rfa._types import Floats


def discrete_gaussian(std: float, reach: int = 14) -> Floats:
    """The probabilities of a discrete Gaussian from -reach std to reach std."""
    k = np.arange(-math.ceil(reach * std), math.ceil(reach * std) + 1, dtype=np.float64)
    weights = np.exp(-(k**2) / (2 * std**2))
    return weights / weights.sum()


def summed(single: Floats, count: int) -> Floats:
    """The probabilities of the sum of so many independent samples."""
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, single)
    return total


def shifted(probabilities: Floats, by: int) -> tuple[Floats, Floats]:
    """A distribution and the same moved by whole units, on one grid."""
    pad = np.zeros(abs(by))
    pair = np.concatenate([probabilities, pad]), np.concatenate([pad, probabilities])
    return pair if by >= 0 else (pair[1], pair[0])


def product(pairs: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Independent coordinates together, flat."""
    first, second = np.ones(1), np.ones(1)
    for p, q in pairs:
        first, second = np.outer(first, p).ravel(), np.outer(second, q).ravel()
    return first, second


def delta_of(p: Floats, q: Floats, epsilon: float) -> float:
    """The delta at an epsilon, whichever of two worlds is the true one."""
    grown = math.exp(epsilon)
    return max(float(np.maximum(0, p - grown * q).sum()), float(np.maximum(0, q - grown * p).sum()))


def epsilon_at(p: Floats, q: Floats, delta: float) -> float:
    """The least epsilon at a delta."""
    low, high = 0.0, 64.0
    for _ in range(26):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(p, q, middle) <= delta else (middle, high)
    return high


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The delta of Gaussian noise where one device moves the sum by mu standard deviations."""
    upper = math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) / 2
    lower = math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
    return upper - (math.exp(epsilon + math.log(lower)) if lower else 0.0)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon of the same at a delta."""
    low, high = 0.0, 5000.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(middle, mu) <= delta else (middle, high)
    return high
