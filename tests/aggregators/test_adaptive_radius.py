"""The radius that is learned from bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rfa.aggregators.adaptive_radius import MAX_NU, AdaptiveRadius
from rfa.aggregators.base import MIN_NU

Floats = NDArray[np.float64]


def learned(distances: Floats, rounds: int = 40) -> list[float]:
    """The radii of some rounds in which devices at these distances tell who is within."""
    radius, path = AdaptiveRadius(), list[float]()
    for _ in range(rounds):
        radius = radius.after(float((distances <= radius.nu).mean()))
        path.append(radius.nu)
    return path


@pytest.mark.parametrize("scale", [1e-4, 0.03, 0.1, 1.5, 1e4])
def test_it_finds_the_median_distance_and_stays(scale: float) -> None:
    distances = scale * np.exp(0.1 * np.random.default_rng(1).standard_normal(99))
    for nu in learned(distances)[20:]:
        assert abs(np.log(nu / np.median(distances))) < 0.3


def test_it_follows_a_distance_that_shrinks() -> None:
    radius = AdaptiveRadius()
    for t in range(200):
        radius = radius.after(float(radius.nu >= 0.97**t))
    assert 0.8 < radius.nu / 0.97**199 < 1.25


@given(st.lists(st.booleans(), max_size=60))
def test_a_minority_keeps_it_a_stride_from_the_distances_of_the_others(lies: list[bool]) -> None:
    """45 of 100 devices say what they like, in each round anew."""
    honest, radius = np.geomspace(0.5, 4.0, 55), AdaptiveRadius()
    for _ in range(25):
        radius = radius.after(float((honest <= radius.nu).mean()))
    for lie in lies:
        radius = radius.after(0.55 * float((honest <= radius.nu).mean()) + 0.45 * lie)
        assert 0.5 / 1.5 <= radius.nu <= 4.0 * 1.5


@pytest.mark.parametrize("near", [-0.1, 1.1, math.nan])
def test_what_is_no_share_is_refused(near: float) -> None:
    with pytest.raises(ValueError, match="near is a fraction of the devices"):
        AdaptiveRadius().after(near)


def test_it_has_bounds() -> None:
    small = big = AdaptiveRadius()
    for _ in range(50):
        small, big = small.after(1.0), big.after(0.0)
    assert (small.nu, big.nu) == (MIN_NU, MAX_NU)
