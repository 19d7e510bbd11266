"""Discrete Gaussian noise: its table against exact numbers, and its samples against the table."""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_right
from decimal import Decimal, localcontext

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from rfa.privacy.noisy_sum import LARGEST_STD, LEAST_STD, REACH_OF_NOISE
from rfa.secagg.crypto.gaussian import BITS, NoiseStream, boundaries_of, table_of

KEY = bytes(range(16))
STDS = [LEAST_STD, 32, 64, 128, 256, 512, 1024, LARGEST_STD]
WHOLE = 1 << BITS
DIGITS = 110
"""Of the numbers that the table is compared with."""


@functools.cache
def cumulative(std: int) -> list[Decimal]:
    """2^128 P(X <= -k) for k = 1, 2, ..., with the exponential of the decimal module."""
    with localcontext() as context:
        context.prec = DIGITS
        weights = [(-Decimal(k * k) / Decimal(2 * std * std)).exp() for k in range(1, 20 * std)]
        tails: list[Decimal] = []
        tail = Decimal(0)
        for weight in reversed(weights):
            tail += weight
            tails.append(tail)
        return [each / (2 * tail + 1) * WHOLE for each in reversed(tails)]


@pytest.mark.parametrize("std", [LEAST_STD, 100, LARGEST_STD])
def test_the_table_is_the_distribution_to_128_bits(std: int) -> None:
    """Each boundary below the middle is the exact one, rounded down."""
    found, exact = boundaries_of(std), cumulative(std)
    half = len(found) // 2
    with localcontext() as context:
        context.prec = DIGITS
        assert [int(each) for each in exact[:half]] == found[half - 1 :: -1]
        assert exact[half] < 1, "nothing is left out"


@pytest.mark.parametrize("std", STDS)
def test_the_table_is_symmetric_and_ends_before_the_reach(std: int) -> None:
    found = boundaries_of(std)
    assert [WHOLE - each for each in reversed(found)] == found
    assert found == sorted(found)
    assert found[0] > 0
    assert found[-1] < WHOLE
    assert len(found) // 2 < REACH_OF_NOISE * std


@pytest.mark.parametrize("std", [LEAST_STD, LARGEST_STD])
def test_the_whole_is_that_of_the_theta_function(std: int) -> None:
    """By Poisson's formula the weights add up to u sqrt(2 pi), but for e^(-2 pi^2 u^2)."""
    found = boundaries_of(std)
    half = len(found) // 2
    middle = (found[half] - found[half - 1]) / WHOLE  # P(X = 0)
    assert middle == pytest.approx(1 / (std * math.sqrt(2 * math.pi)), rel=1e-15)


def invert(std: int, bits: list[int]) -> list[int]:
    """Samples of 128 bits each, as the library makes them."""
    high = np.array([each >> 64 for each in bits], np.uint64)
    return table_of(std).invert(high, lambda place: bits[place] % (1 << 64)).tolist()


