"""Fewer sums: what the extrapolation proves, and what it gains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import rfa
from rfa.oracle import Sum, SumOracle
from tests import reference as ref
from tests.clouds import Points, clouds, radii

Floats = NDArray[np.float64]


def corrupted(share: float, far: float, m: int = 100, d: int = 300) -> Floats:
    """Points of length about one, some of them far away on the other side of zero."""
    points = np.random.default_rng(7).standard_normal((m, d)) / np.sqrt(d) + 0.5 / np.sqrt(d)
    points[: int(share * m)] = -far / np.sqrt(d)
    return points


def distances(points: Floats, steps: int, nu: float = 0.1) -> tuple[float, float]:
    """From the median, of plain and of accelerated steps."""
    ask, start = rfa.PlainOracle(points), np.zeros(points.shape[1])
    best = rfa.geometric_median(points, nu=nu, tol=1e-11).point
    found = (method(ask, start, nu=nu, steps=steps) for method in (rfa.weiszfeld, rfa.accelerated))
    plain, ahead = (float(np.linalg.norm(v - best)) for v in found)
    return plain, ahead


@given(clouds(), radii, st.integers(1, 7))
def test_it_is_at_most_one_plain_step_behind(cloud: Points, nu: float, steps: int) -> None:
    ask, start = rfa.PlainOracle(cloud.points, cloud.alpha), cloud.points[0] + 1.0
    found = rfa.accelerated(ask, start, nu=nu, steps=steps)
    behind = start if steps == 1 else rfa.weiszfeld(ask, start, nu=nu, steps=steps - 1)
    least = ref.g_nu(cloud.points, cloud.alpha, nu, found)
    most = ref.g_nu(cloud.points, cloud.alpha, nu, behind)
    assert least <= most + 1e-11 * (cloud.diameter + float(np.abs(cloud.points).max()) + 1)


@given(clouds(), radii, st.integers(1, 2))
def test_up_to_two_steps_are_plain(cloud: Points, nu: float, steps: int) -> None:
    ask, start = rfa.PlainOracle(cloud.points, cloud.alpha), cloud.points[0]
    plain = rfa.weiszfeld(ask, start, nu=nu, steps=steps)
    np.testing.assert_array_equal(rfa.accelerated(ask, start, nu=nu, steps=steps), plain)


@pytest.mark.parametrize("share", [0.4, 0.45])
@pytest.mark.parametrize("far", [1.0, 1e3])
def test_at_high_corruption_calls_are_worth_half_as_many_again(share: float, far: float) -> None:
    points = corrupted(share, far)
    assert distances(points, 4)[1] < distances(points, 6)[0]
    assert distances(points, 6)[1] < distances(points, 9)[0]


def test_no_call_is_made_beyond_the_budget() -> None:
    ask = rfa.RecordingOracle(rfa.PlainOracle(corrupted(0.25, 10)))
    rfa.accelerated(ask, np.zeros(300), nu=0.1, steps=5)
    assert ask.calls == 5


def test_a_guess_that_is_worse_is_dropped_for_the_plain_iterate() -> None:
    honest = rfa.PlainOracle(corrupted(0.25, 10))
    plain = rfa.weiszfeld(honest, np.zeros(300), nu=0.1, steps=3)
    asked = 0

    def uphill(v: Floats, nu: Any) -> Sum:
        nonlocal asked
        asked += 1
        total = honest(v, nu)
        return replace(total, push=10 * (plain - v)) if asked == 4 else total

    np.testing.assert_array_equal(rfa.accelerated(uphill, np.zeros(300), nu=0.1, steps=4), plain)


@pytest.mark.parametrize("told", [1, 2, 3])
def test_an_oracle_that_stops_leaves_the_last_plain_iterate(told: int) -> None:
    ask = rfa.PlainOracle(corrupted(0.25, 10))
    found = rfa.accelerated(_stops_after(ask, told), np.zeros(300), nu=0.1, steps=4)
    np.testing.assert_array_equal(
        found, rfa.weiszfeld(ask, np.zeros(300), nu=0.1, steps=told), strict=True
    )


def test_an_oracle_that_tells_nothing_is_an_error() -> None:
    with pytest.raises(rfa.OracleStoppedError):
        rfa.accelerated(_stops_after(rfa.PlainOracle([[1.0]]), 0), np.zeros(1), nu=0.1, steps=3)


def test_points_that_are_all_alike_are_found() -> None:
    ask = rfa.PlainOracle(np.full((5, 3), 2.0))
    np.testing.assert_allclose(rfa.accelerated(ask, np.zeros(3), nu=0.1, steps=6), 2.0)


def _stops_after(ask: SumOracle, told: int) -> SumOracle:
    left = told

    def some(v: Floats, nu: Any) -> Sum:
        nonlocal left
        if not left:
            raise rfa.OracleStoppedError
        left -= 1
        return ask(v, nu)

    return some
