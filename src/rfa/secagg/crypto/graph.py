"""The graph of devices that share masks: a circulant graph on the cohort in its random order.

Every device derives the graph from the list of the cohort; nobody sends it. With k neighbors, k/2
on each side of the ring, the graph stays connected after any k - 1 devices are removed. Then the
masks let only the sum over the rest through.
"""

from __future__ import annotations

import functools

KEPT = 64
"""The number of cached graphs; the server decides which ones there are."""


@functools.lru_cache(maxsize=KEPT)
def offsets(cohort: int, degree: int) -> tuple[int, ...]:
    """Return the positions of a device's neighbors, relative to its own along the ring."""
    if degree == cohort - 1:
        return tuple(range(1, cohort))
    half = degree // 2
    return tuple(range(-half, 0)) + tuple(range(1, half + 1))


def neighbors(position: int, cohort: int, degree: int) -> list[int]:
    """Return the neighbors of the device at a position, in the order in which they hold its shares.

    >>> neighbors(0, 7, 4)
    [5, 6, 1, 2]
    """
    return [(position + offset) % cohort for offset in offsets(cohort, degree)]


def rank(holder: int, dealer: int, cohort: int, degree: int) -> int:
    """Return which of the dealer's shares a neighbor holds, counted from 1."""
    offset = (holder - dealer) % cohort
    if degree != cohort - 1 and offset > degree // 2:
        offset -= cohort
    return _ranks(cohort, degree)[offset]


@functools.lru_cache(maxsize=KEPT)
def _ranks(cohort: int, degree: int) -> dict[int, int]:
    return {offset: index + 1 for index, offset in enumerate(offsets(cohort, degree))}
