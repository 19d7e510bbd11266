"""The encoding of a device's input to a sum, as whole numbers that cannot wrap around.

At (v, nu) a device adds `push`, d words of 32 bits in two's complement, and a tail of whole numbers
of 128 bits. The tail holds the statistics of the table in `statistics` and the device's metrics.
Words are in units of 1/S with

    S = floor((2^31 - 1) / n) - 1     for n devices,

so n words of at most S + 1 each stay below 2^31. No total can wrap around, because |push_i| <=
alpha_i <= 1 for every update. In a round with noise, S is smaller, and each word gets a sample of
noise after rounding (`noise`). In a round with a radius for each block, words also hold votes
(`blocks`).

Formal guarantees (tests/secagg/test_encoding.py):
    the error of each word is at most 1/S, up to the last digits of a float64, and 0 on average;
    so the error of each coordinate of a total is at most n/S, with a standard deviation of at most
    sqrt(n) / (2 S), and about sqrt(n / 6) / S;
    a total mass is never too large, and too small by at most 2^-43 of itself and n 2^-96; a total
    of squares is never too small, and too large by at most 2^-42 of itself and n 2^-96. So
    certificates err on the safe side.

The point v is rounded to float32 before it is sent, and sums are taken at the rounded point. Zero,
where one-step RFA and secure means ask, is sent as an empty vector.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from rfa._types import Floats32
from rfa.oracle import REACH, Sum
from rfa.privacy import NoisySum
from rfa.radii import Radii, Radius
from rfa.secagg.blocks import LEAST_SCALE, fill_blocks, split_words, unlike_blocks, vote_bits
from rfa.secagg.crypto.gaussian import NoiseStream
from rfa.secagg.errors import ImplausibleSumError, NotFiniteError, ParameterError
from rfa.secagg.messages.opening import NO_BASIS, OpenRound
from rfa.secagg.noise import add_noise, decode_noisy, encode_noisy, length_slack, noisy_sum
from rfa.secagg.push import distance_to, fill, length_of
from rfa.secagg.security.parameters import Parameters
from rfa.secagg.statistics import (
    ALL,
    COUNT,
    METRIC,
    SLACK,
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
"""The largest cohort: with more devices, the scale would be below 2."""
_TOLD = [item.name for item in dataclasses.fields(Sum) if item.name in ALL]


@dataclass(frozen=True)
class Contribution:
    """The input of a device to a round.

    Attributes:
        update: the update w_i, d numbers of float32. Do not change it during the round.
        weight: the weight alpha_i = min(N_i, cap) / cap, above 0 and at most 1.
        metrics: further numbers to sum, each at most 2^32 in absolute value.
        basis: the digest of the task, model and configs that the device started from, 32 bytes. The
            device joins only rounds with this basis.
        mark: a digest by which the device recognizes that this input was in a sum before, 32 bytes;
            by default the bytes of the update.
        equal_weights: whether the device was told that all devices weigh 1, so its weight is not
            secret. The device then joins only rounds of equal weights; otherwise it joins none of
            them, even if its weight is 1.
    """

    update: Floats32 = field(repr=False)
    weight: float = field(default=1.0, repr=False)
    metrics: tuple[float, ...] = field(default=(), repr=False)
    basis: bytes = NO_BASIS
    mark: bytes | None = None
    equal_weights: bool = False

    def __post_init__(self) -> None:
        """Check that a sum can hold these values.

        Raises:
            ParameterError: if it cannot; the message contains no value, because they are secret.
        """
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
    """The input of one device to a sum, as whole numbers: secret until it is masked."""

    words: Words = field(repr=False)
    tail: list[int] = field(repr=False)


@dataclass(frozen=True)
class Total:
    """A decoded sum over devices.

    Attributes:
        sum: the sum at (v, nu); its push is empty in a phase without vectors.
        metrics: the sums of the metrics.
        mass: the total mass in units of 2^-96, exactly; 0 if it was not sent, or has noise.
        statistics: the sums of all statistics that were sent, by name.
    """

    sum: Sum
    metrics: tuple[float, ...]
    mass: int
    statistics: Mapping[str, float]


@dataclass(frozen=True)
class Encoding:
    """The fixed-point encoding for a cohort of a given size.

    Attributes:
        cohort: the largest number n of inputs in a total.
        statistics: the rows of the table of statistics that are sent, as bits.
        equal_weights: whether all weights are 1, so that their total is the count.
        noise: the scales of a round with noise; None for no noise.
        block: the number of coordinates that share a radius; 0 for one radius.
        scale: S, the number of units in 1.
    """

    cohort: int
    statistics: int = mask_of(ALL)
    equal_weights: bool = False
    noise: NoisySum | None = None
    block: int = 0
    scale: int = field(init=False)

    def __post_init__(self) -> None:
        """Prove that no total can wrap around.

        Raises:
            ParameterError: if one could.
        """
        rows_of(self.statistics)
        if not 1 <= self.cohort <= LARGEST_COHORT:
            msg = f"a sum is over 1 to {LARGEST_COHORT} devices, not {self.cohort}"
            raise ParameterError(msg)
        if self.noise:  # whose own headroom is proven
            object.__setattr__(self, "scale", self.noise.scale)
            return
        each, votes = (HALF - 1) // self.cohort, bool(self.block)
        object.__setattr__(self, "scale", (each - votes) // (1 << self.bits) - 1)
        fits = all(row.fits(self.cohort) for row in (*STATISTICS, METRIC))
        if self.block and self.scale < LEAST_SCALE:
            msg = f"votes of {self.cohort} devices leave no digits for the push: give groups"
            raise ParameterError(msg)
        if self.cohort * (((self.scale + 1) << self.bits) + votes) >= HALF or not fits:
            msg = f"sums over {self.cohort} devices could wrap around"
            raise ParameterError(msg)

    @classmethod
    def of(cls, opening: OpenRound, parameters: Parameters) -> Encoding:
        """Return the encoding of a round, for a cohort.

        Raises:
            ParameterError: if the noise of the round does not fit the cohort.
        """
        noise = noisy_sum(opening, parameters)
        equal = bool(opening.equal_weights)
        return cls(parameters.cohort, opening.statistics, equal, noise, opening.block)

    @property
    def bits(self) -> int:
        """The number of bits of a word that hold votes."""
        return vote_bits(self.cohort) if self.block else 0

    @functools.cached_property
    def rows(self) -> tuple[Statistic, ...]:
        """The statistics that are sent, in their order."""
        return rows_of(self.statistics)

    def mass_of(self, tail: Sequence[int]) -> int:
        """Return the mass in a tail, in units of 2^-96; 0 if it is not sent, or has noise."""
        names = [row.name for row in self.rows]
        return tail[names.index("mass")] if "mass" in names and not self.noise else 0

    def encode(  # noqa: PLR0913
        self,
        contribution: Contribution,
        v: Floats32,
        nu: Radius,
        rounding: bytes,
        *,
        noise: bytes | None = None,
        vector: bool = True,
        metrics: int | None = None,
        out: Words | None = None,
    ) -> EncodedInput:
        """Encode the input of a device at (v, nu).

        Args:
            contribution: the device's update, weight and metrics.
            v: the point of the query, as it is sent: empty for zero.
            nu: the radius, positive; or a radius for each block, in a round of blocks.
            rounding: the key of the random choices in rounding.
            noise: the key of the noise; required in a round with noise.
            vector: whether to encode the push.
            metrics: the number of metrics to encode, the first ones; all by default.
            out: where to write the words; a new array by default.

        Raises:
            ParameterError: if there is a key but no noise, or noise but no key.
        """
        stream = self._stream(noise)
        update, weight = contribution.update, contribution.weight
        words = np.empty(len(update) if vector else 0, WORD) if out is None else out
        if isinstance(nu, Radii):
            fill_blocks(
                words.view(np.int32),
                update,
                v,
                nu,
                factor=self.scale * weight,
                bits=self.bits,
                rounding=rounding,
            )
            local = LocalFacts(weight, weight, near=True)
            tail = encode_all(local, contribution.metrics[:metrics], self.rows)
            return EncodedInput(words, tail)
        distance = distance_to(update, v)
        mass = weight * min(1.0, nu / distance) if distance > 0 else weight
        local = LocalFacts(weight, mass, distance <= REACH * nu)
        if self.noise and stream:
            tail = encode_noisy(local, self.rows, self.noise, stream)
        else:
            tail = encode_all(local, contribution.metrics[:metrics], self.rows)
        if vector:
            # with noise, no push may be longer than S, not even in the last digit
            factor = self.scale * weight * (1 - SLACK * bool(stream)) / max(nu, distance)
            fill(words.view(np.int32), update, v, factor, rounding)
            if stream:
                add_noise(words.view(np.int32), stream)
        return EncodedInput(words, tail)

    def _stream(self, key: bytes | None) -> NoiseStream | None:
        """Return the noise of a device; None in a round without noise."""
        if (self.noise is None) != (key is None):
            msg = "a round has noise if and only if devices have a key for it"
            raise ParameterError(msg)
        return NoiseStream(self.noise.std, key) if self.noise and key else None

    def decode(self, words: Words, tail: Sequence[int]) -> Total:
        """Decode the totals of all devices, given modulo 2^32 and 2^128.

        Raises:
            ImplausibleSumError: if honest devices cannot have such a total.
        """
        statistics, metrics, exact = self._scalars(tail)
        count = int(statistics[COUNT.name])
        if self.equal_weights:
            statistics["weight"] = float(count)
        told: dict[str, Any] = {name: statistics.get(name) for name in _TOLD}
        spread = self.noise.noise_of(count) if self.noise and count > 0 else 0.0
        total = Sum(**self._vectors(words), **told, noise=spread)
        reason = implausible(exact, self.cohort, equal=self.equal_weights)
        reason = reason or self._too_long(total)
        if reason:
            msg = f"the sum is not plausible: {reason}; some device lies, or all are far from v"
            raise ImplausibleSumError(msg)
        return Total(total, metrics, self.mass_of(tail), statistics)

    def _scalars(
        self, tail: Sequence[int]
    ) -> tuple[dict[str, float], tuple[float, ...], dict[str, float]]:
        """Return the totals of the statistics, those of the metrics, and all that are exact."""
        if not self.noise:
            statistics, metrics = decode_all(tail, self.rows)
            return statistics, metrics, statistics
        statistics = decode_noisy(tail, self.rows, self.noise)
        return statistics, (), {COUNT.name: statistics[COUNT.name]}

    def _vectors(self, words: Words) -> dict[str, Any]:
        """Return the push, and the votes where there are blocks."""
        if not self.block:
            return {"push": words.view(np.int32) / self.scale}
        units, votes = split_words(words, self.bits, self.block)
        return {"push": units / self.scale, "votes": votes}

    def _too_long(self, total: Sum) -> str:
        """Return why a push is impossible: it is longer than the weights and the noise allow."""
        if self.block:
            longest = min(self.block, len(total.push))
            slack = self.cohort * (math.sqrt(longest) / self.scale + 1e-9)
            return unlike_blocks(total, self.block, slack)
        slack = self.cohort * (math.sqrt(len(total.push)) / self.scale + 1e-9)
        if self.noise:
            slack += length_slack(self.noise, total.count, len(total.push))
        length = length_of(total.push)
        most = total.count if total.weight is None else total.weight
        return "" if length <= most + slack else f"the push is {length} long"