def by_hand(std: int, bits: list[int]) -> list[int]:
    boundaries = boundaries_of(std)
    return [bisect_right(boundaries, each) - len(boundaries) // 2 for each in bits]


@pytest.mark.parametrize("std", STDS)
def test_samples_are_found_where_they_are_in_the_table(std: int) -> None:
    """At and beside boundaries, where 64 bits do not settle them; in the tails; and anywhere."""
    rng = np.random.default_rng(std)
    boundaries = boundaries_of(std)
    some = [*boundaries[:40], *boundaries[-40:], *boundaries[:: max(1, len(boundaries) // 300)]]
    bits = [each + move for each in some for move in (-1, 0, 1)]
    bits += [0, 1, WHOLE - 1, WHOLE - 2, 1 << 64, (1 << 64) - 1, WHOLE // 2, WHOLE // 2 - 1]
    bits += [int.from_bytes(rng.bytes(16), "little") for _ in range(2000)]
    bits = [each for each in bits if 0 <= each < WHOLE]
    assert invert(std, bits) == by_hand(std, bits)


def test_the_first_and_the_last_sample_are_as_far_as_the_table_goes() -> None:
    for std in STDS:
        assert invert(std, [0, WHOLE - 1]) == [-table_of(std).largest, table_of(std).largest]


def test_a_stream_takes_its_second_bits_from_where_it_says() -> None:
    """The i-th 64 bits of the stream whose counter starts at 2^64."""
    stream = NoiseStream(LEAST_STD, KEY)
    start = (1 << 64).to_bytes(16, "big")
    wanted = Cipher(algorithms.AES128(KEY), modes.CTR(start)).encryptor().update(bytes(80))
    found = [stream._low(index) for index in range(10)]  # pyright: ignore[reportPrivateUsage]
    assert found == np.frombuffer(wanted, "<u8").tolist()


def test_samples_do_not_depend_on_how_they_are_drawn() -> None:
    whole = NoiseStream(100, KEY).draw(5000)
    pieces = NoiseStream(100, KEY)
    assert np.array_equal(whole, np.concatenate([pieces.draw(n) for n in (1, 1, 7, 4000, 991)]))
    first = Cipher(algorithms.AES128(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(40_000))
    assert whole.tolist() == by_hand(
        100, [int(each) << 64 for each in np.frombuffer(first, "<u8")]
    ), "the first bits of samples are those of the stream, and no second ones were needed"


def test_another_key_is_other_noise() -> None:
    one, other = (NoiseStream(LARGEST_STD, key).draw(100_000) for key in (KEY, bytes(16)))
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(len(one))


def probabilities(std: int) -> NDArray[np.float64]:
    """P(X = k) for k from -largest to largest."""
    boundaries = [0, *boundaries_of(std), WHOLE]
    pairs = itertools.pairwise(boundaries)
    return np.array([(above - below) / WHOLE for below, above in pairs])


def chi_square(samples: NDArray[np.int64], chances: NDArray[np.float64], width: int) -> float:
    """How many standard deviations the chi-square of samples is away from its mean.

    Args:
        samples: whole numbers from minus the largest on.
        chances: the probability of each.
        width: how many numbers go together; and all of fewer than 20 expected at each end.
    """
    largest = len(chances) // 2
    counts = np.bincount(samples + largest, minlength=len(chances))
    cuts = np.arange(0, len(chances), width)
    seen, wanted = np.add.reduceat(counts, cuts), len(samples) * np.add.reduceat(chances, cuts)
    common = np.flatnonzero(wanted >= 20)
    first, last = common[0], common[-1] + 1
    seen = np.array([seen[:first].sum(), *seen[first:last], seen[last:].sum()])
    wanted = np.array([wanted[:first].sum(), *wanted[first:last], wanted[last:].sum()])
    seen, wanted = seen[wanted > 1], wanted[wanted > 1]
    found = float(((seen - wanted) ** 2 / wanted).sum())
    degrees = len(wanted) - 1
    return (found - degrees) / math.sqrt(2 * degrees)


@pytest.mark.parametrize(("std", "width"), [(LEAST_STD, 1), (LARGEST_STD, 1), (LARGEST_STD, 97)])
def test_samples_have_the_exact_probabilities(std: int, width: int) -> None:
    samples = NoiseStream(std, KEY).draw(2_000_000).astype(np.int64)
    assert abs(chi_square(samples, probabilities(std), width)) < 4


def test_the_chi_square_finds_a_distribution_that_is_a_percent_too_wide() -> None:
    samples = NoiseStream(101, KEY).draw(2_000_000).astype(np.int64)
    chances = probabilities(100)
    inside = samples[np.abs(samples) <= len(chances) // 2]
    assert chi_square(inside, chances, 1) > 6


@pytest.mark.parametrize("std", [LEAST_STD, 256, LARGEST_STD])
def test_samples_have_the_moments(std: int) -> None:
    count = 2_000_000
    scaled = NoiseStream(std, KEY).draw(count) / std
    assert abs(scaled.mean()) < 4 / math.sqrt(count)
    assert abs((scaled**2).mean() - 1) < 4 * math.sqrt(2 / count)
    assert abs((scaled**3).mean()) < 4 * math.sqrt(15 / count)
    assert abs((scaled**4).mean() - 3) < 4 * math.sqrt(96 / count)
    neighbors = (scaled[1:] * scaled[:-1]).mean()
    assert abs(neighbors) < 4 / math.sqrt(count)


@pytest.mark.parametrize("std", [LEAST_STD, LARGEST_STD])
@pytest.mark.parametrize("away", [2, 3, 4])
def test_samples_are_as_often_in_the_tails(std: int, away: int) -> None:
    count = 2_000_000
    samples = NoiseStream(std, bytes(16)).draw(count)
    chances = probabilities(std)
    numbers = np.arange(len(chances)) - len(chances) // 2
    wanted = count * chances[np.abs(numbers) >= away * std].sum()
    seen = (np.abs(samples) >= away * std).sum()
    assert abs(seen - wanted) < 4 * math.sqrt(wanted)


def test_shares_of_devices_add_up_to_one_discrete_gaussian() -> None:
    """Of u = 16 already: what nine devices add is as good as one of three times the width."""
    key = [bytes([device]) * 16 for device in range(9)]
    total = sum(NoiseStream(LEAST_STD, each).draw(1_000_000).astype(np.int64) for each in key)
    assert isinstance(total, np.ndarray)
    chances = probabilities(3 * LEAST_STD)
    assert abs(chi_square(total, chances, 1)) < 4
    assert abs((total / (3 * LEAST_STD)).var() - 1) < 4 * math.sqrt(2 / len(total))
