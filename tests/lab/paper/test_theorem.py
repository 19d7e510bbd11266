"""thm:rfa:convergence, step by step and as a whole, on least squares with a known optimum."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa import PlainOracle, geometric_median, theory
from rfa.aggregators.weiszfeld import weiszfeld
from rfa.lab.paper import leastsquares as ls
from rfa.lab.paper import theorem
from rfa.lab.paper.theorem import N, Size, constants_of, measure, plan_for
from rfa.lab.randomness import stream
from rfa.lab.report.exhibit import to_json
from rfa.theory import bound

SMALL = Size(repeats=4, rounds=3, rhos=(), omegas=())
RHOS = (0.0, 0.1, 0.25, 0.4)


def groups(omega_y: float, **how: Any) -> ls.Problem:
    return ls.two_groups(N, theorem.D, omega_y=omega_y, **how)


def objective(problem: ls.Problem, w: Any, alpha: Any) -> float:
    """sum_i alpha_i F_i(w), less the noise."""
    e = w - problem.optima
    return 0.5 * float(np.einsum("n,ni,nij,nj->", alpha, e, problem.covariances, e))


def weights(n: int = N) -> Any:
    alpha = np.where(np.arange(n) < n // 2, 2.0, 1.0)
    return alpha / alpha.sum()


@pytest.mark.parametrize("problem", [groups(1.0), ls.twisted(0.1)])
def test_the_minimizer_minimizes(problem: ls.Problem) -> None:
    w, alpha = problem.minimizer, np.full(problem.n, 1 / problem.n)
    gradient = np.einsum("nij,nj->i", problem.covariances, w - problem.optima) / problem.n
    assert np.abs(gradient).max() < 1e-12
    for row in np.eye(problem.d):
        for side in (-1e-3, 1e-3):
            assert objective(problem, w + side * row, alpha) > objective(problem, w, alpha)


def test_samples_have_the_covariance_and_the_length_that_is_claimed() -> None:
    problem, device = ls.twisted(0.2), np.zeros(1, np.int64)
    features, noise = ls.draw(problem, device, 40_000, stream(1, "samples"))
    phi = features[:, 0] @ problem.axes[0].T
    assert np.allclose(phi.T @ phi / len(phi), problem.covariances[0], atol=0.02)
    assert np.abs(phi.mean(axis=0)).max() < 0.02
    assert (phi**2).sum(axis=1).max() <= problem.r_squared + 1e-12
    assert noise.std() == pytest.approx(1, abs=0.02)


def test_heterogeneity_is_what_was_asked_for() -> None:
    problem = groups(3.0, skew=0.5)
    assert problem.omega_y == pytest.approx(3)
    assert problem.omega_x == pytest.approx(problem.omega_x_norm)
    assert 1.1 < problem.omega_x < 1.5
    alike = groups(3.0, skew=0.0)
    assert alike.omega_x == pytest.approx(1)
    assert alike.mu == pytest.approx(1)


def test_tail_averaging_is_a_plain_loop() -> None:
    problem = dataclasses.replace(ls.twisted(0.3), sigma=np.array([0.5, 1.0, 2.0]))
    devices, tau = np.array([2, 0, 1]), 40
    start = stream(1, "start").standard_normal((3, 2))
    ours = ls.local_models(problem, devices, start, tau, stream(1, "loop"))
    features, noise = ls.draw(problem, devices, tau, stream(1, "loop"))
    for row, device in enumerate(devices):
        w, later = start[row], list[Any]()
        for k in range(tau):
            phi = problem.axes[device] @ features[k, row]
            y = phi @ problem.optima[device] + noise[k, row]
            w = w - phi * (phi @ w - y) / (2 * problem.r_squared)
            later.append(w)
        assert np.allclose(ours[row], np.mean(later[tau // 2 :], axis=0), atol=1e-12)


@pytest.mark.parametrize("distance", [0.0, 30.0])
@pytest.mark.parametrize("tau", [16, 64, 256, 1024])
def test_local_sgd_is_as_good_as_its_theorem(tau: int, distance: float) -> None:
    """thm:sgd:central, and its noise term is not off by more than a factor of eight."""
    problem, rows = groups(0.0), np.zeros(500, np.int64)
    start = np.zeros((500, theorem.D))
    start[:, 0] = distance
    found = ls.local_models(problem, rows, start, tau, stream(tau, "sgd"))
    error = float((found**2).sum(axis=1).mean())
    limit = theory.bound_sgd(constants_of(problem), tau, distance**2)
    assert error <= limit
    assert tau < 64 or distance or error >= limit / 8


@given(st.integers(0, 2**32 - 1), st.integers(0, 9), st.sampled_from([0, 1, 2, 5]))
def test_the_median_is_as_robust_as_the_proof_needs(seed: int, bad: int, steps: int) -> None:
    """|v - z|^2 <= 8 C_theta mean |w_i - z|^2 + 2 C_theta eps^2 / m^2 over the honest ones."""
    rng, m, z = np.random.default_rng(seed), 20, np.zeros(3)
    points = rng.standard_normal((m, 3)) * rng.uniform(0.1, 3, (m, 1))
    points[:bad] = rng.standard_normal(3) * 10 ** rng.uniform(-1, 4)
    median = geometric_median(points).point
    v = weiszfeld(PlainOracle(points), rng.standard_normal(3), nu=1e-6, steps=steps or 1)
    v = v if steps else median
    eps = max(0.0, sum(float(np.linalg.norm(p - v) - np.linalg.norm(p - median)) for p in points))
    scatter = float(((points[bad:] - z) ** 2).sum(axis=1).mean())
    c = theory.c_theta(bad / m)
    assert ((v - z) ** 2).sum() <= 8 * c * scatter + 2 * c * (eps / m) ** 2 + 1e-9


@pytest.mark.parametrize("doubling", [True, False])
def test_the_bound_is_the_recursion_unrolled(doubling: bool) -> None:
    constants, theta, start = constants_of(groups(1.0)), 0.3, 7.0
    plan = plan_for(constants, 0.1, dataclasses.replace(SMALL, rounds=6), doubling=doubling)
    c, error = theory.c_theta(theta), start
    for tau in plan.taus:
        noise = 128 * c * constants.d * constants.sigma2 / (constants.mu * tau)
        error = error / 2 + noise + theory.gamma(constants, theta)
    told = bound(constants, delta0=start, theta=theta, taus=plan.taus)
    rest = 2 * theory.gamma(constants, theta)
    assert told == pytest.approx(error + rest / 2**6)
    series = (told - start / 2**6 - rest) * constants.mu / (128 * c * constants.d)
    tau = plan.taus[0]
    closed = 6 / (tau * 2**5) if doubling else (2 - 2**-5) / tau
    assert series == pytest.approx(closed)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("attack", list(ls.ATTACKS))
def test_the_error_is_below_the_bound(rho: float, attack: str) -> None:
    problem = groups(1.0)
    plan = plan_for(constants_of(problem), rho, dataclasses.replace(SMALL, repeats=2))
    case = measure(problem, rho, dataclasses.replace(plan, attack=attack))
    assert case.paths.held.all()
    for spread, limit in zip(case.spreads(), case.bounds(), strict=True):
        assert spread.mean <= limit


def test_without_its_term_for_heterogeneity_the_bound_would_not_hold() -> None:
    problem = groups(30.0)
    constants = constants_of(problem)
    case = measure(problem, 0.25, plan_for(constants, 0.25, SMALL))
    without = dataclasses.replace(case, constants=dataclasses.replace(constants, omega_y=0.0))
    assert without.bounds()[-1] < case.spreads()[-1].mean <= case.bounds()[-1]


def test_without_its_term_for_noise_the_bound_would_not_hold() -> None:
    """The noise is needed as well: a start at the optimum does not stay there."""
    problem = groups(0.0)
    plan = plan_for(constants_of(problem), 0.25, SMALL)
    paths = ls.play(problem, plan, problem.minimizer, ls.draw_liars(problem, 0.25))
    case = theorem.Case(constants_of(problem), plan, paths)
    quiet = dataclasses.replace(case.constants, sigma2=0.0)
    assert dataclasses.replace(case, constants=quiet).bounds()[-1] == 0
    assert 0 < case.spreads()[-1].mean <= case.bounds()[-1]


def test_there_is_no_floor_without_heterogeneity() -> None:
    size, problem = dataclasses.replace(SMALL, rounds=6, repeats=12), groups(0.0)
    doubling, constant = (
        measure(problem, 0.25, plan_for(constants_of(problem), 0.25, size, doubling=flag))
        for flag in (True, False)
    )
    errors = [spread.mean for spread in doubling.spreads()]
    assert errors[6] < errors[3] / 4
    assert errors[6] < errors[1] / 10
    assert constant.spreads()[6].mean > constant.spreads()[1].mean / 3
    assert all(e <= b for e, b in zip(errors, doubling.bounds(), strict=True))


def test_the_floor_grows_with_the_square_of_the_heterogeneity() -> None:
    """With noise and start as they are, 64 times the Omega makes about 64^2 times the floor."""
    floors: list[float] = []
    for omega in (1.0, 8.0, 64.0):
        problem = groups(omega)
        plan = plan_for(constants_of(problem), 0.25, dataclasses.replace(SMALL, repeats=8))
        floors.append(measure(problem, 0.25, plan).spreads()[-1].mean / omega**2)
    assert all(0.05 < floor < 0.5 for floor in floors)
    assert max(floors) < 3 * min(floors)


@pytest.mark.parametrize("rho", [0.1, 0.25])
@pytest.mark.parametrize("omega", [0.5, 4.0])
def test_two_worlds_look_alike_and_one_of_them_is_far(rho: float, omega: float) -> None:
    """The lower bound rho^2 Omega_{Y|X}^2, by an instance on which no algorithm does better."""
    *worlds, shown = ls.two_worlds(N, theorem.D, rho, omega)
    plan = plan_for(constants_of(worlds[0]), rho, SMALL)
    plan = dataclasses.replace(plan, attack="")
    paths = [
        ls.play(one, plan, theorem.START, ls.liars(N, rho, index), shown)
        for index, one in enumerate(worlds)
    ]
    assert np.array_equal(paths[0].last, paths[1].last)
    for index, one in enumerate(worlds):
        assert one.omega_y == pytest.approx(omega)
        assert set(np.flatnonzero((one.optima != shown).any(axis=1))) == set(
            ls.liars(N, rho, index)
        )
    apart = np.linalg.norm(worlds[0].minimizer - worlds[1].minimizer)
    assert apart == pytest.approx(2 * rho * omega)
    worse = np.maximum(paths[0].errors[:, -1], paths[1].errors[:, -1])
    assert worse.min() >= (rho * omega) ** 2 - 1e-12
    case, least = theorem.worse_world(rho, omega, SMALL)
    assert least == (rho * omega) ** 2
    assert least <= case.spreads()[-1].mean <= case.bounds()[-1]


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("rounds", [3, 50])
def test_the_event_is_as_likely_as_claimed(rho: float, rounds: int) -> None:
    theta = (rho + 1 / 2) / 2
    m = theory.devices_needed(rho, theta, rounds, theorem.DELTA)
    m = min(m, N)
    assert theorem.event_frequency(rho, theta, m, rounds) >= 1 - theorem.DELTA


def test_the_event_needs_its_devices() -> None:
    m = theory.devices_needed(0.25, 0.375, 50, theorem.DELTA)
    assert theorem.event_frequency(0.25, 0.375, m // 10, 50) < 0.5


def test_the_event_is_noticed_in_runs() -> None:
    problem = groups(1.0)
    plan = plan_for(constants_of(problem), 0.25, SMALL)
    few = dataclasses.replace(plan, m=4, taus=(2, 2), repeats=40)
    held = measure(problem, 0.25, few).paths.held
    assert 10 < held.sum() < 35


def test_unequal_weights_by_the_reduction() -> None:
    """remark:rfa:convergence."""
    problem, alpha = groups(1.0), weights()
    scaled = ls.reweighted(problem, alpha)
    w = scaled.minimizer
    assert np.linalg.norm(w - problem.minimizer) > 0.01
    for row in np.eye(problem.d):
        for side in (-1e-3, 1e-3):
            assert objective(problem, w + side * row, alpha) > objective(problem, w, alpha)
    exact, told = constants_of(scaled), constants_of(problem).reweighted(alpha)
    assert exact.r_squared <= told.r_squared + 1e-12
    assert exact.sigma2 <= told.sigma2 + 1e-12
    assert exact.mu >= told.mu - 1e-12
    assert exact.omega_x <= told.omega_x + 1e-12
    assert exact.omega_y == told.omega_y
    assert told.kappa == pytest.approx(2 * constants_of(problem).kappa)
    for rho in (0.0, 0.25):
        case = measure(scaled, rho, plan_for(told, rho, SMALL), told)
        for spread, limit in zip(case.spreads(), case.bounds(), strict=True):
            assert spread.mean <= limit


def test_equal_weights_change_nothing() -> None:
    constants, alpha = constants_of(groups(1.0)), np.full(N, 1 / N)
    again = dataclasses.astuple(constants.reweighted(alpha))
    assert again == pytest.approx(dataclasses.astuple(constants))


@pytest.mark.parametrize("flat", [0.1, 0.01, 1e-5])
def test_the_paper_needs_covariances_that_commute(flat: float) -> None:
    """|w* - w_i*| <= Omega fails where they do not; with norms of H^-1 H_i it holds."""
    problem = ls.twisted(flat)
    off = float(np.linalg.norm(problem.minimizer - problem.optima, axis=1).max())
    assert problem.omega_x < 2
    assert off <= problem.omega_x_norm * problem.omega_y
    assert flat > 0.05 or off > problem.omega_x * problem.omega_y


def test_no_constant_is_enough_where_covariances_do_not_commute() -> None:
    """Perfect local models and no corruption: the median is at the majority, far from w*."""
    problem, theta = ls.twisted(1e-5, thirds=4), 0.25
    median = geometric_median(problem.optima).point
    error = float(((median - problem.minimizer) ** 2).sum())
    printed = dataclasses.replace(constants_of(problem), omega_x=problem.omega_x)
    assert error > 2 * theory.gamma(printed, theta)
    assert error <= 2 * theory.gamma(constants_of(problem), theta)


def test_few_weiszfeld_steps_cost_what_eps_says() -> None:
    problem = groups(0.0)
    plan = plan_for(constants_of(problem), 0.25, SMALL)
    cases = [measure(problem, 0.25, dataclasses.replace(plan, steps=steps)) for steps in (1, 3, 0)]
    eps = [case.paths.eps for case in cases]
    assert eps[0] > eps[1] > eps[2] == 0
    assert cases[0].bounds()[-1] > cases[1].bounds()[-1] > cases[2].bounds()[-1]
    assert all(case.spreads()[-1].mean <= case.bounds()[-1] for case in cases)


def test_the_exhibit_shows_all_parts() -> None:
    shown = theorem.exhibits("tiny")
    assert (shown.name, shown.command, shown.scale) == ("theorem", "", "")
    assert len(shown.panels) == 5
    assert [len(table.rows) for table in shown.tables] == [2, 3, 4, 4]
    for panel in shown.panels:
        bounds = {line.label: line for line in panel.lines if line.dashed}
        for line in (line for line in panel.lines if not line.dashed):
            limit = bounds.get(f"{line.label}, bound") or bounds["the theorem's bound"]
            assert line.seeds == 2
            for low, mean, high, most in zip(
                line.low, line.mean, line.high, limit.mean, strict=True
            ):
                assert low <= mean <= high
                assert mean <= most
    assert to_json(shown)["panels"][0]["log_y"]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="tiny, quick, short, full, not 'huge'"):
        theorem.exhibits("huge")
    with pytest.raises(ValueError, match=r"theta must be from 0 to below 1/2, not 0\.5"):
        theory.c_theta(0.5)
    with pytest.raises(ValueError, match=r"theta=0\.2 must exceed rho=0\.3"):
        theory.devices_needed(0.3, 0.2, 5, 0.1)
