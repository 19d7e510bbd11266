"""Discrete Gaussian noise, by inverting its distribution on an AES stream, exact to 128 bits.

A sample X is k with a probability proportional to exp(-k^2 / (2 u^2)). With 128 random bits R it is
the least k with R < T(k), where

    T(k) = floor(2^128 P(X <= k))  for k < 0,     T(k) = 2^128 - T(-1 - k)  for others,

*Formal guarantees*, for every u up to 2048:
    the distance of the distribution to the exact one is below 2^-112 in total variation
    (test_gaussian.py::test_the_table_is_the_distribution_to_128_bits);
    X and -X are equally likely to the last bit, and every |X| is below 14 u
    (test_gaussian.py::test_the_table_is_symmetric_and_ends_before_the_reach);
    samples are those of the table (test_gaussian.py::test_samples_have_the_exact_probabilities,
    test_gaussian.py::test_samples_are_found_where_they_are_in_the_table).

The stream of a key gives the first 64 bits of one sample after the other. They decide all samples
except those that share the first 64 bits with a boundary T(k), fewer than one in 2^48. Sample i
then takes 64 more bits, the i-th of the stream whose counter starts at 2^64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from rfa._checks import check_count
from rfa.errors import InvalidValueError
from rfa.secagg.crypto.masks import keystream, stream_words

BITS, HALF = 128, 64
"""The random bits of a sample, and those that are always drawn."""
PRECISION = 256
"""The binary digits of the weights exp(-k^2 / (2 u^2)); their sums are right to more than 200."""
LOW_START = 1 << 64
"""The first counter of the last 64 bits; no stream of the first 64 bits is as long."""
LARGEST_STD = 2048
"""The largest u: samples of larger ones would not fit 16 bits."""
GUIDE_BITS = 16
"""The number of bits of a bucket; these and the next 16 bits decide most samples."""
_SHIFT = np.uint64(HALF - GUIDE_BITS)
_SEVERAL = -(1 << 15)
"""The placeholder for the samples of a bucket with several boundaries: below every sample."""

Samples = NDArray[np.int16]
Bits = NDArray[np.uint64]


@dataclass(frozen=True)
class Table:
    """The distribution of a discrete Gaussian, to be inverted.

    Attributes:
        largest: the largest sample, minus the least.
        high: the first 64 bits of the boundaries T(-largest), ..., T(largest - 1).
        low: their last 64 bits.
        start: for each bucket with at most one boundary, the sample of its least bits.
        edge: bits 17 to 32 of the boundary in a bucket; all ones if it has none.
    """

    largest: int
    high: Bits = field(repr=False)
    low: Bits = field(repr=False)
    start: Samples = field(repr=False)
    edge: NDArray[np.uint16] = field(repr=False)

    def invert(self, high: Bits, low_of: Callable[[int], int]) -> Samples:
        """Return the samples for random bits.

        Args:
            high: the first 64 bits of each sample.
            low_of: returns the last 64 bits of a sample, by its index.
        """
        bucket = (high >> _SHIFT).view(np.int64)
        after = high.view("<u2")[2::4]
        edge = self.edge.take(bucket, mode="clip")
        samples = self.start.take(bucket, mode="clip")
        np.add(samples, after > edge, out=samples)
        unsettled = np.flatnonzero((samples < -self.largest) | (after == edge))
        if len(unsettled):
            samples[unsettled] = self._search(high[unsettled], unsettled, low_of)
        return samples

    def _search(
        self, high: Bits, places: NDArray[np.intp], low_of: Callable[[int], int]
    ) -> NDArray[np.intp]:
        """Return the samples for random bits by binary search."""
        first = self.high.searchsorted(high, "left")
        last = self.high.searchsorted(high, "right")
        for each in np.flatnonzero(first < last).tolist():
            low = np.uint64(low_of(int(places[each])))
            first[each] += self.low[first[each] : last[each]].searchsorted(low, "right")
        return first - self.largest


class NoiseStream:
    """Discrete Gaussian noise from the stream of a key, for one masked sum of one device."""

    def __init__(self, std: int, key: bytes) -> None:
        """Begin a stream.

        Args:
            std: u, from 1 to 2048.
            key: the key, 16 bytes, which must have no other use.
        """
        self._table, self._key, self._stream = table_of(std), key, keystream(key)
        self._drawn = 0

    def draw(self, count: int) -> Samples:
        """Return the next samples."""
        before, self._drawn = self._drawn, self._drawn + count
        high = stream_words(self._stream, 2 * count).view("<u8")
        return self._table.invert(high, lambda place: self._low(before + place))

    def _low(self, index: int) -> int:
        """Return the last 64 bits of a sample."""
        pair, side = divmod(index, 2)
        block = keystream(self._key, LOW_START + pair).update(bytes(BITS // 8))
        return int.from_bytes(block[8 * side : 8 * side + 8], "little")


@functools.cache
def table_of(std: int) -> Table:
    """Return the table of the discrete Gaussian with parameter u, from a cache.

    Raises:
        InvalidValueError: if u is not a whole number from 1 to LARGEST_STD.
    """
    check_count("std", std)
    if std > LARGEST_STD:
        msg = f"std must be at most {LARGEST_STD}, not {std}"
        raise InvalidValueError(msg)
    boundaries = boundaries_of(std)
    high = np.array([one >> HALF for one in boundaries], np.uint64)
    low = np.array([one % (1 << HALF) for one in boundaries], np.uint64)
    begins = np.arange(1 << GUIDE_BITS, dtype=np.uint64) << _SHIFT
    first = high.searchsorted(begins, "left")
    within, largest = np.diff(first, append=len(high)), len(boundaries) // 2
    start = np.where(within > 1, _SEVERAL, first - largest).astype(np.int16)
    nearest = high[np.minimum(first, len(high) - 1)].view("<u2")[2::4]
    edge = np.where(within == 1, nearest, np.uint16(2**GUIDE_BITS - 1))
    return Table(largest, high, low, start, edge)


def boundaries_of(std: int) -> list[int]:
    """Return the boundaries T(k), in order, except those that are 0 or 2^128."""
    weights = _weights(std)
    whole = 2 * sum(weights) - weights[0]
    tails = accumulate(reversed(weights[1:]))  # from the least sample on
    lower = [below for tail in tails if (below := (tail << BITS) // whole)]
    return lower + [(1 << BITS) - below for below in reversed(lower)]


def _weights(std: int) -> list[int]:
    """Return exp(-k^2 / (2 u^2)) for k = 0, 1, ... until it is 0, in units of 2^-PRECISION.

    Each is the one before times a factor, and so is each factor, all in whole numbers.
    """
    weights, weight = list[int](), 1 << PRECISION
    factor, change = _exp_minus(2 * std * std), _exp_minus(std * std)
    while weight:
        weights.append(weight)
        weight = weight * factor >> PRECISION
        factor = factor * change >> PRECISION
    return weights


def _exp_minus(inverse: int) -> int:
    """Return exp(-1 / inverse) in units of 2^-PRECISION, by its series."""
    total, term, index = 0, 1 << PRECISION, 0
    while term:
        total += -term if index % 2 else term
        index += 1
        term //= inverse * index
    return total
