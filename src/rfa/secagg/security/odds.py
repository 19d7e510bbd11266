"""The probability that a random order of a large cohort puts too many bad devices around one.

With n devices in random order on the ring, each with k neighbors and threshold t, three things
could go wrong. Their probabilities are bounded by hypergeometric tails and a union bound over
devices:

    opened    some device has t colluders or more among its k neighbors;
    blocked   some device has fewer than t neighbors left after the drop-outs;
    split     k/2 devices in a row are colluders or drop-outs (splitting the ring takes two such).
"""

from __future__ import annotations

import bisect
import functools
import math

FAILURE_BITS = 40
"""The least b such that a probability of 2^-b of revealing more than the sum is accepted."""
BLOCKED = 2.0**-30
"""The accepted probability that a sum cannot be opened, although few enough devices dropped out."""
LARGEST_DEGREE = 400
KEPT = 1 << 14
"""The number of cached results; a server could make a device compute many."""


@functools.lru_cache(maxsize=KEPT)
def exposed(
    cohort: int, num_colluders: int, num_dropouts: int, degree: int, threshold: int
) -> float:
    """Return a bound on the probability that a secret can be opened, or the sum split."""
    opened = _tail(cohort - 1, num_colluders, degree, threshold)
    half = degree // 2
    split = _tail(cohort, min(num_colluders + num_dropouts, cohort), half, half)
    return min(1.0, cohort * (opened + split))


@functools.lru_cache(maxsize=KEPT)
def blocked(cohort: int, num_dropouts: int, degree: int, threshold: int) -> float:
    """Return a bound on the probability that some secret can no longer be opened."""
    return min(1.0, cohort * _tail(cohort - 1, num_dropouts, degree, degree - threshold + 1))


@functools.lru_cache(maxsize=KEPT)
def smallest(
    cohort: int,
    num_colluders: int,
    num_dropouts: int,
    *,
    failure_bits: int = FAILURE_BITS,
    below: int = LARGEST_DEGREE,
) -> tuple[int, int] | None:
    """Return the smallest (k, t), with k below a bound, whose failures are acceptable, or None.

    >>> smallest(1000, 100, 100)
    (52, 28)
    """
    accepted = 2.0**-failure_bits
    for degree in range(2, min(below, LARGEST_DEGREE + 1, cohort - 1), 2):
        threshold = 2 + bisect.bisect_left(
            range(2, degree + 1),
            True,
            key=lambda t: exposed(cohort, num_colluders, num_dropouts, degree, t) <= accepted,
        )
        if threshold <= degree and blocked(cohort, num_dropouts, degree, threshold) <= BLOCKED:
            return degree, threshold
    return None


def around(count: int, marked: int, degree: int, least: int) -> float:
    """Return the probability that one of `count` devices has `least` marked neighbors or more.

    >>> round(around(8, 1, 4, 1), 3), around(8, 1, 4, 2)
    (0.571, 0.0)
    """
    return float(_tail(count - 1, min(marked, count - 1), min(degree, count - 1), least))


def _tail(population: int, marked: int, drawn: int, least: int) -> float:
    """Return the probability that `least` or more of those drawn without replacement are marked."""
    most = min(marked, drawn)
    total = _log_choose(population, drawn)
    return sum(
        math.exp(_log_choose(marked, hits) + _log_choose(population - marked, drawn - hits) - total)
        for hits in range(max(least, 0), most + 1)
        if drawn - hits <= population - marked
    )


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
