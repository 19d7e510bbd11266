"""How a number of examples becomes a weight, and what sums of such weights tell.

A weight follows from the share min(N, cap) / cap of the public cap:

    examples  the share itself. Total weights of rounds that differ by one device tell its count.
    buckets   a power of 1/2 beside the share, right on average, drawn once and kept. Such rounds
              tell the power.
    equal     1, for every device that has an example. There is nothing to tell.

A bucket is the power of 1/2 below the share or the one above it, by a threshold that the device
draws once. It depends on the ratio of the count to 1 + threshold alone, so whatever caps a server
tries, the count stays hidden within a factor of 2. Drawn anew each time, the mean of many buckets
would tell the share.

>>> [bucket(0.3, chance * 2**DIGITS // 10) for chance in (0, 1, 2, 9)]
[0.5, 0.5, 0.25, 0.25]
"""

from __future__ import annotations

import math

EXAMPLES, BUCKETS, EQUAL = "examples", "buckets", "equal"
TELLS = {
    EXAMPLES: "rounds that differ by one node tell how many examples it has",
    BUCKETS: "rounds that differ by one node tell a power of 1/2 near its share of the cap",
    EQUAL: "every node that has an example counts alike, and no count can be told",
}
"""The ways to weigh, and what a server can learn from the sums of each."""
MODES = tuple(TELLS)
LEAST = 2.0**-10
"""The least bucket: who has fewer examples counts as much."""
DIGITS = 56
"""Binary digits of a threshold: more than a share has, and a whole number that sqlite can hold."""


def lower(share: float) -> float:
    """The largest power of 1/2 that is no more than a share, from the least bucket on.

    >>> lower(0.3), lower(0.5), lower(2.0**-20) == LEAST
    (0.25, 0.5, True)
    """
    return max(LEAST, math.ldexp(1.0, math.frexp(share)[1] - 1))


def bucket(share: float, threshold: int) -> float:
    """One of the two powers of 1/2 around a share; right on average over all thresholds.

    Args:
        share: a share of the cap, above 0 and at most 1.
        threshold: a random whole number below 2^DIGITS.
    """
    below = lower(share)
    return 2 * below if (share / below - 1) * (1 << DIGITS) > threshold else below
