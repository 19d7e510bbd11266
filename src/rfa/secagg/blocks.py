"""What a device adds where there is a radius for each block of coordinates, in the same words.

A word holds a coordinate of the push above, and in the first word of a block the device's vote
below: whether it is within the radius there. With n devices and B = 2^bits > n a word is

    B q + vote,    |q| <= S + 1,    with  S = floor((floor((2^31 - 1) / n) - 1) / B) - 1,

so that n of them stay below 2^31: no total can wrap around, and the votes, of which there are at
most n < B, never reach the coordinates. So radii are learned for the bytes of a model.

*Formal guarantees* (tests/secagg/test_blocks.py, test_block_attacks.py): a vote is a fair coin
with probability 1/2, and else the truth. So no count of votes is proof of what any device has in a
block: whatever it has, its vote is either with probability 1/4 at least. Of h honest devices, a
count tells at most log 3 of one, and 0.8 / h on average, to who knows all but coins; counts of
several blocks and rounds add up. Half of the coins say yes, so that half of the votes are yes just
where half of the devices are within the radius. Coins cover the votes and not the push, which is
exact: beyond the radius a device adds to a block of one coordinate its weight or minus that, so
there weights must be equal.
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
"""The totals that travel beside blocks."""
LEAST_SCALE = 16
"""The fewest units in 1: that of a cohort of some 8,000 devices."""


def block_fault(opening: OpenRound) -> str:
    """What does not go with a radius for each block, and the remedy; empty if all does."""
    if not opening.block:
        return ""
    names = {row.name for row in rows_of(opening.statistics)}
    single = (opening.dim - 1) % opening.block == 0  # at least the last block has one coordinate
    faults = [
        (opening.queries > 1, f"{opening.queries} queries: a round has one, so give queries=1"),
        (
            opening.max_share,
            f"no mass is summed, which max_share={opening.max_share:g} is of: give max_share=0",
        ),
        (
            opening.noise,
            "noise is for a push that is clipped as a whole: take rfa-one-step, or no noise",
        ),
        (names - NAMES, f"the totals {sorted(names - NAMES)} are of one radius"),
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
    """A radius as it travels: the number, and the levels of blocks.

    Raises:
        InvalidValueError: if the round is of other blocks.
    """
    check_query_radius(radius, opening.dim)
    size = radius.size if isinstance(radius, Radii) else 0
    if size != opening.block:
        msg = f"the round is opened with block={opening.block}, and asked with radii of blocks of "
        raise InvalidValueError(msg + f"{size} (0 for one radius): let both be the same")
    return (radius.nu, radius.levels.tobytes()) if isinstance(radius, Radii) else (radius, b"")


def asked_radius(opening: OpenRound, request: SumRequest) -> Radius:
    """The radius that a device is asked with.

    Raises:
        NotCanonicalError: if it is none of such a round.
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
        msg = f"the smallest radius of all blocks is {radii.nu}, and is said to be {request.nu}"
        raise NotCanonicalError(msg)
    return radii


def vote_bits(cohort: int) -> int:
    """How many bits of a word the votes of a block take."""
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
        words: where they are written.
        update: the device's update.
        v: where it is asked; empty for zero.
        radii: the radii.
        factor: what a push of length 1 is in units.
        bits: how many bits the votes take.
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
    """What a device says of its blocks: the truth, or a coin, by the last two random bits.

    The rounding takes the first bits, on which these have no bearing.
    """
    coins = (random & 2) > 0
    return np.where(random & 1, coins, near).astype(np.int32)


def split_words(words: Words, bits: int, size: int) -> tuple[NDArray[np.int32], Floats]:
    """The units of the push, and the votes of each block, in a total."""
    total = words.view(np.int32)
    votes = total[::size] & ((1 << bits) - 1)
    return total >> bits, votes.astype(np.float64)


def unlike_blocks(total: Sum, size: int, slack: float) -> str:
    """What no sum of honest devices can be, block by block; empty if there is nothing."""
    most = total.count if total.weight is None else total.weight
    longest = float(lengths_of(total.push, size).max())
    if longest > most + slack:
        return f"a block of the push is {longest} long"
    if total.votes is not None and total.votes.max() > total.count:
        return f"{total.votes.max():.0f} of {total.count} devices vote on a block"
    return ""
