"""Shamir's secret sharing over a prime field: t shares give the secret, t - 1 tell nothing of it.

>>> shares = split(bytes(31) + b"!", count=5, threshold=3)
>>> combine({1: shares[0], 4: shares[3], 5: shares[4]}, threshold=3)[-1:]
b'!'
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping

from rfa.secagg.errors import BadShareError, ParameterError

PRIME = 2**256 + 297
"""The smallest prime above 2^256, so that every 32 bytes are an element."""
SHARE_SIZE = 33
SECRET_SIZE = 32
TRIES = 400
"""How many sets of shares are tried when some are corrupted."""


def split(
    secret: bytes, *, count: int, threshold: int, entropy: Callable[[int], bytes] = os.urandom
) -> list[int]:
    """The values at 1, 2, ... of a random polynomial of degree t - 1 that is the secret at 0.

    Formal guarantee: any t - 1 of the values are uniform and independent of the secret, up to a
    bias of 2^-127 for each coefficient.
    """
    if len(secret) != SECRET_SIZE or not 1 <= threshold <= count:
        msg = f"cannot split {len(secret)} bytes into {count} shares of which {threshold} suffice"
        raise ParameterError(msg)
    wide = 48
    drawn = entropy(wide * (threshold - 1))
    coefficients = [
        int.from_bytes(drawn[wide * index : wide * (index + 1)], "big") % PRIME
        for index in range(threshold - 1)
    ]
    return evaluate([int.from_bytes(secret, "big"), *coefficients], count, PRIME)


def evaluate(coefficients: list[int], count: int, prime: int) -> list[int]:
    """The values of a polynomial at 1, ..., count."""
    values: list[int] = []
    for x in range(1, count + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % prime
        values.append(value)
    return values


def combine(shares: Mapping[int, int], *, threshold: int) -> bytes:
    """The secret, from at least t shares by their places; which t are used is not said.

    Raises:
        BadShareError: if there are fewer than t, or what they make is no secret.
    """
    if len(shares) < threshold:
        msg = f"{len(shares)} shares are too few: {threshold} are needed"
        raise BadShareError(msg)
    places = tuple(sorted(shares))[:threshold]
    factors = _at_zero(places, PRIME)
    value = sum(factor * shares[x] for factor, x in zip(factors, places, strict=True)) % PRIME
    if value >= 2 ** (8 * SECRET_SIZE):
        msg = f"{threshold} shares do not fit together"
        raise BadShareError(msg)
    return value.to_bytes(SECRET_SIZE, "big")


def recover(
    shares: Mapping[int, int], *, threshold: int, is_secret: Callable[[bytes], bool]
) -> bytes:
    """The secret that passes a test, though some of the shares may be corrupted.

    Raises:
        BadShareError: if there are too few shares, or no set that was tried makes the secret.
    """
    for chosen in _choices(tuple(sorted(shares)), threshold):
        try:
            secret = combine({x: shares[x] for x in chosen}, threshold=threshold)
        except BadShareError:
            if len(shares) < threshold:
                raise
            continue
        if is_secret(secret):
            return secret
    msg = f"no {threshold} of {len(shares)} shares make the secret that was committed to"
    raise BadShareError(msg)


def _choices(places: tuple[int, ...], threshold: int) -> Iterator[tuple[int, ...]]:
    """Sets of t places: the first ones, then all if they are few, else scattered ones."""
    yield places[:threshold]
    if math.comb(len(places), threshold) <= TRIES:
        yield from itertools.combinations(places, threshold)
        return
    for attempt in range(TRIES):
        yield tuple(sorted(sorted(places, key=functools.partial(_scatter, attempt))[:threshold]))


def _scatter(attempt: int, place: int) -> bytes:
    return hashlib.sha256(b"%d/%d" % (attempt, place)).digest()


@functools.lru_cache(maxsize=4096)
def _at_zero(places: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Lagrange's factors for the value at 0 of a polynomial known at these places."""
    return tuple(_factor(place, places, prime) for place in places)


def _factor(place: int, places: tuple[int, ...], prime: int) -> int:
    above, below = 1, 1
    for other in places:
        if other != place:
            above = above * other % prime
            below = below * (other - place) % prime
    return above * pow(below, -1, prime) % prime
