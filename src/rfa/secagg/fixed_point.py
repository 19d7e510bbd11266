"""What a device adds to a sum, in whole numbers that cannot wrap around.

A device's part of a sum at (v, nu) is `push`, d words of 32 bits in two's complement, and a tail of
whole numbers of 128 bits: the mass, its square, the weight, whether the update is near v, a one,
and the device's metrics. Words are in units of 1/S with

    S = floor((2^31 - 1) / n) - 1     for n devices,

so that n words of at most S + 1 each stay below 2^31: no total can wrap around, because
|push_i| <= alpha_i <= 1 whatever the update is.

Formal guarantees (tests/secagg/test_encoding.py):
    each word is off by at most 1/S, up to the last digits of a float64, and right on average;
    so each coordinate of a total is off by at most n/S, with a standard deviation of at most
    sqrt(n) / (2 S), and about sqrt(n / 6) / S;
    a total mass is never too large, and too small by at most 2^-43 of itself and n 2^-96; a total
    of squares never too small, and too large by at most 2^-42 of itself and n 2^-96: certificates
    err to the safe side.

The point v is rounded to float32 first, and sums are at the rounded one: that is what travels.
Zero, where one-step RFA and secure means ask, travels as an empty vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Floats32
from rfa.errors import InvalidValueError
from rfa.oracle import REACH, Sum
from rfa.secagg.crypto.masks import BLOCK, TAIL, WORD, Words, keystream, stream_words
from rfa.secagg.errors import ImplausibleSumError, NotFiniteError, ParameterError

HALF = 1 << 31
LARGEST_COHORT = (HALF - 1) // 4
"""More devices would leave no digits: the scale would be below 2."""
FRACTION = 96
"""Binary digits after the point of masses, squares and weights, which are at most 1."""
METRIC_FRACTION = 64
LARGEST_METRIC = 2.0**32
"""The largest metric, so that a million devices cannot wrap around."""
MASS, SQUARE, WEIGHT, NEAR, COUNT, METRICS = range(6)
"""The places of the tail; metrics follow."""
SHORT = 1 << 13
_UNIFORM = 2.0**-32
_SLACK = 2.0**-44
"""More than the rounding errors of a mass, in parts of it, for up to a thousand million numbers."""


@dataclass(frozen=True)
class Contribution:
    """What a device brings into a round.

    Attributes:
        update: the update w_i, d numbers of float32, not to be changed while the round lasts.
        weight: the weight alpha_i = min(N_i, cap) / cap, above 0 and at most 1.
        metrics: further numbers to be summed, each at most 2^32 in size.
    """

    update: Floats32 = field(repr=False)
    weight: float = field(default=1.0, repr=False)
    metrics: tuple[float, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Refuse what no sum can hold. The message holds none of it: it is the device's secret."""
        form = (getattr(self.update, "dtype", None), np.ndim(self.update), np.size(self.update) > 0)
        if form != (np.float32, 1, True):
            kind, shape = type(self.update).__name__, np.shape(self.update)
            msg = f"an update is a numpy vector of float32, not {kind} of {form[0]} {shape}"
            raise ParameterError(msg)
        if not all(isinstance(value, Real) for value in (self.weight, *self.metrics)):
            msg = "a weight and metrics are numbers"
            raise ParameterError(msg)
        if not np.isfinite(self.update).all():
            msg = "the update is not finite: the device abstains"
            raise NotFiniteError(msg)
        if not 0 < self.weight <= 1:
            msg = "a weight must be above 0 and at most 1: divide by the public cap"
            raise ParameterError(msg)
        for index, metric in enumerate(self.metrics):
            if not abs(metric) <= LARGEST_METRIC:
                msg = f"metric {index} must be a number of at most 2^32 in size"
                raise NotFiniteError(msg)


@dataclass(frozen=True)
class Part:
    """What one device adds to a sum: secret until it is masked."""

    words: Words = field(repr=False)
    tail: list[int] = field(repr=False)


@dataclass(frozen=True)
class Total:
    """A sum over devices, decoded.

    Attributes:
        sum: the sum at (v, nu); its push is empty in a phase without vectors.
        metrics: the sums of the metrics.
        mass: the total mass in units of 2^-96, exactly.
    """

    sum: Sum
    metrics: tuple[float, ...]
    mass: int


