"""Shamir's secret sharing over a prime field: t shares give the secret, t - 1 reveal nothing.

>>> shares = split(bytes(31) + b"!", count=5, threshold=3)
>>> combine({1: shares[0], 4: shares[3], 5: shares[4]}, threshold=3)[-1:]
b'!'
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from rfa.secagg.errors import BadShareError, ParameterError

PRIME = 2**256 + 297
"""The smallest prime above 2^256, so that every 32 bytes are an element."""
SHARE_SIZE = 33
SECRET_SIZE = 32
STRETCHES = 16
"""The number of sets of neighboring shares to try before decoding all shares together."""
BLOCK = 16
"""The number of coefficients of a polynomial between two reductions."""
TRIES = 400
"""The number of sets of shares to try, one after another, when some are corrupted."""


def split(
    secret: bytes, *, count: int, threshold: int, entropy: Callable[[int], bytes] = os.urandom
) -> list[int]:
    """Split a secret: return the values of a random polynomial at 1, 2, ..., count.

    Its degree is t - 1, and its value at 0 is the secret.

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
    """Return the values of a polynomial at 1, ..., count."""
    return [_value(coefficients, x, prime) for x in range(1, count + 1)]


def _value(coefficients: list[int], x: int, prime: int) -> int:
    """Return the value at x by Horner's method, reduced once per block, since points are small."""
    value, power = 0, x**BLOCK
    for start in range((len(coefficients) - 1) // BLOCK * BLOCK, -1, -BLOCK):
        part = 0
        for coefficient in reversed(coefficients[start : start + BLOCK]):
            part = part * x + coefficient
        value = (value * power + part) % prime
    return value


def combine(shares: Mapping[int, int], *, threshold: int) -> bytes:
    """Return the secret from at least t shares, by their points; it may use any t of them.

    Raises:
        BadShareError: if there are fewer than t, or they do not give a secret.
    """
    if len(shares) < threshold:
        msg = f"{len(shares)} shares are too few: {threshold} are needed"
        raise BadShareError(msg)
    points = tuple(sorted(shares)[:threshold])
    factors = _at_zero(points, PRIME)
    value = sum(factor * shares[x] for factor, x in zip(factors, points, strict=True)) % PRIME
    if value >= 2 ** (8 * SECRET_SIZE):
        msg = f"{threshold} shares do not fit together"
        raise BadShareError(msg)
    return value.to_bytes(SECRET_SIZE, "big")


def are_shares(pair: bytes) -> bool:
    """Return whether bytes are two valid shares.

    A holder that passed on invalid ones would be blamed for them.
    """
    both = (pair[:SHARE_SIZE], pair[SHARE_SIZE:])
    return all(len(share) == SHARE_SIZE and int.from_bytes(share, "big") < PRIME for share in both)


def recover(
    shares: Mapping[int, int], *, threshold: int, is_secret: Callable[[bytes], bool]
) -> tuple[bytes, Sequence[int]]:
    """Return the secret that passes a test, and the points of the shares that gave it.

    Some shares may be corrupted: (N - t) / 2 of N shares, or any number where there are few sets of
    t shares. The first shares are tried first.

    Raises:
        BadShareError: if there are too few shares, or no set of them gives the secret.
    """
    for chosen in _choices(shares, threshold):
        try:
            secret = combine({x: shares[x] for x in chosen}, threshold=threshold)
        except BadShareError:
            if len(shares) < threshold:
                raise
            continue
        if is_secret(secret):
            return secret, chosen
    msg = f"no {threshold} of {len(shares)} shares make the secret that was committed to"
    raise BadShareError(msg)


def borne(count: int, threshold: int) -> int:
    """Return how many corrupted shares `recover` surely tolerates, of `count` shares.

    >>> borne(6, 3), borne(100, 40), borne(2, 3)
    (3, 30, 0)
    """
    spare = max(0, count - threshold)
    return spare if math.comb(count, threshold) <= TRIES else spare // 2


def _choices(shares: Mapping[int, int], threshold: int) -> Iterator[Sequence[int]]:
    """Yield sets of points: the first ones, then all sets if they are few.

    Otherwise yield stretches of neighboring points from several starts, and at last the shares that
    fit together. Finding those takes time quadratic in the number of shares, and stretches find a
    few liars sooner.
    """
    points = list(shares)
    yield points[:threshold]
    if math.comb(len(points), threshold) <= TRIES:
        yield from itertools.combinations(points, threshold)
        return
    for start in range(0, len(points), max(1, len(points) // STRETCHES)):
        yield (points[start:] + points[:start])[:threshold]
    yield fitting(shares, threshold, PRIME)


def fitting(shares: Mapping[int, int], threshold: int, prime: int) -> list[int]:
    """Return the points of the shares on one polynomial; empty if too many are not on it.

    This is Gao's decoder, quadratic in the number N of shares: run Euclid's algorithm on the
    product of all x - x_i and the polynomial through all shares until the degree is below (N + t) /
    2. If up to (N - t) / 2 shares are corrupted, the remainder divided by its cofactor is the
    polynomial.
    """
    product, through = _interpolate(shares, prime)
    before, now = product, through
    cofactor_before: list[int] = []
    cofactor = [1]
    while 2 * (len(now) - 1) >= len(shares) + threshold:
        quotient, rest = _divide(before, now, prime)
        before, now = now, rest
        cofactor_before, cofactor = (
            cofactor,
            _less_product(cofactor_before, quotient, cofactor, prime),
        )
    polynomial, rest = _divide(now, cofactor, prime)
    if rest or len(polynomial) > threshold:
        return []
    return [x for x in sorted(shares) if _value(polynomial, x, prime) == shares[x]]


def misfits(shares: Mapping[int, int], chosen: Sequence[int]) -> list[int]:
    """Return the points of shares that are not on the polynomial through the chosen ones."""
    _, polynomial = _interpolate({x: shares[x] for x in chosen}, PRIME)
    return [x for x in shares if _value(polynomial, x, PRIME) != shares[x]]


def _interpolate(shares: Mapping[int, int], prime: int) -> tuple[list[int], list[int]]:
    """Return the product of all x - x_i, and the polynomial through all shares, by Newton."""
    points, slopes = list(shares), list(shares.values())

    @functools.cache
    def inverse(step: int) -> int:
        return pow(step, -1, prime)

    for order in range(1, len(points)):
        for i in range(len(points) - 1, order - 1, -1):
            step = inverse(points[i] - points[i - order])
            slopes[i] = (slopes[i] - slopes[i - 1]) * step % prime
    product, through = [1], [0] * len(points)
    for point, slope in zip(points, slopes, strict=True):
        for power, factor in enumerate(product):
            through[power] = (through[power] + slope * factor) % prime
        longer = zip([0, *product], [*product, 0], strict=True)
        product = [(above - point * here) % prime for above, here in longer]
    return product, _trimmed(through)


def _divide(above: list[int], below: list[int], prime: int) -> tuple[list[int], list[int]]:
    """Return quotient and remainder of two polynomials, as lists from the constant on."""
    rest, inverse = list(above), pow(below[-1], -1, prime)
    quotient = [0] * max(0, len(above) - len(below) + 1)
    for shift in range(len(quotient) - 1, -1, -1):
        factor = rest.pop() * inverse % prime
        quotient[shift] = factor
        if factor:
            for power, value in enumerate(below[:-1], shift):
                rest[power] = (rest[power] - factor * value) % prime
    return quotient, _trimmed(rest)


def _less_product(first: list[int], left: list[int], right: list[int], prime: int) -> list[int]:
    """Return a polynomial minus the product of two others."""
    result = first + [0] * (len(left) + len(right) - 1 - len(first))
    for shift, factor in enumerate(left):
        for power, value in enumerate(right, shift):
            result[power] = (result[power] - factor * value) % prime
    return _trimmed(result)


def _trimmed(polynomial: list[int]) -> list[int]:
    """Return a polynomial without leading zeros."""
    while polynomial and not polynomial[-1]:
        polynomial.pop()
    return polynomial


@functools.lru_cache(maxsize=4096)
def _at_zero(points: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Return Lagrange's factors for the value at 0 of a polynomial known at these points."""
    return tuple(_factor(point, points, prime) for point in points)


def _factor(point: int, points: tuple[int, ...], prime: int) -> int:
    above, below = 1, 1
    for other in points:
        if other != point:
            above = above * other % prime
            below = below * (other - point) % prime
    return above * pow(below, -1, prime) % prime
