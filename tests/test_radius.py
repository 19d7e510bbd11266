"""The radius that is learned from bits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import rfa
from rfa.radius import LEAST, MOST

Floats = NDArray[np.float64]


def learned(distances: Floats, rounds: int = 40) -> list[float]:
    """The radii of some rounds in which devices at these distances tell who is within."""
    radius, path = rfa.Radius(), list[float]()
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
    radius = rfa.Radius()
    for t in range(200):
        radius = radius.after(float(radius.nu >= 0.97**t))
    assert 0.8 < radius.nu / 0.97**199 < 1.25


@pytest.mark.parametrize("lie", [0.0, 1.0, 1e30])
def test_a_minority_keeps_it_among_the_distances_of_the_others(lie: float) -> None:
    """At zero, or at any distance: 45 of 100 devices say what they like."""
    honest = np.linspace(1.0, 2.0, 55)
    for nu in learned(np.append(honest, np.full(45, lie)))[25:]:
        assert 0.85 < nu < 2.3


def test_it_has_bounds() -> None:
    small = big = rfa.Radius()
    for _ in range(50):
        small, big = small.after(1.0), big.after(0.0)
    assert (small.nu, big.nu) == (LEAST, MOST)
