"""How a number of examples becomes a weight, and what sums of such weights tell.

A weight follows from the number of examples N and a public cap:

    examples  min(N, cap) / cap. Total weights of rounds that differ by one device tell N.
    buckets   min(S, cap) / cap for a surrogate S of N, a power of two. Such rounds tell S.
    equal     1, for every device that has an example. There is nothing to tell.

The surrogate is the power of two below N or the one above it, right on average, by a threshold
that a device draws once for each task. The weight depends on N by the surrogate alone, so whatever
caps a server tries, it learns the surrogate and nothing more. Drawn anew each time, the mean of
many would tell N. Caps of buckets are powers of two: at others, weights are not right on average.

>>> [surrogate(300, chance * 2**DIGITS // 100) for chance in (0, 17, 18, 99)]
[512.0, 512.0, 256.0, 256.0]
>>> [bucket(512.0, cap) for cap in (256.0, 1024.0, 2.0**30)]
[1.0, 0.5, 1.52587890625e-05]
"""

from __future__ import annotations

import math

EXAMPLES, BUCKETS, EQUAL = "examples", "buckets", "equal"
TELLS = {
    EXAMPLES: "rounds that differ by one node tell how many examples it has",
    BUCKETS: "rounds that differ by one node tell a power of two beside its number of examples",
    EQUAL: "every node that has an example counts alike, and no count can be told",
}
"""The ways to weigh, and what a server can learn from the sums of each."""
MODES = tuple(TELLS)
ONE_COORDINATE = (
    "beyond the radius it adds its weight or minus that, and weights that differ tell whose sign "
    "is which: give equal weights"
)
"""Why a block of one coordinate, which has a radius of its own, takes equal weights."""
EXAMPLE_CAP = 2.0**16
"""The most examples that count by default: more than most devices have, and few enough that a
hundred are not lost in the rounding of a sum."""
LEAST = 1 / EXAMPLE_CAP
"""The least bucket: who has fewer examples counts as much."""
DIGITS = 56
"""Binary digits of a threshold: more than a count has, and a whole number that sqlite can hold."""
MOST = 2.0**60
"""The largest surrogate, and one over the least: beyond them, counts are taken for these."""


def lower(count: float) -> float:
    """The largest power of two that is no more than a count.

    >>> lower(300), lower(512), lower(0.3), lower(10**400) == MOST
    (256.0, 512.0, 0.25, True)
    """
    within = float(min(max(count, 1 / MOST), MOST))
    return math.ldexp(1.0, math.frexp(within)[1] - 1)


def surrogate(count: float, threshold: int) -> float:
    """One of the two powers of two around a count; right on average over all thresholds.

    Args:
        count: how many examples there are, more than none.
        threshold: a random whole number below 2^DIGITS.
    """
    below = lower(count)
    above = min(count, MOST) / below - 1
    return 2 * below if above * (1 << DIGITS) > threshold else below


def bucket(stands: float, cap: float) -> float:
    """The weight of a device with this surrogate, where caps are powers of two."""
    return max(LEAST, min(stands, cap) / cap)


def cap_fault(cap: float, mode: str) -> str:
    """What is wrong with a cap for this way to weigh, and the remedy; empty if nothing is.

    >>> cap_fault(1000.0, BUCKETS)
    "weights='buckets' take a cap (example_cap) that is a power of two, not 1000: give 1024"
    """
    if mode != BUCKETS or cap == lower(cap):
        return ""
    remedy = min(2 * lower(cap), MOST)
    return (
        f"weights={mode!r} take a cap (example_cap) that is a power of two, not {cap:g}: give "
        f"{remedy:.12g}"
    )
