"""Who shares masks with whom: a circulant graph on the cohort in the order of its keys.

Every device derives the graph from the list of the cohort; nobody is told it. With k neighbors,
k/2 on each side of the ring, the graph stays connected when any k - 1 devices are taken away: the
sum over the rest is then all that the masks let through.
"""

from __future__ import annotations

import functools

KEPT = 64
"""Graphs that are remembered: which ones there are is the server's to say."""


@functools.lru_cache(maxsize=KEPT)
def offsets(cohort: int, degree: int) -> tuple[int, ...]:
    """Where the neighbors of a device stand, counted from it along the ring."""
    if degree == cohort - 1:
        return tuple(range(1, cohort))
    half = degree // 2
    return tuple(range(-half, 0)) + tuple(range(1, half + 1))


def neighbors(position: int, cohort: int, degree: int) -> list[int]:
    """The neighbors of the device at a position, in the order in which they hold its shares.

    >>> neighbors(0, 7, 4)
    [5, 6, 1, 2]
    """
    return [(position + offset) % cohort for offset in offsets(cohort, degree)]


def rank(holder: int, dealer: int, cohort: int, degree: int) -> int:
    """Which of the dealer's shares a neighbor holds, from 1."""
    offset = (holder - dealer) % cohort
    if degree != cohort - 1 and offset > degree // 2:
        offset -= cohort
    return _ranks(cohort, degree)[offset]


@functools.lru_cache(maxsize=KEPT)
def _ranks(cohort: int, degree: int) -> dict[int, int]:
    return {offset: index + 1 for index, offset in enumerate(offsets(cohort, degree))}
