"""The mean of updates that are clipped block by block, each block to a radius of its own.

Between the mean and the median of each coordinate: a device adds every block of its update, clipped
to the block's radius, and one sum gives the step

    v_b + nu_b push_b / weight,

a gradient step on Huber's loss in each block. A backdoor is a large change in few coordinates,
which is small in the whole of an update: the one radius of the geometric median lets it through.
Here it is cut where honest devices hardly change.

The radii are learned as that of `AdaptiveRadius` is, but for a radius for each block: devices vote
on whether they are within the radius, and it goes to where half of them are, the median length of
the block. Votes travel inside the words of the push, and half of them are coins
(`rfa.secagg.blocks`).

*Formal guarantees* (tests/aggregators/test_block_clipping.py): a round moves block b by at most
nu_b, and devices with a share p of the weight by at most p nu_b, whatever they send. Whatever the
votes are, a radius at most doubles in a round, and once it has settled grows by at most 1.41.

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
from rfa.aggregators.base import SumAggregator
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
"""The coordinates of a block, by default."""
FIRST = 0.1
"""The length of all radii together before anything is known."""
LONGEST = 5 * PER_DOUBLING
"""The first stride down, in levels: a factor of 32, as that of one radius."""
RISE = PER_DOUBLING
"""The longest stride up: a radius at most doubles. Votes of few devices can be wrong, and one that
is too large lets attackers in, while one that is too small costs a few rounds."""
SETTLED = PER_DOUBLING // 2
"""The longest stride of a radius that has settled: one whose stride was as short before."""


@dataclass(frozen=True, eq=False)
class BlockRadii:
    """Radii on their way to the median length of each block; empty before the first round.

    Attributes:
        levels: the level of each radius for the next round.
        strides: how far each last moved, up or down. A stride is halved at every turn; a short one
            doubles while votes agree, since those of few devices can be wrong.
    """

    levels: Levels = field(default_factory=lambda: np.zeros(0, np.uint8), repr=False)
    strides: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8), repr=False)

    def __eq__(self, other: object) -> bool:
        """Whether all radii and strides are the same."""
        return (
            isinstance(other, BlockRadii)
            and np.array_equal(self.levels, other.levels)
            and np.array_equal(self.strides, other.strides)
        )

    def __hash__(self) -> int:
        """By all radii and strides."""
        return hash((self.levels.tobytes(), self.strides.tobytes()))

    @classmethod
    def first(cls, dim: int, size: int) -> BlockRadii:
        """Equal radii of the usual length together, which have not moved."""
        count = count_blocks(dim, size)
        level = PER_DOUBLING * math.log2(FIRST / math.sqrt(count) / LEAST_RADIUS)
        levels = np.full(count, min(max(round(level), 0), TOP_LEVEL), np.uint8)
        return cls(levels, np.zeros(count, np.int8))

    def after(self, near: Floats) -> BlockRadii:
        """The radii after a round in which that fraction of the votes on each block was yes."""
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

    Attributes:
        size: the coordinates of a block; 1 clips every coordinate by itself.
    """

    size: int = SIZE

    def __post_init__(self) -> None:
        """Check the size."""
        check_block("size", self.size)

    def init(self) -> BlockRadii:
        """No radii: the first round decides how many there are."""
        return BlockRadii()

    @property
    def block(self) -> int:
        """The coordinates of a block."""
        return self.size

    @property
    def statistics(self) -> frozenset[str]:
        """A mean divides by the weights."""
        return frozenset({"weight"})

    def aggregate(self, oracles: Sequence[RecordingOracle], dim: int, state: BlockRadii) -> Vector:
        """One step from the current model over the sum of the one part."""
        (oracle,) = oracles
        levels = (state if len(state.levels) else BlockRadii.first(dim, self.size)).levels
        radii = Radii(levels, self.size)
        total = oracle(np.zeros(dim), radii)
        weight = total.need("weight")
        if not weight > 0:
            msg = f"the weight of {total.count} devices is {weight}: nothing to average"
            raise InvalidValueError(msg)
        return radii.spread(dim) * shorten_blocks(total.push / weight, self.size)

    def next_state(self, oracles: Sequence[RecordingOracle], state: BlockRadii) -> BlockRadii:
        """The next radii, by the votes of the last sums: of parts, the medians."""
        sums = [oracle.last for oracle in oracles if oracle.last]
        shares = [total.votes / total.count for total in sums if total.votes is not None]
        if not shares:
            return state
        if not len(state.levels):
            state = BlockRadii.first(len(sums[0].push), self.size)
        return state.after(np.median(shares, axis=0))

    def certificate(self, oracle: RecordingOracle) -> float | None:
        """The largest share of a device in any block of the step."""
        return oracle.last.certificate() if oracle.last else None

    @property
    def min_nu(self) -> float:
        """The smallest radius of a block."""
        return LEAST_RADIUS

    def check_noise(self) -> None:
        """Refuse noise: a push of B blocks is up to sqrt(B) long, and noise is for a length of 1.

        Raises:
            InvalidValueError: naming what goes with noise.
        """
        msg = (
            "block-clipping bounds each block of what a device adds, not the whole, so that noise "
        )
        msg += "would be as large as the square root of the blocks: take rfa-one-step"
        raise InvalidValueError(msg)
