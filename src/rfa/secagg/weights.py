"""Weights from numbers of examples, and what sums of such weights reveal.

A weight follows from the number of examples N and a public cap:

    examples  min(N, cap) / cap. Total weights of rounds that differ by one device reveal N.
    buckets   min(S, cap) / cap for a surrogate S of N, a power of two. Such rounds reveal S.
    equal     1, for every device that has an example. Such rounds reveal nothing.

The surrogate is the power of two below N or the one above it, and N on average. A device draws the
threshold between them once for each task. The weight depends on N through the surrogate only, so a
server that tries many caps learns the surrogate and nothing else. If devices drew a new threshold
each time, the mean of many weights would reveal N. Caps of buckets are powers of two: with other
caps, weights are not right on average.

>>> [surrogate(300, chance * 2**DIGITS // 100) for chance in (0, 17, 18, 99)]
[512.0, 512.0, 256.0, 256.0]
>>> [bucket(512.0, cap) for cap in (256.0, 1024.0, 2.0**30)]
[1.0, 0.5, 1.52587890625e-05]
"""

from __future__ import annotations

import math

EXAMPLES, BUCKETS, EQUAL = "examples", "buckets", "equal"
TELLS = {
    EXAMPLES: "rounds that differ by one node reveal how many examples it has",
    BUCKETS: "rounds that differ by one node reveal a power of two near its number of examples",
    EQUAL: "every node that has an example counts the same, so no count is revealed",
}
"""The modes of weighing, and what a server can learn from the sums of each."""
MODES = tuple(TELLS)
ONE_COORDINATE = (
    "beyond the radius it adds its weight or minus that, and weights that differ tell whose sign "
    "is which: give equal weights"
)
"""Why a block of one coordinate, which has a radius of its own, takes equal weights."""
EXAMPLE_CAP = 2.0**16
"""The most examples that count by default: more than most devices have, and few enough that a
hundred examples are not lost in the rounding of a sum."""
LEAST = 1 / EXAMPLE_CAP
"""The smallest bucket: devices with fewer examples get this weight."""
DIGITS = 56
"""The binary digits of a threshold: more than a count has, and a whole number that sqlite can
hold."""
MOST = 2.0**60
"""The largest surrogate, and the inverse of the smallest; counts beyond them are clipped."""


def lower(count: float) -> float:
    """Return the largest power of two that is no more than a count.

    >>> lower(300), lower(512), lower(0.3), lower(10**400) == MOST
    (256.0, 512.0, 0.25, True)
    """
    within = float(min(max(count, 1 / MOST), MOST))
    return math.ldexp(1.0, math.frexp(within)[1] - 1)


def surrogate(count: float, threshold: int) -> float:
    """Return one of the two powers of two around a count, which is right on average.

    Args:
        count: the number of examples, above 0.
        threshold: a random whole number below 2^DIGITS, over which the average is taken.
    """
    below = lower(count)
    above = min(count, MOST) / below - 1
    return 2 * below if above * (1 << DIGITS) > threshold else below


def bucket(stands: float, cap: float) -> float:
    """Return the weight of a device with this surrogate, for a cap that is a power of two."""
    return max(LEAST, min(stands, cap) / cap)


def cap_fault(cap: float, mode: str) -> str:
    """Return the fault of a cap for this mode, and the remedy; empty if it is valid.

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
