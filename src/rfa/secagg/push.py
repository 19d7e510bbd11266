"""The push of a device, computed in blocks that stay in the cache."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Floats32
from rfa.secagg.crypto.masks import keystream, stream_words

SHORT = 1 << 13
"""The numbers of a block: they stay in the cache, and no library starts threads for them."""
UNIFORM = 2.0**-32
"""The factor that turns a random word into a number from 0 to 1."""


def distance_to(update: Floats32, v: Floats32) -> float:
    """Return |w - v| in float64; v is empty for zero."""
    square = 0.0
    for start in range(0, len(update), SHORT):
        span = slice(start, start + SHORT)
        step = update[span].astype(np.float64)
        if len(v):
            step -= v[span]
        square += float(step @ step)
    return math.sqrt(square)


def length_of(push: Floats) -> float:
    """Return the length of a push."""
    pieces = (push[start : start + SHORT] for start in range(0, len(push), SHORT))
    return math.sqrt(sum(float(piece @ piece) for piece in pieces))


def fill(
    words: NDArray[np.int32], update: Floats32, v: Floats32, factor: float, rounding: bytes
) -> None:
    """Write factor * (w - v), rounded up or down at random, a block at a time."""
    stream, size = keystream(rounding), min(SHORT, len(words))
    steps, chances = np.empty(size), np.empty(size)
    for start in range(0, len(words), SHORT):
        block = words[start : start + SHORT]
        span, step = slice(start, start + len(block)), steps[: len(block)]
        np.copyto(step, update[span])
        if len(v):
            np.subtract(step, v[span], out=step)
        np.multiply(step, factor, out=step)
        chance = chances[: len(block)]
        np.multiply(stream_words(stream, len(block)), UNIFORM, out=chance)
        np.add(step, chance, out=step)
        np.floor(step, out=step)
        np.copyto(block, step, casting="unsafe")
