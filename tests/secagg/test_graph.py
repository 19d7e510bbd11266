"""The graph of masks: symmetric, regular, and connected whoever is taken away."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.secagg.crypto.graph import neighbors, rank


def degrees(cohort: int) -> list[int]:
    """The degrees that parameters may have."""
    return [*range(2, cohort - 1, 2), cohort - 1]


def shapes(most: int) -> list[tuple[int, int]]:
    return [(cohort, degree) for cohort in range(3, most + 1) for degree in degrees(cohort)]


def is_connected(left: set[int], cohort: int, degree: int) -> bool:
    if not left:
        return True
    seen, waiting = set[int](), [min(left)]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += [other for other in neighbors(one, cohort, degree) if other in left]
    return seen == left


@pytest.mark.parametrize(("cohort", "degree"), shapes(14))
def test_every_device_has_k_neighbors_and_they_have_it(cohort: int, degree: int) -> None:
    for one in range(cohort):
        around = neighbors(one, cohort, degree)
        assert len(set(around)) == len(around) == degree
        assert one not in around
        assert all(one in neighbors(other, cohort, degree) for other in around)


@given(st.integers(3, 200), st.data())
def test_a_rank_is_the_place_among_the_neighbors(cohort: int, data: st.DataObject) -> None:
    degree = data.draw(st.sampled_from(degrees(cohort)))
    dealer = data.draw(st.integers(0, cohort - 1))
    around = neighbors(dealer, cohort, degree)
    ranks = [rank(holder, dealer, cohort, degree) for holder in around]
    assert ranks == list(range(1, degree + 1))


@pytest.mark.parametrize(("cohort", "degree"), shapes(9))
def test_no_k_minus_1_devices_split_the_graph(cohort: int, degree: int) -> None:
    everyone = set(range(cohort))
    for gone in itertools.combinations(range(cohort), degree - 1):
        assert is_connected(everyone - set(gone), cohort, degree)


@pytest.mark.parametrize(("cohort", "degree"), [(7, 4), (9, 6), (9, 2), (30, 6)])
def test_some_k_devices_do_split_it(cohort: int, degree: int) -> None:
    gone = set(neighbors(0, cohort, degree))
    assert not is_connected(set(range(cohort)) - gone, cohort, degree)


def test_no_k_minus_1_of_30_devices_split_the_graph() -> None:
    """Scattered ones, and ones next to each other around two places."""
    draw = random.Random(3)  # noqa: S311
    for degree in (2, 6, 10, 16):
        for _ in range(100):
            scattered = draw.sample(range(30), degree - 1)
            at, part = draw.randrange(30), draw.randrange(degree)
            gap = draw.randrange(1, 15)
            near = [(at + i) % 30 for i in range(part)]
            far = [(at + part + gap + i) % 30 for i in range(degree - 1 - part)]
            for gone in (scattered, near + far):
                assert is_connected(set(range(30)) - set(gone), 30, degree)
