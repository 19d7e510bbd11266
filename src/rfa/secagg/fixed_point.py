"""What a device adds to a sum, in whole numbers that cannot wrap around.

What a device adds to a sum at (v, nu) is `push`, d words of 32 bits in two's complement, and a tail
of whole numbers of 128 bits: the statistics of the table in `statistics`, and the device's metrics.
Words are in units of 1/S with

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

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Floats32
from rfa.errors import InvalidValueError
from rfa.oracle import REACH, Sum
from rfa.secagg.crypto.masks import keystream, stream_words
from rfa.secagg.errors import ImplausibleSumError, NotFiniteError, ParameterError
from rfa.secagg.messages.round import NO_BASIS, OpenRound
from rfa.secagg.statistics import (
    ALL,
    METRIC,
    STATISTICS,
    LocalFacts,
    Statistic,
    decode_all,
    encode_all,
    implausible,
    mask_of,
    rows_of,
)
from rfa.secagg.words import WORD, Words

HALF = 1 << 31
LARGEST_COHORT = (HALF - 1) // 4
"""More devices would leave no digits: the scale would be below 2."""
SHORT = 1 << 13
"""Numbers that are worked on at a time: they stay in the cache, and no library starts threads."""
_UNIFORM = 2.0**-32
_TOLD = [item.name for item in dataclasses.fields(Sum) if item.name in ALL]


@dataclass(frozen=True)
class Contribution:
    """What a device brings into a round.

    Attributes:
        update: the update w_i, d numbers of float32, not to be changed while the round lasts.
        weight: the weight alpha_i = min(N_i, cap) / cap, above 0 and at most 1.
        metrics: further numbers to be summed, each at most 2^32 in size.
        basis: the digest of what the device trained or evaluated from, 32 bytes: it joins no
            round about anything else.
        mark: the digest by which the device knows that this was in a sum before, 32 bytes; by
            default the update's own bytes are what it goes by.
        equal_weights: whether the device was told that all weigh 1, so that its weight is no
            secret: it joins rounds of equal weights then, and else none, whatever it weighs.
    """

    update: Floats32 = field(repr=False)
    weight: float = field(default=1.0, repr=False)
    metrics: tuple[float, ...] = field(default=(), repr=False)
    basis: bytes = NO_BASIS
    mark: bytes | None = None
    equal_weights: bool = False

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
        if self.equal_weights and self.weight != 1:
            msg = "with equal_weights: the weight must be exactly 1"
            raise ParameterError(msg)
        for index, metric in enumerate(self.metrics):
            if not METRIC.least <= metric <= METRIC.largest:
                msg = f"metric {index} must be a number of at most 2^32 in size"
                raise NotFiniteError(msg)
        for name, value in (
            ("basis", self.basis),
            ("mark", NO_BASIS if self.mark is None else self.mark),
        ):
            if not isinstance(value, bytes) or len(value) != len(NO_BASIS):  # pyright: ignore[reportUnnecessaryIsInstance]
                msg = f"a {name} is a digest of {len(NO_BASIS)} bytes, not {value!r}"
                raise ParameterError(msg)


@dataclass(frozen=True)
class EncodedInput:
    """What one device adds to a sum, as whole numbers: secret until it is masked."""

    words: Words = field(repr=False)
    tail: list[int] = field(repr=False)


@dataclass(frozen=True)
class Total:
    """A sum over devices, decoded.

    Attributes:
        sum: the sum at (v, nu); its push is empty in a phase without vectors.
        metrics: the sums of the metrics.
        mass: the total mass in units of 2^-96, exactly; 0 where it was not sent.
        statistics: the sums of the statistics that were sent by name, those of `sum` among them.
    """

    sum: Sum
    metrics: tuple[float, ...]
    mass: int
    statistics: Mapping[str, float]


@dataclass(frozen=True)
class Encoding:
    """The fixed point for a cohort of a given size.

    Attributes:
        cohort: the largest number n of parts in a total.
        statistics: which rows of the table of statistics travel, as bits.
        equal_weights: whether all weights are 1, so that their total is the count.
        scale: S, the units in 1.
    """

    cohort: int
    statistics: int = mask_of(ALL)
    equal_weights: bool = False
    scale: int = field(init=False)

    def __post_init__(self) -> None:
        """Prove that no total can wrap around, or refuse."""
        rows_of(self.statistics)
        if not 1 <= self.cohort <= LARGEST_COHORT:
            msg = f"a sum is over 1 to {LARGEST_COHORT} devices, not {self.cohort}"
            raise ParameterError(msg)
        object.__setattr__(self, "scale", (HALF - 1) // self.cohort - 1)
        fits = all(row.fits(self.cohort) for row in (*STATISTICS, METRIC))
        if self.cohort * (self.scale + 1) >= HALF or not fits:
            msg = f"sums over {self.cohort} devices could wrap around"
            raise ParameterError(msg)

    @classmethod
    def of(cls, opening: OpenRound, cohort: int) -> Encoding:
        """The fixed point of a round, for a cohort."""
        return cls(cohort, opening.statistics, bool(opening.equal_weights))

    @functools.cached_property
    def rows(self) -> tuple[Statistic, ...]:
        """The statistics that travel, in their order."""
        return rows_of(self.statistics)

    def mass_of(self, tail: Sequence[int]) -> int:
        """The mass in a tail, in units of 2^-96; 0 where it does not travel."""
        names = [row.name for row in self.rows]
        return tail[names.index("mass")] if "mass" in names else 0

    def encode(  # noqa: PLR0913
        self,
        contribution: Contribution,
        v: Floats32,
        nu: float,
        rounding: bytes,
        *,
        vector: bool = True,
        metrics: int | None = None,
        out: Words | None = None,
    ) -> EncodedInput:
        """What a device adds at (v, nu).

        Args:
            contribution: the device's update, weight and metrics.
            v: where it is asked, as it travels: empty for zero.
            nu: the radius, positive.
            rounding: the key of the random choices in rounding.
            vector: whether the push is asked for.
            metrics: how many of the metrics are asked for, the first ones; all by default.
            out: where the words are to be written; in memory of their own by default.
        """
        update, weight = contribution.update, contribution.weight
        distance = _distance(update, v)
        mass = weight * min(1.0, nu / distance) if distance > 0 else weight
        words = np.empty(len(update) if vector else 0, WORD) if out is None else out
        if vector:
            factor = self.scale * weight / max(nu, distance)
            _fill(words.view(np.int32), update, v, factor, rounding)
        local = LocalFacts(weight, mass, distance <= REACH * nu)
        return EncodedInput(words, encode_all(local, contribution.metrics[:metrics], self.rows))

    def decode(self, words: Words, tail: Sequence[int]) -> Total:
        """What the devices add up to, from the totals modulo 2^32 and 2^128.

        Raises:
            ImplausibleSumError: if no honest devices can have such a total.
        """
        statistics, metrics = decode_all(tail, self.rows)
        if self.equal_weights:
            statistics["weight"] = float(statistics["count"])
        told: dict[str, Any] = {name: statistics.get(name) for name in _TOLD}
        total = Sum(push=words.view(np.int32) / self.scale, **told)
        reason = implausible(statistics, self.cohort, equal=self.equal_weights)
        reason = reason or self._too_long(total)
        if reason:
            msg = f"the sum is not plausible: {reason}; some device lies, or all are far from v"
            raise ImplausibleSumError(msg)
        return Total(total, metrics, self.mass_of(tail), statistics)

    def _too_long(self, total: Sum) -> str:
        """Why a push cannot be, if it is longer than the weights allow."""
        slack = self.cohort * (math.sqrt(len(total.push)) / self.scale + 1e-9)
        length = math.sqrt(sum(float(piece @ piece) for piece in _pieces(total.push)))
        most = total.count if total.weight is None else total.weight
        return "" if length <= most + slack else f"the push is {length} long"


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


def weighs_more(mass: int, total: int, max_share: float) -> bool:
    """Whether a mass exceeds a share of the total mass, exactly."""
    return Fraction(mass) > Fraction(max_share) * total


def _distance(update: Floats32, v: Floats32) -> float:
    """|w - v| in float64, in products too short for a library to start threads for."""
    square = 0.0
    for start in range(0, len(update), SHORT):
        span = slice(start, start + SHORT)
        step = update[span].astype(np.float64)
        if len(v):
            step -= v[span]
        square += float(step @ step)
    return math.sqrt(square)


def _pieces(vector: Floats) -> Iterator[Floats]:
    return (vector[start : start + SHORT] for start in range(0, len(vector), SHORT))


def _fill(
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
        np.multiply(stream_words(stream, len(block)), _UNIFORM, out=chance)
        np.add(step, chance, out=step)
        np.floor(step, out=step)
        np.copyto(block, step, casting="unsafe")
