"""The formulas of the paper against simulation and the code that they are about."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa import PlainOracle, geometric_median, theory
from rfa._types import Floats
from rfa.aggregators.clear import CoordinateMedian, TrimmedMean
from rfa.aggregators.weiszfeld import weiszfeld
from rfa.lab.paper import leastsquares as ls
from rfa.lab.paper.theorem import D, N, constants_of
from rfa.lab.randomness import stream


@given(
    rho=st.floats(0, 0.4),
    theta=st.floats(0.01, 0.49),
    population=st.integers(2, 300),
    data=st.data(),
)
def test_the_odds_of_a_round_are_the_hypergeometric_law(
    rho: float, theta: float, population: int, data: st.DataObject
) -> None:
    m = data.draw(st.integers(1, population))
    corrupted = math.floor(rho * population + 1e-9)
    tolerated = math.floor(theta * m + 1e-9)
    total = math.comb(population, m)
    ways = sum(
        math.comb(corrupted, k) * math.comb(population - corrupted, m - k)
        for k in range(min(corrupted, tolerated, m) + 1)
    )
    assert theory.holds_with(rho, theta, m, population) == pytest.approx(ways / total, rel=1e-9)


@pytest.mark.parametrize("rho", [0.05, 0.1, 0.25])
def test_the_exact_count_is_the_least_and_below_the_theorem_s(rho: float) -> None:
    theta, rounds, delta, population = (rho + 0.5) / 2, 100, 0.05, 1000
    exact = theory.devices_needed_exactly(rho, theta, rounds, delta, population)
    assert exact <= theory.devices_needed(rho, theta, rounds, delta)
    for m in range(exact, exact + 40):
        assert theory.holds_with(rho, theta, m, population) ** rounds >= 1 - delta
    assert theory.holds_with(rho, theta, exact - 1, population) ** rounds < 1 - delta
    rng = np.random.default_rng(1)
    bad = round(rho * population)
    drawn = rng.hypergeometric(bad, population - bad, exact, (20_000, rounds))
    assert (drawn <= theta * exact + 1e-9).all(axis=1).mean() > 1 - delta - 0.01


def one_by_one(rho: float, theta: float, rounds: int, delta: float, population: int) -> int:
    """The exact count by trying every size from the theorem's down, as its definition says."""
    most = min(population, theory.devices_needed(rho, theta, rounds, delta))
    accepted = -math.expm1(math.log1p(-delta) / rounds)
    for m in range(most, 0, -1):
        if 1 - theory.holds_with(rho, theta, m, population) > accepted * (1 + 1e-9):
            return m + 1
    return 1


@given(
    rho=st.floats(0, 0.4),
    apart=st.floats(0.02, 0.4),
    rounds=st.integers(1, 1000),
    delta=st.floats(0.001, 0.5),
    population=st.integers(1, 3000),
)
def test_the_exact_count_is_that_of_trying_all(
    rho: float, apart: float, rounds: int, delta: float, population: int
) -> None:
    theta = min(0.499, rho + apart)
    found = theory.devices_needed_exactly(rho, theta, rounds, delta, population)
    assert found == one_by_one(rho, theta, rounds, delta, population)


@pytest.mark.parametrize("population", [10**6, 10**12, 10**15])
@pytest.mark.parametrize(("rho", "theta"), [(0.49, 0.495), (0.496, 0.498), (0.001, 0.002)])
def test_a_large_count_is_found_at_once(rho: float, theta: float, population: int) -> None:
    """Trying all would take hours, and log-factorials of 10^12 are wrong."""
    found = theory.devices_needed_exactly(rho, theta, 100, 0.05, population)
    accepted = -math.expm1(math.log(0.95) / 100)
    assert found < theory.devices_needed(rho, theta, 100, 0.05)
    for m in range(found, found + 30):
        assert 1 - theory.holds_with(rho, theta, m, population) <= accepted * (1 + 1e-9)
    assert 1 - theory.holds_with(rho, theta, found - 1, population) > accepted * (1 - 1e-9)


def test_what_no_federation_has_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"rho=0.4999 and theta=0.49995 are so close"):
        theory.devices_needed_exactly(0.4999, 0.49995, 100, 0.05, 10**12)
    with pytest.raises(ValueError, match="more than can be counted with"):
        theory.holds_with(0.1, 0.3, 10, 10**400)


