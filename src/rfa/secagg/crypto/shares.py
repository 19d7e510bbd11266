"""Shamir's secret sharing over a prime field: t shares give the secret, t - 1 tell nothing of it.

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
"""How many sets of neighboring shares are tried before all are looked at together."""
TRIES = 400
"""How many sets of shares are tried, one after another, when some are corrupted."""


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
    return [_value(coefficients, x, prime) for x in range(1, count + 1)]


def _value(coefficients: list[int], x: int, prime: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % prime
    return value


def combine(shares: Mapping[int, int], *, threshold: int) -> bytes:
    """The secret, from at least t shares by their points; which t are used is not said.

    Raises:
        BadShareError: if there are fewer than t, or what they make is no secret.
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
    """Whether bytes are two shares: what is none would be held against whoever passes it on."""
    both = (pair[:SHARE_SIZE], pair[SHARE_SIZE:])
    return all(len(share) == SHARE_SIZE and int.from_bytes(share, "big") < PRIME for share in both)


def recover(
    shares: Mapping[int, int], *, threshold: int, is_secret: Callable[[bytes], bool]
) -> tuple[bytes, Sequence[int]]:
    """The secret that passes a test, though some shares may be corrupted, and who made it.

    Of N shares, (N - t) / 2 may be; or any number, where there are few sets of t shares. The shares
    that come first are tried first.

    Raises:
        BadShareError: if there are too few shares, or none are found that make the secret.
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


def _choices(shares: Mapping[int, int], threshold: int) -> Iterator[Sequence[int]]:
    """Sets of points: the first ones, then all if they are few, else some, and what fits together.

    What fits together is found in time that is cubic in the number of shares: a few liars are found
    sooner by leaving out one stretch of the points after another.
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
    """The points of shares that lie on one polynomial, where few enough do not.

    Berlekamp and Welch: with up to e corrupted shares, there are a monic E of degree e that is zero
    at their points and a Q of degree below t + e with Q(x) = y E(x) at all points.
    """
    wrong = (len(shares) - threshold) // 2
    system = [
        [-y * pow(x, power, prime) % prime for power in range(wrong)]
        + [pow(x, power, prime) for power in range(threshold + wrong)]
        + [y * pow(x, wrong, prime) % prime]
        for x, y in shares.items()
    ]
    locator = [*_solve(system, prime)[:wrong], 1]
    return [x for x in sorted(shares) if _value(locator, x, prime)]


def _solve(system: list[list[int]], prime: int) -> list[int]:
    """A solution of linear equations, each with its right side last; what is free is zero."""
    unknowns = len(system[0]) - 1
    pivots: list[int] = []
    for column in range(unknowns):
        row = len(pivots)
        pivot_row = next((i for i in range(row, len(system)) if system[i][column]), None)
        if pivot_row is None:
            continue
        system[row], system[pivot_row] = system[pivot_row], system[row]
        inverse = pow(system[row][column], -1, prime)
        system[row] = [value * inverse % prime for value in system[row]]
        for i, other in enumerate(system):
            if i != row and (factor := other[column]):
                pairs = zip(other, system[row], strict=True)
                system[i] = [(value - factor * pivot) % prime for value, pivot in pairs]
        pivots.append(column)
    solution = [0] * unknowns
    for row, column in enumerate(pivots):
        solution[column] = system[row][-1]
    return solution


@functools.lru_cache(maxsize=4096)
def _at_zero(points: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Lagrange's factors for the value at 0 of a polynomial known at these points."""
    return tuple(_factor(point, points, prime) for point in points)


def _factor(point: int, points: tuple[int, ...], prime: int) -> int:
    above, below = 1, 1
    for other in points:
        if other != point:
            above = above * other % prime
            below = below * (other - point) % prime
    return above * pow(below, -1, prime) % prime
