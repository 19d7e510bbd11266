"""The encoding of a device's input in a round with a radius for each block of coordinates.

The high bits of a word hold a coordinate of the push. The low bits of the first word of a block
hold the device's vote: whether it is within the radius of that block. With n devices and B = 2^bits
> n a word is

    B q + vote,    |q| <= S + 1,    with  S = floor((floor((2^31 - 1) / n) - 1) / B) - 1,

so n words stay below 2^31 and no total can wrap around. There are at most n < B votes, so they
never reach the coordinates. The votes cost no further bytes.

*Formal guarantees* (tests/secagg/test_blocks.py, test_block_attacks.py): a vote is a fair coin
with probability 1/2, and the truth otherwise. So each vote of a device has probability at least
1/4, whatever its update, and no count of votes proves anything about a device: to an observer who
knows everything but the coins, a count over h honest devices reveals at most log 3 about one of
them, and 0.8 / h on average. Counts of several blocks and rounds add up. Half of the coins say yes,
so half of the votes are yes exactly where half of the devices are within the radius. Coins cover
the votes only; the push is exact. In a block of one coordinate, a device beyond the radius adds its
weight or minus its weight, so there the weights must be equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Floats32
from rfa.errors import InvalidValueError
from rfa.oracle import Sum
from rfa.radii import Radii, Radius, check_query_radius, lengths_of
from rfa.secagg.crypto.masks import keystream, stream_words
from rfa.secagg.errors import NotCanonicalError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import SumRequest
from rfa.secagg.push import SHORT, UNIFORM
from rfa.secagg.statistics import rows_of
from rfa.secagg.weights import ONE_COORDINATE
from rfa.secagg.words import Words

NAMES = frozenset({"weight", "count"})
"""The totals that are sent in rounds of blocks, beside the push."""
LEAST_SCALE = 16
"""The smallest scale: that of a cohort of about 8,000 devices."""


def block_fault(opening: OpenRound) -> str:
    """Return which option excludes a radius for each block, and the remedy; empty if none does."""
    if not opening.block:
        return ""
    names = {row.name for row in rows_of(opening.statistics)}
    single = (opening.dim - 1) % opening.block == 0  # at least the last block has one coordinate
    faults = [
        (opening.queries > 1, f"{opening.queries} queries: a round has one, so give queries=1"),
        (
            opening.max_share,
            f"max_share={opening.max_share:g} needs the mass, which is absent: give max_share=0",
        ),
        (
            opening.noise,
            "noise is for a push that is clipped as a whole: take rfa-one-step, or no noise",
        ),
        (names - NAMES, f"the totals {sorted(names - NAMES)} need one radius"),
        (single and not opening.equal_weights, _remedy(opening.dim, opening.block)),
    ]
    why = next((why for wrong, why in faults if wrong), "")
    return f"a radius for each block of {opening.block}: {why}" if why else ""


def _remedy(dim: int, block: int) -> str:
    """What to do about a block of one coordinate and weights that differ."""
    other = next((size for size in range(block + 1, dim + 1) if (dim - 1) % size), dim)
    blocks = f", or blocks of {other}" if dim > 1 else ""
    return f"of {dim} coordinates one is a block by itself: {ONE_COORDINATE}{blocks}"


def sent_radius(opening: OpenRound, radius: Radius) -> tuple[float, bytes]:
    """Return a radius as it is sent: the number, and the levels of blocks.

    Raises:
        InvalidValueError: if the blocks of the round are different.
    """
    check_query_radius(radius, opening.dim)
    size = radius.size if isinstance(radius, Radii) else 0
    if size != opening.block:
        msg = f"the round is opened with block={opening.block}, and asked with radii of blocks of "
        raise InvalidValueError(msg + f"{size} (0 for one radius): give the same to both")
    return (radius.nu, radius.levels.tobytes()) if isinstance(radius, Radii) else (radius, b"")


def asked_radius(opening: OpenRound, request: SumRequest) -> Radius:
    """Return the radius that a request gives to a device.

    Raises:
        NotCanonicalError: if the request does not fit the round.
    """
    if not opening.block and not request.levels:
        return request.nu
    try:
        radii = Radii(np.frombuffer(request.levels, np.uint8), opening.block)
        radii.check(opening.dim)
    except InvalidValueError as error:
        msg = f"the radii of blocks of {opening.block}: {error}"
        raise NotCanonicalError(msg) from None
    if radii.nu != request.nu:
        msg = f"the smallest radius of all blocks is {radii.nu}, but the request says {request.nu}"
        raise NotCanonicalError(msg)
    return radii


def vote_bits(cohort: int) -> int:
    """Return the number of bits of a word that the votes of a block take."""
    return cohort.bit_length()


def fill_blocks(  # noqa: PLR0913
    words: NDArray[np.int32],
    update: Floats32,
    v: Floats32,
    radii: Radii,
    *,
    factor: float,
    bits: int,
    rounding: bytes,
) -> None:
    """Write a device's push and votes, some blocks at a time.

    Args:
        words: where to write them.
        update: the device's update.
        v: the point of the query; empty for zero.
        radii: the radii.
        factor: the number of units in a push of length 1.
        bits: the number of bits that the votes take.
        rounding: the key of the random choices.
    """
    stream, size = keystream(rounding), radii.size
    some = max(1, SHORT // size)
    for start in range(0, len(radii.levels), some):
        span = slice(start * size, (start + some) * size)
        steps = update[span].astype(np.float64)
        if len(v):
            steps -= v[span]
        push, near = radii.part(start, start + some).push(steps)
        random = stream_words(stream, len(steps))
        units = np.floor(push * factor + random * UNIFORM).astype(np.int32)
        block = units << bits
        block[::size] += _votes(near, random[::size])
        words[span] = block


def _votes(near: NDArray[np.bool_], random: Words) -> NDArray[np.int32]:
    """Return the votes of a device: the truth or a coin, by the last two random bits.

    The rounding takes the first bits, which are independent of these.
    """
    coins = (random & 2) > 0
    return np.where(random & 1, coins, near).astype(np.int32)


def split_words(words: Words, bits: int, size: int) -> tuple[NDArray[np.int32], Floats]:
    """Return the units of the push, and the votes of each block, of a total."""
    total = words.view(np.int32)
    votes = total[::size] & ((1 << bits) - 1)
    return total >> bits, votes.astype(np.float64)


def unlike_blocks(total: Sum, size: int, slack: float) -> str:
    """Return why honest devices cannot have such a total, block by block; empty if they can."""
    most = total.count if total.weight is None else total.weight
    longest = float(lengths_of(total.push, size).max())
    if longest > most + slack:
        return f"a block of the push is {longest} long"
    if total.votes is not None and total.votes.max() > total.count:
        return f"{total.votes.max():.0f} of {total.count} devices vote on a block"
    return ""
