"""The laws of draws, with and without replacement, to nearly all digits of a float.

Of a population N, of which C are marked, m are drawn; how many of these are marked is
hypergeometric, or binomial if each is put back. Differences of log-factorials lose all digits for
large N. Here their large parts are taken apart by hand, as Loader does ("Fast and accurate
computation of binomial probabilities", 2000): small numbers remain, which are added.

>>> round(tail(1, 3, 2, 6), 12), round(binomial_tail(2, 3, 0.5), 12)
(0.8, 0.5)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rfa._types import Floats

LARGEST_POPULATION = 1 << 53
"""From here on a float does not hold every count."""
_EXACT_BELOW = 16
_EXACT = np.asarray(
    [0.0, *(math.lgamma(i + 1) - i * math.log(i) + i for i in range(1, _EXACT_BELOW))], np.float64
)
_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_CLOSE, _TERMS = 0.1, 10
_CHUNK = 1 << 10
_NEGLIGIBLE = 2.0**-60


def tail(least: int, marked: int, drawn: int, population: int) -> float:
    """Return the probability of at least `least` marked ones in a draw without replacement."""
    if least <= max(0, drawn - (population - marked)):
        return 1.0
    if least > min(drawn, marked):
        return 0.0
    if least * (population + 2) > (drawn + 1) * (marked + 1):  # beyond the most likely number
        return _far_tail(least, marked, drawn, population)
    return max(0.0, 1 - _far_tail(drawn - least + 1, population - marked, drawn, population))


def first_above(
    accepted: float, least: Floats, marked: int, drawn: Floats, population: int
) -> int | None:
    """Return the index of the first of many tails that is above a probability, or None.

    A bound decides most of them: a geometric series from their first term on.
    """
    beyond = least > np.minimum(drawn, marked)
    certain = drawn - least > population - marked
    count = np.where(beyond | certain, np.maximum(0, drawn - (population - marked)), least)
    first = np.exp(_log_probability(count, marked, drawn, population))
    falls = 1 - _ratio(count, marked, drawn, population)
    bound = np.where(falls > 0, first / np.where(falls > 0, falls, 1.0), 1.0)
    bound = np.where(beyond, 0.0, np.where(certain, 1.0, bound))
    for place in np.flatnonzero(bound > accepted):
        draws = drawn[place]
        if bound[place] >= 1:
            value = tail(int(least[place]), marked, int(draws), population)
        else:
            most = int(min(draws, marked))
            value = _series(
                first[place], int(least[place]), most, _ratios(marked, draws, population)
            )
        if value > accepted:
            return int(place)
    return None


def binomial_tail(least: int, draws: int, probability: float) -> float:
    """Return the probability of at least `least` hits in independent draws."""
    if least <= 0 or probability >= 1:
        return 1.0 if least <= draws else 0.0
    if least > (draws + 1) * probability:  # beyond the most likely number
        return _far_binomial_tail(least, draws, probability)
    return max(0.0, 1 - _far_binomial_tail(draws - least + 1, draws, 1 - probability))


def deviance(count: Floats, expected: Floats) -> Floats:
    """Return count log(count / expected) + expected - count, without cancellation."""
    total, apart = count + expected, count - expected
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        v = np.where(total > 0, apart / total, 0.0)
        far = np.where(count > 0, count * np.log(count / expected), 0.0) - apart
    power, series = 2 * count * v, apart * v
    for odd in range(3, 3 + 2 * _TERMS, 2):
        power = power * v * v
        series = series + power / odd
    return np.where(np.abs(v) < _CLOSE, series, far)


def _far_tail(least: int, marked: int, drawn: int, population: int) -> float:
    """Return the tail beyond the mode, where each term is less than the one before."""
    most, draws = min(drawn, marked), np.asarray(float(drawn))
    if least > most:
        return 0.0
    first = _log_probability(np.asarray(float(least)), marked, draws, population)
    return _series(math.exp(float(first)), least, most, _ratios(marked, draws, population))


def _far_binomial_tail(least: int, draws: int, probability: float) -> float:
    """Return the tail beyond the mode."""
    if least > draws or probability <= 0:
        return 0.0
    counts = np.asarray([least, draws - least], np.float64)
    expected = draws * np.asarray([probability, 1 - probability])
    apart = (_small(counts) + deviance(counts, expected)).sum()
    first = math.exp(float(_small(np.asarray(float(draws))) - apart))
    odds = probability / (1 - probability)
    return _series(first, least, draws, lambda k: (draws - k) / (k + 1) * odds)


def _series(term: float, start: int, end: int, ratio: Callable[[Floats], Floats]) -> float:
    """Return the sum of terms from one number to another, by the ratio of successive terms."""
    total = term
    while start < end and term > _NEGLIGIBLE * total:
        counts = np.arange(start, min(end, start + _CHUNK), dtype=np.float64)
        terms = term * np.cumprod(ratio(counts))
        total, term, start = total + float(terms.sum()), float(terms[-1]), start + len(counts)
    return min(1.0, total)


def _ratio(count: Floats, marked: int, drawn: Floats, population: int) -> Floats:
    """Return the probability of one more, divided by that of this number."""
    above = (marked - count) * (drawn - count)
    return above / ((count + 1) * (population - marked - drawn + count + 1))


def _ratios(marked: int, drawn: Floats, population: int) -> Callable[[Floats], Floats]:
    return lambda count: _ratio(count, marked, drawn, population)


def _log_probability(count: Floats, marked: int, drawn: Floats, population: int) -> Floats:
    """Return the logarithm of the probability of exactly this number, which must be possible."""
    others, rest = population - marked, population - drawn
    cells = (
        (count, marked * (drawn / population)),
        (marked - count, marked * (rest / population)),
        (drawn - count, others * (drawn / population)),
        (others - drawn + count, others * (rest / population)),
    )
    sizes = (np.asarray(float(marked)), np.asarray(float(others)), drawn, rest)
    known = sum((_small(size) for size in sizes), -_small(np.asarray(float(population))))
    for cell, expected in cells:
        known = known - _small(cell) - deviance(cell, expected)
    return known


def _small(n: Floats) -> Floats:
    """Return log n! - (n log n - n): about log(2 pi n) / 2, and 0 for 0."""
    large = np.maximum(n, _EXACT_BELOW)
    series = np.zeros_like(large)
    for factor in reversed(_SERIES):
        series = series / large**2 + factor
    table = _EXACT[np.minimum(n, _EXACT_BELOW - 1).astype(np.int64)]
    return np.where(n < _EXACT_BELOW, table, series / large + np.log(2 * math.pi * large) / 2)
