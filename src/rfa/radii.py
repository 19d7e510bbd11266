"""A radius for each block of coordinates: what an oracle may be asked with instead of one radius.

Blocks are of `size` coordinates that follow each other, the last one maybe of fewer; of size 1,
they are the coordinates themselves. A device at v adds to block b

    push_ib = alpha_i min(1, r_ib / nu_b) (w_ib - v_b) / r_ib     with r_ib = |w_ib - v_b|,

so that no block of its push is longer than alpha_i. A radius is a byte on a logarithmic scale:

    nu_b = 10^-6 * 2^(level_b / 8),    from 10^-6 to 3932,

which is how radii travel: a quarter of the bytes of a model for single coordinates.

>>> radii = Radii(np.array([160, 0], np.uint8), size=2)
>>> radii.values.round(3)
array([1.049, 0.   ])
>>> radii.push(np.array([0.3, 0.4, 3.0]))[0].round(3)
array([0.286, 0.381, 1.   ])
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rfa._checks import check_count, check_number
from rfa._types import Array, Floats
from rfa.errors import InvalidValueError

LEAST_RADIUS = 1e-6
"""The radius of level 0."""
PER_DOUBLING = 8
"""The levels by which a radius doubles."""
TOP_LEVEL = 255
LARGEST_BLOCK = (1 << 32) - 1
"""The most coordinates of a block, as many as an update can have."""
Levels: TypeAlias = NDArray[np.uint8]
_VALUES = LEAST_RADIUS * 2.0 ** (np.arange(TOP_LEVEL + 1) / PER_DOUBLING)


@dataclass(frozen=True, eq=False)
class Radii:
    """A radius for each block of coordinates.

    Attributes:
        levels: the level of each block, a byte each.
        size: the coordinates of a block.
    """

    levels: Levels = field(repr=False)
    size: int = 1

    def __post_init__(self) -> None:
        """Check the levels.

        Raises:
            InvalidValueError: if they are not bytes, or none.
        """
        check_block("the size of a block", self.size)
        levels: Any = self.levels
        form = getattr(levels, "dtype", None), np.ndim(levels), np.size(levels) > 0
        if form != (np.uint8, 1, True):
            msg = f"the levels of radii are a vector of uint8, one a block, not {levels!r}"
            raise InvalidValueError(msg)

    @property
    def nu(self) -> float:
        """The smallest radius."""
        return float(_VALUES[self.levels.min()])

    @property
    def values(self) -> Floats:
        """The radius of each block."""
        return _VALUES[self.levels]

    def check(self, dim: int) -> None:
        """Check that there is a radius for each block of that many coordinates.

        Raises:
            InvalidValueError: saying how many there are.
        """
        if len(self.levels) != count_blocks(dim, self.size):
            msg = f"{dim} coordinates in blocks of {self.size} have "
            msg += f"{count_blocks(dim, self.size)} radii, not {len(self.levels)}"
            raise InvalidValueError(msg)

    def spread(self, dim: int) -> Floats:
        """The radius of each coordinate: that of its block."""
        return widen(self.values, self.size, dim)

    def push(self, steps: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """What a device of weight 1 adds, and in which blocks it is within the radius.

        Args:
            steps: its update less v.
        """
        lengths, values = lengths_of(steps, self.size), self.values
        scales = np.maximum(lengths, values)
        return steps / widen(scales, self.size, len(steps)), lengths <= values

    def part(self, start: int, stop: int) -> Radii:
        """The radii of some blocks."""
        return Radii(self.levels[start:stop], self.size)


Radius: TypeAlias = float | Radii
"""What an oracle is asked with: one radius, or one for each block."""


def check_query_radius(radius: Radius, dim: int) -> None:
    """Check that a radius is positive, or that there is one for each block.

    Raises:
        InvalidValueError: naming it.
    """
    if isinstance(radius, Radii):
        radius.check(dim)
    else:
        check_number("nu", radius, positive=True)


def farthest(radius: Radius, dim: int) -> float:
    """The length of the longest step that a mean of clipped differences can make."""
    if not isinstance(radius, Radii):
        return radius
    radius.check(dim)
    return float(np.linalg.norm(radius.values))


def check_block(name: str, size: Any, *, least: int = 1) -> None:
    """Refuse a value that is no number of coordinates of a block.

    Raises:
        InvalidValueError: naming the value.
    """
    check_count(name, size, least=least)
    if size > LARGEST_BLOCK:
        msg = f"{name} must be below 2^32, not {size}: an update has no more coordinates"
        raise InvalidValueError(msg)


def count_blocks(dim: int, size: int) -> int:
    """How many blocks of a size that many coordinates have."""
    return -(-dim // size)


def widen(blocks: Array, size: int, dim: int) -> Array:
    """The value of its block for each coordinate."""
    return blocks if size == 1 else np.repeat(blocks, min(size, dim))[:dim]


def lengths_of(steps: Floats, size: int) -> Floats:
    """The length of each block of a vector."""
    if size == 1:
        return np.abs(steps)
    starts = np.arange(0, len(steps), min(size, len(steps)))
    return np.sqrt(np.add.reduceat(steps * steps, starts))


def shorten_blocks(steps: Floats, size: int) -> Floats:
    """A vector of which no block is longer than 1: longer ones are shortened to it."""
    lengths = np.maximum(lengths_of(steps, size), 1.0)
    return steps / widen(lengths, size, len(steps))
