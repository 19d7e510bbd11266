"""The formulas of the paper against simulation and the code that they are about."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rfa import PlainOracle, geometric_median, theory, weiszfeld
from rfa.cli import main
from rfa.kernel import Floats
from rfa.paper import leastsquares as ls
from rfa.paper.theorem import D, N
from rfa.plan import Wish, plan
from rfa.secagg import Contribution, Device, InProcess, Policy, Profile, SecureOracle, Terms, Trust
from rfa.secagg.keys import identity_of
from rfa.secagg.profile import Identity
from rfa.secagg.protocol import open_round
from rfa.secagg.server import Outbox
from rfa.secagg.sizes import traffic


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
    bad = math.floor(rho * population + 1e-9)
    bear = math.floor(theta * m + 1e-9)
    whole = math.comb(population, m)
    ways = sum(
        math.comb(bad, k) * math.comb(population - bad, m - k) for k in range(min(bad, bear, m) + 1)
    )
    assert theory.holds_with(rho, theta, m, population) == pytest.approx(ways / whole, rel=1e-9)


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


def test_a_small_population_is_asked_as_a_whole_at_most() -> None:
    assert theory.devices_needed_exactly(0.3, 0.4, 1000, 0.01, 20) <= 20


def test_the_median_moves_no_farther_than_robustness_says() -> None:
    rng = np.random.default_rng(2)
    for theta in (0.1, 0.3, 0.45):
        points = rng.standard_normal((100, 5))
        bad = round(theta * 100)
        points[:bad] += 1e6
        found = geometric_median(points).point
        spread = float((points[bad:] ** 2).sum(axis=1).mean())
        assert float(found @ found) <= theory.robustness(theta, spread, eps_over_m=1e-3)


def objective(points: Floats, v: Floats) -> float:
    return float(np.linalg.norm(points - v, axis=1).mean())


def test_weiszfeld_is_as_fast_as_its_rate_says() -> None:
    rng = np.random.default_rng(3)
    points = rng.standard_normal((40, 3))
    best = geometric_median(points).point.astype(np.float64)
    start = points.mean(axis=0)
    for steps in (1, 3, 10):
        v = weiszfeld(PlainOracle(points), start, nu=0.1, steps=steps)
        gap = (
            np.linalg.norm(points - v, axis=1).mean() - np.linalg.norm(points - best, axis=1).mean()
        )
        assert gap <= theory.weiszfeld_gap(float(np.linalg.norm(start - best)), 0.1, steps)


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
    found = theory.dissimilarity(problem.covariances, problem.optima)
    assert found == pytest.approx((problem.omega_x, 1.5), rel=1e-9)


def test_dissimilarity_of_covariances_that_do_not_commute_is_larger() -> None:
    problem = ls.twisted(0.1)
    omega_x, _ = theory.dissimilarity(problem.covariances, problem.optima)
    assert omega_x > 1.01 * problem.omega_x


class Scale:
    """An exchange that weighs what a device receives and sends."""

    def __init__(self, devices: dict[int, Device]) -> None:
        self.inner = InProcess(devices)
        self.down: dict[int, int] = {}
        self.up: dict[int, int] = {}
        self.times: dict[int, int] = {}

    def __call__(self, outbox: Outbox) -> list[tuple[int, bytes]]:
        requests = list(outbox)
        for device, request in requests:
            self.down[device] = self.down.get(device, 0) + len(request)
            self.times[device] = self.times.get(device, 0) + 1
        replies = list(self.inner(iter(requests)))
        for device, reply in replies:
            self.up[device] = self.up.get(device, 0) + len(reply)
        return replies


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize(("count", "steps", "limit"), [(6, 2, 0.0), (11, 1, 0.9)])
def test_the_traffic_is_that_of_the_protocol(
    trust: Trust, count: int, steps: int, limit: float
) -> None:
    rng = np.random.default_rng(5)
    secrets = {name: bytes([name]) * 32 for name in range(count)}
    known = {name: identity_of(secret) for name, secret in secrets.items()}
    terms = Terms(0.1, 0.15, trust=trust)
    devices = {
        name: Device(
            Contribution(rng.standard_normal(7).astype(np.float32), 1.0, (0.5,)),
            Profile(name, Policy(steps=steps), Identity(secrets[name], known)),
        )
        for name in range(count)
    }
    opening = open_round(1, terms, steps=steps, dim=7, metrics=1, limit=limit)
    scale = Scale(devices)
    ask = SecureOracle(opening, terms, devices, scale, known)
    v = np.zeros(7)
    for _ in range(steps):
        ask(v, 1.0)
        v = v + 0.1
    wanted = traffic(terms.parameters(count), steps=steps, dim=7, metrics=1, limit=limit)
    assert set(scale.down.values()) == {wanted.down}
    assert set(scale.up.values()) == {wanted.up}
    assert set(scale.times.values()) == {wanted.exchanges}


def test_a_plan_as_a_table_and_as_json() -> None:
    said = CliRunner().invoke(main, ["plan", "--rho", "0.25", "--rounds", "500"])
    assert said.exit_code == 0, said.output
    assert "times FedAvg's" in said.output
    found = json.loads(CliRunner().invoke(main, ["plan", "--json", "--budget", "1"]).output)
    assert found["theorem"] > found["exact"] == found["devices"]
    assert found["parameters"]["trust"] == "curious"
    assert found["traffic"]["up"] == pytest.approx(found["fedavg"], rel=0.01)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (["--rho", "0.5"], "no method bears more"),
        (["--rho", "0.2", "--theta", "0.1"], "theta=0.1 must exceed rho=0.2"),
        (["--confidence", "1"], "confidence must be between"),
        (["--devices", "3"], "devices are too few"),
        (["--devices", "10", "--devices-per-round", "11"], "give at most so many"),
        (["--colluders", "0.9"], "at most 1 together"),
    ],
)
def test_a_plan_that_cannot_be_had_says_what_to_change(wrong: list[str], what: str) -> None:
    said = CliRunner().invoke(main, ["plan", *wrong])
    assert said.exit_code == 2
    assert what in " ".join(said.output.split())


def test_a_wish_is_a_plan_in_python() -> None:
    found = plan(Wish(rho=0.1, population=100, devices=50, dim=1000, budget=1))
    assert found.devices == 50
    assert found.certificate == pytest.approx(1 / 25)