@dataclass(frozen=True)
class Encoding:
    """The fixed point for a cohort of a given size.

    Attributes:
        cohort: the largest number n of parts in a total.
        scale: S, the units in 1.
    """

    cohort: int
    scale: int = field(init=False)

    def __post_init__(self) -> None:
        """Prove that no total can wrap around, or refuse."""
        if not 1 <= self.cohort <= LARGEST_COHORT:
            msg = f"a sum is over 1 to {LARGEST_COHORT} devices, not {self.cohort}"
            raise ParameterError(msg)
        object.__setattr__(self, "scale", (HALF - 1) // self.cohort - 1)
        if self.cohort * (self.scale + 1) >= HALF:
            msg = f"{self.cohort} words of {self.scale + 1} would wrap around"
            raise ParameterError(msg)

    def part(
        self, mine: Contribution, v: Floats32, nu: float, rounding: bytes, *, vector: bool = True
    ) -> Part:
        """What a device adds at (v, nu).

        Args:
            mine: the device's update, weight and metrics.
            v: where it is asked, as it travels: empty for zero.
            nu: the radius, positive.
            rounding: the key of the random choices in rounding.
            vector: whether the push is asked for.
        """
        distance = _distance(mine.update, v)
        mass = mine.weight * min(1.0, nu / distance) if distance > 0 else mine.weight
        words = np.empty(len(mine.update) if vector else 0, WORD)
        if vector:
            factor = self.scale * mine.weight / max(nu, distance)
            _fill(words.view(np.int32), mine.update, v, factor, rounding)
        return Part(words, _tail(mine, mass, near=distance <= REACH * nu))

    def total(self, words: Words, tail: Sequence[int]) -> Total:
        """What the devices add up to, from the totals modulo 2^32 and 2^128.

        Raises:
            ImplausibleSumError: if no honest devices can have such a total.
        """
        numbers = [value - TAIL if value >= TAIL // 2 else value for value in tail]
        unit = 1 << FRACTION
        found = Sum(
            push=words.view(np.int32) / self.scale,
            mass=numbers[MASS] / unit,
            weight=numbers[WEIGHT] / unit,
            near=numbers[NEAR],
            count=numbers[COUNT],
            squares=numbers[SQUARE] / unit,
        )
        self._check(found)
        metrics = tuple(value / (1 << METRIC_FRACTION) for value in numbers[METRICS:])
        return Total(found, metrics, numbers[MASS])

    def _check(self, found: Sum) -> None:
        """Sanity: what holds for every sum of parts that are as they should be."""
        slack = self.cohort * (math.sqrt(len(found.push)) / self.scale + 1e-9)
        length = math.sqrt(sum(float(piece @ piece) for piece in _pieces(found.push)))
        mass, weight = found.mass, found.weight
        holds = {
            f"the count is {found.count} of {self.cohort}": 1 <= found.count <= self.cohort,
            f"the mass is {mass} of {weight}": 0 < mass <= weight + 1e-9,
            f"the weight is {weight} of {found.count}": 0 < weight <= found.count + 1e-9,
            f"{found.near} of {found.count} are near": 0 <= found.near <= found.count,
            f"the squares are {found.squares}": 0 < found.squares <= mass + 1e-9,
            f"the push is {length} long": length <= weight + slack,
        }
        wrong = [text for text, fine in holds.items() if not fine]
        if wrong:
            msg = f"the sum is not plausible: {wrong[0]}; some device lies, or all are far from v"
            raise ImplausibleSumError(msg)


def as_sent(v: Any, dim: int) -> Floats32:
    """A point as it travels: rounded to float32, and empty if it is zero.

    Raises:
        ValueError: if it is not a vector of numbers that float32 can hold.
    """
    with np.errstate(over="ignore"):
        sent = np.asarray(v).astype("<f4")
    if sent.shape != (dim,) or not np.isfinite(sent).all():
        msg = f"v must be {dim} finite numbers that float32 can hold, and has shape {sent.shape}"
        raise InvalidValueError(msg)
    return sent if sent.any() else sent[:0]


def weighs_more(mass: int, total: int, limit: float) -> bool:
    """Whether a mass exceeds a share of the total mass, exactly."""
    return Fraction(mass) > Fraction(limit) * total


def _distance(update: Floats32, v: Floats32) -> float:
    """|w - v| in float64, in products too short for a library to start threads for."""
    square = 0.0
    for start in range(0, len(update), SHORT):
        place = slice(start, start + SHORT)
        step = update[place].astype(np.float64)
        if len(v):
            step -= v[place]
        square += float(step @ step)
    return math.sqrt(square)


def _pieces(vector: Floats) -> Iterator[Floats]:
    return (vector[start : start + SHORT] for start in range(0, len(vector), SHORT))


def _fill(
    words: NDArray[np.int32], update: Floats32, v: Floats32, factor: float, rounding: bytes
) -> None:
    """Write factor * (w - v), rounded up or down at random, a block at a time."""
    stream, size = keystream(rounding), min(BLOCK, len(words))
    steps, chances = np.empty(size), np.empty(size)
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        place, step = slice(start, start + len(block)), steps[: len(block)]
        np.copyto(step, update[place])
        if len(v):
            np.subtract(step, v[place], out=step)
        np.multiply(step, factor, out=step)
        chance = chances[: len(block)]
        np.multiply(stream_words(stream, len(block)), _UNIFORM, out=chance)
        np.add(step, chance, out=step)
        np.floor(step, out=step)
        np.copyto(block, step, casting="unsafe")


def _tail(mine: Contribution, mass: float, *, near: bool) -> list[int]:
    """The whole numbers of a device: the mass rounded down, its square rounded up."""
    low = int(math.ldexp(mass * (1 - _SLACK), FRACTION))
    high = math.ceil(math.ldexp((mass * (1 + _SLACK)) ** 2, FRACTION))
    weight = int(math.ldexp(mine.weight, FRACTION))
    metrics = [round(math.ldexp(metric, METRIC_FRACTION)) % TAIL for metric in mine.metrics]
    return [low, high, weight, int(near), 1, *metrics]
