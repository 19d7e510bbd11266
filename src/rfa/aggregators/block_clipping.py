"""The mean of updates that are clipped block by block, each block to its own radius.

This is between the mean and the coordinate median. A device adds every block of its update, clipped
to the block's radius, and one sum gives the step

    v_b + nu_b push_b / weight,

a gradient step on Huber's loss in each block. A backdoor is a large change in few coordinates,
which is small compared with a whole update, so the single radius of the geometric median lets it
through. Here it is clipped where honest devices hardly change.

The radii are learned like `AdaptiveRadius`, one for each block. Devices vote on whether they are
within the radius, and it moves to where half of them are: the median length of the block. Votes are
sent inside the words of the push, and half of them are coins (`rfa.secagg.blocks`).

*Formal guarantees* (tests/aggregators/test_block_clipping.py): a round moves block b by at most
nu_b, and devices with a share p of the weight move it by at most p nu_b, whatever their updates
are. For any votes, a radius at most doubles in a round, and grows by at most 1.41 once it has
settled.

A device that lies inside a sum sets the total, and with it all votes. In a cohort of one part it
moves each block by nu_b, and lets radii grow by 1.41 per round for as long as it takes part, up to
3932. Groups of ten devices or more prevent this (tests/aggregators/test_block_liars.py).

    >>> from rfa import PlainOracle
    >>> rng, size, state = np.random.default_rng(0), 100, None
    >>> scales = np.where(np.arange(size) < 4, 0.0, 1.0)  # nobody honest changes the first four
    >>> aggregator = BlockClipping(size=4)
    >>> for _ in range(40):
    ...     updates = scales * rng.normal(0.3, 1.0, (20, size))
    ...     updates[:4, :4] = 5.0  # a fifth of the devices does
    ...     result, state = aggregator([PlainOracle(updates)], size, state)
    >>> bool(np.abs(result.point[:4]).max() < 1e-5 < 0.1 < result.point[4:].mean())
    True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Vector
from rfa.aggregators.base import SumAggregator, only
from rfa.errors import InvalidValueError
from rfa.oracle import RecordingOracle
from rfa.radii import (
    LEAST_RADIUS,
    PER_DOUBLING,
    TOP_LEVEL,
    Levels,
    Radii,
    check_block,
    count_blocks,
    shorten_blocks,
)

SIZE = 8
"""The default number of coordinates of a block."""
FIRST = 0.1
"""The length of all radii together in the first round."""
LONGEST = 5 * PER_DOUBLING
"""The first stride down, in levels: a factor of 32, as for one radius."""
RISE = PER_DOUBLING
"""The longest stride up: a radius at most doubles. Votes of few devices can be wrong. A radius that
is too large lets attackers in, while one that is too small costs only a few rounds."""
SETTLED = PER_DOUBLING // 2
"""The longest stride of a radius that has settled: one whose last stride was this short."""


@dataclass(frozen=True, eq=False)
class BlockRadii:
    """Learned radii: the median length of each block; empty before the first round.

    Attributes:
        levels: the level of each radius for the next round.
        strides: how far each last moved, up or down. A change of direction halves a stride. A short
            stride doubles while votes agree, since votes of few devices can be wrong.
    """

    levels: Levels = field(default_factory=lambda: np.zeros(0, np.uint8), repr=False)
    strides: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8), repr=False)

    def __eq__(self, other: object) -> bool:
        """Return whether all radii and strides are the same."""
        return (
            isinstance(other, BlockRadii)
            and np.array_equal(self.levels, other.levels)
            and np.array_equal(self.strides, other.strides)
        )

    def __hash__(self) -> int:
        """Return a hash of all radii and strides."""
        return hash((self.levels.tobytes(), self.strides.tobytes()))

    @classmethod
    def first(cls, dim: int, size: int) -> BlockRadii:
        """Return equal radii of the first length together, which have not moved."""
        count = count_blocks(dim, size)
        level = PER_DOUBLING * math.log2(FIRST / math.sqrt(count) / LEAST_RADIUS)
        levels = np.full(count, min(max(round(level), 0), TOP_LEVEL), np.uint8)
        return cls(levels, np.zeros(count, np.int8))

    def after(self, near: Floats) -> BlockRadii:
        """Return the radii after a round, given the fraction of yes votes on each block."""
        toward = np.where(near < 1 / 2, 1, -1)
        lengths = np.abs(self.strides.astype(np.int64))
        turned = toward * self.strides < 0
        longer = np.where(lengths <= SETTLED, np.minimum(2 * lengths, SETTLED), lengths)
        lengths = np.where(turned, np.maximum(lengths // 2, 1), longer)
        lengths = np.where(lengths == 0, LONGEST, lengths)
        strides = toward * np.where(toward > 0, np.minimum(lengths, RISE), lengths)
        levels = np.clip(self.levels + strides, 0, TOP_LEVEL)
        return BlockRadii(levels.astype(np.uint8), strides.astype(np.int8))


@final
@dataclass(frozen=True, kw_only=True)
class BlockClipping(SumAggregator[BlockRadii]):
    """The mean of updates that are clipped block by block, each block to a learned radius.

    *Formal guarantee*: a round moves a block by at most its radius, and devices with a share p of
    the weight move it by at most p times the radius, whatever they send.

    Attributes:
        size: the number of coordinates of a block; 1 clips every coordinate separately, and needs
            equal weights in secure sums.
    """

    size: int = SIZE

    def __post_init__(self) -> None:
        """Check the size."""
        check_block("size", self.size)

    def init(self) -> BlockRadii:
        """Return no radii: the first round decides how many there are."""
        return BlockRadii()

    @property
    def block(self) -> int:
        """The number of coordinates of a block."""
        return self.size

    @property
    def statistics(self) -> frozenset[str]:
        """The total weight, by which a mean divides."""
        return frozenset({"weight"})

    def aggregate(self, oracles: Sequence[RecordingOracle], dim: int, state: BlockRadii) -> Vector:
        """Return one step from the current model over the sum of the one part."""
        levels = (state if len(state.levels) else BlockRadii.first(dim, self.size)).levels
        radii = Radii(levels, self.size)
        total = only(oracles)(np.zeros(dim), radii)
        weight = total.need("weight")
        if not weight > 0:
            msg = f"the weight of {total.count} devices is {weight}: nothing to average"
            raise InvalidValueError(msg)
        return radii.spread(dim) * shorten_blocks(total.push / weight, self.size)

    def next_state(self, oracles: Sequence[RecordingOracle], state: BlockRadii) -> BlockRadii:
        """Return the next radii, from the votes in the last sums; the medians over parts."""
        sums = [oracle.last for oracle in oracles if oracle.last]
        shares = [total.votes / total.count for total in sums if total.votes is not None]
        if not shares:
            return state
        if not len(state.levels):
            state = BlockRadii.first(len(sums[0].push), self.size)
        return state.after(np.median(shares, axis=0))

    def certificate(self, oracle: RecordingOracle) -> float | None:
        """Return the largest share of a device in any block of the step."""
        return oracle.last.certificate() if oracle.last else None

    @property
    def min_nu(self) -> float:
        """The smallest radius of a block."""
        return LEAST_RADIUS

    def check_noise(self) -> None:
        """Raise an error: noise is scaled to a length of 1, but B blocks have up to sqrt(B).

        Raises:
            InvalidValueError: always; the message names an aggregator that works with noise.
        """
        msg = "block-clipping bounds each block of a device's input, not the whole, so that noise "
        msg += "would be as large as the square root of the blocks: take rfa-one-step"
        raise InvalidValueError(msg)
