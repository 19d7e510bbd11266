"""What the paper proves of the smoothed Weiszfeld algorithm (its appendix), as properties."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import rfa
from rfa import theory
from rfa.radii import Radius
from tests import reference as ref
from tests.clouds import Points, clouds, inside, radii

Floats = NDArray[np.float64]
STEPS = 6


def iterates(cloud: Points, nu: float, start: Floats, steps: int = STEPS) -> list[Floats]:
    """v^(0), ..., v^(R), each by one call of Algorithm 2 on the plain oracle."""
    path = [start]
    ask = rfa.PlainOracle(cloud.points, cloud.alpha)
    for _ in range(steps):
        path.append(rfa.weiszfeld(ask, path[-1], nu=nu, steps=1))
    return path


def mean(cloud: Points) -> Floats:
    return cloud.alpha @ cloud.points


def etas(cloud: Points, nu: float, v: Floats) -> Floats:
    return np.maximum(nu, ref.distances(cloud.points, v))


def curvature(cloud: Points, nu: float, v: Floats) -> float:
    """L^(r) of eq:weiszfed:l."""
    return float((cloud.alpha / etas(cloud, nu, v)).sum())


def slack(cloud: Points) -> float:
    """Rounding, for quantities of the size of the cloud."""
    return 1e-11 * (cloud.diameter + float(np.abs(cloud.points).max()))


def smoothed_median(cloud: Points, nu: float) -> Floats:
    """v_nu*, checked against the gradient before it is used."""
    found = rfa.geometric_median(cloud.points, cloud.alpha, nu=nu, tol=1e-11)
    assert found.converged
    gradient = ref.grad_g_nu(cloud.points, cloud.alpha, nu, found.point)
    rounding = 1e-15 * float(np.abs(cloud.points).max()) / nu  # of the coordinates of the median
    assert np.linalg.norm(gradient) <= 1e-10 + rounding
    return found.point


@given(clouds(), radii)
def test_the_push_form_is_the_papers_form(cloud: Points, nu: float) -> None:
    v = mean(cloud) + 0.5
    ours = rfa.weiszfeld(rfa.PlainOracle(cloud.points, cloud.alpha), v, nu=nu, steps=STEPS)
    for _ in range(STEPS):
        v = ref.weiszfeld_step(cloud.points, cloud.alpha, nu, v)
    assert np.linalg.norm(ours - v) <= 10 * slack(cloud)


@given(clouds(), radii)
def test_smoothing_adds_at_most_half_of_nu(cloud: Points, nu: float) -> None:
    """eq:weiszfeld:norm:smooth:bound."""
    for v in (mean(cloud), cloud.points[0], mean(cloud) + 3 * nu):
        excess = ref.g_nu(cloud.points, cloud.alpha, nu, v) - ref.g(cloud.points, cloud.alpha, v)
        assert -slack(cloud) <= excess <= nu / 2 + slack(cloud)
        told = rfa.PlainOracle(cloud.points, cloud.alpha)(v, nu).objective
        assert told == pytest.approx(ref.g_nu(cloud.points, cloud.alpha, nu, v), rel=1e-12)


@given(clouds(), radii, st.integers(0, 2**32 - 1))
def test_the_surrogate_majorises_and_touches(cloud: Points, nu: float, seed: int) -> None:
    """claim:weiszfeld:maj-min, and its expansion eq:weisfeld:surrogate:taylor."""
    v = mean(cloud) + 0.1
    eta = etas(cloud, nu, v)

    def surrogate(z: Floats) -> float:
        squares = ref.distances(cloud.points, z) ** 2
        return float(cloud.alpha @ (squares / eta + eta)) / 2

    here = ref.g_nu(cloud.points, cloud.alpha, nu, v)
    gradient = ref.grad_g_nu(cloud.points, cloud.alpha, nu, v)
    assert surrogate(v) == pytest.approx(here, rel=1e-12)
    rng = np.random.default_rng(seed)
    for z in v + rng.standard_normal((5, v.size)) * cloud.diameter:
        value = surrogate(z)
        assert value >= ref.g_nu(cloud.points, cloud.alpha, nu, z) - 1e-9 * (1 + value)
        bend = curvature(cloud, nu, v) / 2 * float((z - v) @ (z - v))
        assert value == pytest.approx(here + float(gradient @ (z - v)) + bend, rel=1e-9)


@given(clouds(), radii)
def test_a_step_is_gradient_descent_with_step_one_over_l(cloud: Points, nu: float) -> None:
    """claim:weiszfeld:gradient-descent; and the push is minus the gradient."""
    v = mean(cloud) + 0.1
    gradient = ref.grad_g_nu(cloud.points, cloud.alpha, nu, v)
    ask = rfa.PlainOracle(cloud.points, cloud.alpha)
    assert np.linalg.norm(ask(v, nu).push + gradient) <= 1e-11
    step = rfa.weiszfeld(ask, v, nu=nu, steps=1)
    assert np.linalg.norm(step - (v - gradient / curvature(cloud, nu, v))) <= slack(cloud)


@given(clouds(), radii)
def test_the_smoothed_objective_never_increases(cloud: Points, nu: float) -> None:
    """lemma:weiszfeld:monotonicity."""
    path = iterates(cloud, nu, mean(cloud) + cloud.diameter)
    values = [ref.g_nu(cloud.points, cloud.alpha, nu, v) for v in path]
    assert all(b <= a + slack(cloud) for a, b in pairwise(values))


@given(clouds(least=2), radii)
def test_the_distance_to_the_smoothed_median_never_increases(cloud: Points, nu: float) -> None:
    """lemma:weiszfeld:contraction."""
    median = smoothed_median(cloud, nu)
    for start in (mean(cloud), cloud.points[0]):
        gaps = [float(np.linalg.norm(v - median)) for v in iterates(cloud, nu, start)]
        allowed = 1e-6 * (1 + cloud.diameter)
        assert all(b <= a + allowed for a, b in pairwise(gaps))


@given(clouds(), radii, st.integers(0, 2**32 - 1))
def test_iterates_stay_in_the_convex_hull(cloud: Points, nu: float, seed: int) -> None:
    """eq:weiszfeld_alg:prop; from the first step on, wherever the start is."""
    path = iterates(cloud, nu, mean(cloud) + 2 * cloud.diameter)[1:]
    rng = np.random.default_rng(seed)
    directions = [*rng.standard_normal((20, cloud.points.shape[1])), *(path[-1] - cloud.points)]
    for v in path:
        for direction in directions:
            height = float((cloud.points @ direction).max())
            assert v @ direction <= height + slack(cloud) * np.linalg.norm(direction)


@given(clouds(least=2), radii, st.booleans())
def test_eta_and_l_are_bounded_by_nu_and_the_diameter(
    cloud: Points, nu: float, outside: bool
) -> None:
    """eq:weiszfeld_alg:prop, the diameter being extended by a start outside of the hull."""
    nu = inside(cloud, nu)
    start = mean(cloud) + (cloud.diameter if outside else 0.0)
    largest = max(cloud.diameter, float(ref.distances(cloud.points, start).max()), nu)
    for v in iterates(cloud, nu, start):
        eta = etas(cloud, nu, v)
        assert nu <= eta.min()
        assert eta.max() <= largest + slack(cloud)
        assert 1 / largest - 1e-9 / largest <= curvature(cloud, nu, v) <= 1 / nu * (1 + 1e-9)


@given(clouds(least=2), radii)
def test_the_rate_of_convergence(cloud: Points, nu: float) -> None:
    """eq:weiszfeld:main and prop:weiszfeld:main, for the smoothed and the true objective."""
    nu = inside(cloud, nu)
    start = mean(cloud)
    path = iterates(cloud, nu, start)
    smoothed, true = smoothed_median(cloud, nu), ref.geometric_median(cloud.points, cloud.alpha)
    for r in range(1, STEPS + 1):
        bends = [curvature(cloud, nu, v) for v in path[:r]]
        least = min(float(etas(cloud, nu, v).min()) for v in path[:r])
        gap = ref.g_nu(cloud.points, cloud.alpha, nu, path[r]) - ref.g_nu(
            cloud.points, cloud.alpha, nu, smoothed
        )
        away = float(np.linalg.norm(start - smoothed))
        told = theory.weiszfeld_gap_along(away, nu, bends, separated=True)
        assert gap <= told + slack(cloud)
        assert told <= theory.weiszfeld_gap(away, least, r, separated=True) * (1 + 1e-9)
        gap = ref.g(cloud.points, cloud.alpha, path[r]) - ref.g(cloud.points, cloud.alpha, true)
        away = float(np.linalg.norm(start - true))
        assert gap <= theory.weiszfeld_gap_along(away, nu, bends) + slack(cloud)


@given(clouds(least=3))
def test_the_faster_rates_away_from_the_points(cloud: Points) -> None:
    """cor:a:weiszfeld:better_rate and cor:a:weiszfeld:nonsmooth_rate: no term in nu."""
    true = ref.geometric_median(cloud.points, cloud.alpha)
    tilde = float(ref.distances(cloud.points, true).min())
    start = mean(cloud)
    assume(tilde > 1e-6 * cloud.diameter)
    best = ref.g(cloud.points, cloud.alpha, true)
    away = float(np.linalg.norm(start - true))
    for nu in (tilde, tilde * 1e-9):  # the second hardly smooths: Weiszfeld's own algorithm
        path = iterates(cloud, nu, start)
        for r in range(1, STEPS + 1):
            least = min(float(etas(cloud, nu, v).min()) for v in path[:r])
            gap = ref.g(cloud.points, cloud.alpha, path[r]) - best
            told = theory.weiszfeld_gap(away, min(least, tilde), r, separated=True)
            assert gap <= told + slack(cloud)


@given(clouds(least=3))
def test_little_smoothing_leaves_the_median_as_it_is(cloud: Points) -> None:
    """lemma:weiszfeld:no-smoothing: for nu up to the distance of the nearest point."""
    true = rfa.geometric_median(cloud.points, cloud.alpha, tol=1e-13).point
    nearest = float(ref.distances(cloud.points, true).min())
    assume(nearest > 1e-3 * cloud.diameter)
    smoothed = smoothed_median(cloud, nearest * 0.999)
    gap = ref.g(cloud.points, cloud.alpha, smoothed) - ref.g(cloud.points, cloud.alpha, true)
    assert gap <= slack(cloud)
    if np.linalg.matrix_rank(cloud.points - cloud.points[0], tol=1e-6 * cloud.diameter) > 1:
        assert np.linalg.norm(smoothed - true) <= 1e-5 * cloud.diameter


@given(clouds(least=2, equal=True), radii)
def test_no_device_weighs_more_than_the_privacy_bound(cloud: Points, nu: float) -> None:
    """prop:rfa:privacy-preservation, with its own nu-bar."""
    assume(cloud.diameter > 0)
    nu = inside(cloud, nu)
    m, path = len(cloud.points), iterates(cloud, nu, mean(cloud))[:-1]
    nu_bar = min(float(etas(cloud, nu, v).min()) for v in path)
    bound = theory.largest_share(m, cloud.diameter, nu_bar)
    for v in path:
        beta = cloud.alpha / etas(cloud, nu, v)
        assert (beta / beta.sum()).max() <= bound + 1e-9


def test_algorithm_3_is_one_step_from_zero() -> None:
    rng = np.random.default_rng(3)
    points, alpha = rng.standard_normal((7, 5)), rng.random(7)
    ask = rfa.RecordingOracle(rfa.PlainOracle(points, alpha))
    ours = rfa.one_step(ask, 5, nu=0.1)
    beta = alpha / np.maximum(0.1, np.linalg.norm(points, axis=1))
    assert ours == pytest.approx(beta @ points / beta.sum(), rel=1e-12)
    assert ask.calls == 1


def test_the_early_stop_of_the_appendix() -> None:
    """Stops at the first iterate that improved g_nu by no more than the given fraction."""
    points = np.random.default_rng(4).standard_normal((20, 6))
    alpha = np.ones(20)
    v, steps = np.zeros(6), 0
    while True:
        following = ref.weiszfeld_step(points, alpha, 1e-6, v)
        before, after = (ref.g_nu(points, alpha, 1e-6, z) for z in (v, following))
        v, steps = following, steps + 1
        if abs(before - after) <= 1e-6 * before:
            break
    ask = rfa.RecordingOracle(rfa.PlainOracle(points))
    ours = rfa.weiszfeld(ask, np.zeros(6), nu=1e-6, steps=100, early_stop=1e-6)
    assert 2 < steps < 50
    assert ours == pytest.approx(v, rel=1e-12)
    assert ask.calls == steps + 1  # the last call tells that the step before it was the last
    told = rfa.geometric_median(points, nu=1e-6, steps=100, start="zero", early_stop=1e-6)
    assert told.steps == steps
    assert told.point == pytest.approx(v, rel=1e-12)


def test_budget_and_calls_are_the_same() -> None:
    ask = rfa.RecordingOracle(rfa.PlainOracle(np.eye(4)))
    rfa.weiszfeld(ask, np.zeros(4), nu=0.1, steps=5)
    assert ask.calls == 5


def test_an_oracle_that_stops_ends_the_steps_and_the_iterate_stands() -> None:
    points = np.random.default_rng(0).standard_normal((9, 4))
    plain = rfa.PlainOracle(points)

    def stopping(after: int) -> rfa.SumOracle:
        left = iter(range(after))

        def ask(v: Floats, nu: Radius) -> rfa.Sum:
            if next(left, None) is None:
                msg = "a device left"
                raise rfa.OracleStoppedError(msg)
            return plain(v, nu)

        return ask

    for after in (1, 2, 3):
        stopped = rfa.weiszfeld(stopping(after), np.zeros(4), nu=0.1, steps=3)
        assert np.array_equal(stopped, rfa.weiszfeld(plain, np.zeros(4), nu=0.1, steps=after))
    with pytest.raises(rfa.OracleStoppedError, match="a device left"):
        rfa.weiszfeld(stopping(0), np.zeros(4), nu=0.1, steps=3)