def test_a_small_population_is_asked_as_a_whole_at_most() -> None:
    assert theory.devices_needed_exactly(0.3, 0.4, 1000, 0.01, 20) <= 20


def test_the_median_moves_no_farther_than_robustness_says() -> None:
    rng = np.random.default_rng(2)
    for theta in (0.1, 0.3, 0.45):
        points = rng.standard_normal((100, 5))
        bad = round(theta * 100)
        points[:bad] += 1e6
        result = geometric_median(points).point
        spread = float((points[bad:] ** 2).sum(axis=1).mean())
        assert float(result @ result) <= theory.robustness(theta, spread, eps_over_m=1e-3)


def objective(points: Floats, v: Floats) -> float:
    return float(np.linalg.norm(points - v, axis=1).mean())


def cohort(seed: int, rho: float, m: int = 40, d: int = 3) -> Floats:
    """Updates of which a rho share is far away."""
    points = np.random.default_rng(seed).standard_normal((m, d))
    points[: round(rho * m)] += 30
    return points


@pytest.mark.parametrize("nu", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("rho", [0.0, 0.25, 0.45])
def test_weiszfeld_is_as_fast_as_its_rates_say(rho: float, nu: float) -> None:
    """The rate of nu alone, and the better one of the curvatures that the sums tell."""
    points = cohort(3, rho)
    best = geometric_median(points).point.astype(np.float64)
    separated = bool(np.linalg.norm(points - best, axis=1).min() >= nu)
    v, ask, curvatures = points.mean(axis=0), PlainOracle(points), list[float]()
    distance = float(np.linalg.norm(v - best))
    for steps in range(1, 11):
        total = ask(v, nu)
        curvatures.append(total.need("mass") / (nu * total.need("weight")))
        v = weiszfeld(ask, v, nu=nu, steps=1)
        told = theory.weiszfeld_gap_along(distance, nu, curvatures, separated=separated)
        assert objective(points, v) - objective(points, best) <= told
        assert told <= theory.weiszfeld_gap(distance, nu, steps, separated=separated) * (1 + 1e-12)


@pytest.mark.parametrize("nu", [1e-3, 0.5, 2.0])
@pytest.mark.parametrize("rho", [0.0, 0.25, 0.45])
def test_near_the_median_each_step_gains_the_local_rate(rho: float, nu: float) -> None:
    points = cohort(7, rho)
    best = geometric_median(points, nu=nu, tol=1e-14).point.astype(np.float64)
    told = theory.local_rate(points, best, nu)
    v, ask, gaps = best + 1e-3, PlainOracle(points), list[float]()
    for _ in range(30):
        gaps.append(float(np.linalg.norm(v - best)))
        v = weiszfeld(ask, v, nu=nu, steps=1)
    seen = [after / before for before, after in pairwise(gaps) if after > 1e-9]
    assert max(seen) <= told + 0.01
    assert seen[-1] >= told - 0.01


def test_where_all_points_are_within_nu_one_step_is_enough() -> None:
    points = cohort(8, 0.0)
    mean = points.mean(axis=0)
    assert theory.local_rate(points, mean, 100.0) == 0
    assert weiszfeld(PlainOracle(points), mean + 1, nu=100.0, steps=1) == pytest.approx(mean)


@pytest.mark.parametrize("outside", [0.0, 5.0])
@pytest.mark.parametrize("nu", [1e-3, 0.1, 1.0])
def test_no_device_weighs_more_in_any_step_of_a_cohort(nu: float, outside: float) -> None:
    """prop:rfa:privacy-preservation, also for a start outside of the hull, which widens B."""
    points = cohort(4, 0.25)
    v, ask = points.mean(axis=0) + outside, PlainOracle(points)
    everything = np.vstack([points, v])
    diameter = max(float(np.linalg.norm(everything - point, axis=1).max()) for point in everything)
    for _ in range(20):
        v = weiszfeld(ask, v, nu=nu, steps=1)
        assert ask.shares is not None
        assert ask.shares.max() <= theory.largest_share(len(points), diameter, nu)


def test_no_device_weighs_more_than_the_proposition_says() -> None:
    rng = np.random.default_rng(4)
    points = rng.standard_normal((30, 4))
    points[0] = points.mean(axis=0)  # it sits where the others' middle is
    diameter = max(float(np.linalg.norm(a - b)) for a in points for b in points)
    v = points.mean(axis=0)
    for nu in (1e-3, 0.1, 1.0):
        beta = 1 / np.maximum(nu, np.linalg.norm(points - v, axis=1))
        assert beta.max() / beta.sum() <= theory.largest_share(30, diameter, nu) + 1e-12


def test_dissimilarity_is_that_of_the_problem() -> None:
    """Covariances that commute, where the norm is the paper's Omega_X, and groups 1.5 apart."""
    problem = ls.two_groups(N, D, omega_y=1.5)
    result = theory.dissimilarity(problem.covariances, problem.optima)
    assert result == pytest.approx((problem.omega_x, 1.5), rel=1e-9)


def test_dissimilarity_of_covariances_that_do_not_commute_is_larger() -> None:
    problem = ls.twisted(0.1)
    omega_x, _ = theory.dissimilarity(problem.covariances, problem.optima)
    assert omega_x > 1.01 * problem.omega_x


def data_of(problem: ls.Problem, devices: int, examples: int) -> list[tuple[Floats, Floats]]:
    """Features and answers that the first devices of a problem draw."""
    chosen = np.arange(devices)
    features, noise = ls.draw(problem, chosen, examples, stream(1, "data"))
    phi = np.einsum("nij,knj->nki", problem.axes[chosen], features)
    answers = np.einsum("nkj,nj->nk", phi, problem.optima[chosen]) + noise.T
    return list(zip(phi, answers, strict=True))


def test_the_constants_are_found_in_data() -> None:
    problem = ls.two_groups(20, D, omega_y=1.5)
    exact = constants_of(problem)
    result = theory.measured(data_of(problem, 20, 5000))
    assert result.d == exact.d
    assert result.r_squared == pytest.approx(exact.r_squared)
    assert result.sigma2 == pytest.approx(exact.sigma2, rel=0.1)
    assert result.mu == pytest.approx(exact.mu, rel=0.1)
    assert result.omega_x == pytest.approx(exact.omega_x, rel=0.1)
    assert exact.omega_y <= result.omega_y <= exact.omega_y + scatter(exact, 5000)


def scatter(constants: theory.Constants, examples: int) -> float:
    """Two solutions of a few devices are hardly ever farther apart than this by chance."""
    return 4 * math.sqrt(constants.sigma2 * constants.d / (constants.mu * examples))


@pytest.mark.parametrize("examples", [50, 500, 5000])
def test_alike_devices_seem_as_different_as_their_solutions_scatter(examples: int) -> None:
    problem = ls.two_groups(20, D, omega_y=0.0)
    result = theory.measured(data_of(problem, 20, examples))
    assert 0 < result.omega_y <= scatter(constants_of(problem), examples)


def test_too_little_data_is_refused() -> None:
    data = data_of(ls.two_groups(3, D, omega_y=0.0), 3, 50)
    few = [*data, (data[0][0][:D], data[0][1][:D])]
    with pytest.raises(ValueError, match="device 3 has 4 examples of 4 features"):
        theory.measured(few)


@pytest.mark.parametrize("aggregate", [geometric_median, CoordinateMedian(), TrimmedMean(0.25)])
@pytest.mark.parametrize("rho", [0.1, 0.25])
def test_no_aggregator_beats_the_lower_bound_in_both_worlds(aggregate: Any, rho: float) -> None:
    *worlds, shown = ls.two_worlds(100, D, rho, omega_y=2.0)
    rng = np.random.default_rng(9)
    for _ in range(20):
        models = shown + 0.1 * rng.standard_normal(shown.shape)
        result = aggregate(models).point
        worse = max(float(((result - world.minimizer) ** 2).sum()) for world in worlds)
        assert worse >= theory.lower_bound(rho, 2.0) * (1 - 1e-9)
    middle = (worlds[0].minimizer + worlds[1].minimizer) / 2
    reached = float(((middle - worlds[0].minimizer) ** 2).sum())
    assert reached == pytest.approx(theory.lower_bound(rho, 2.0)), "by who knows both worlds"
