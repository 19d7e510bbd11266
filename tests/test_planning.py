"""`rfa plan` against the protocol and the rounds that it is about."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rfa.lab.simulation.summed import Witness, split_cohort

from rfa import PlainOracle, Radius, Sum, SumOracle, center_of_groups, one_step, theory
from rfa._types import Floats
from rfa.aggregators.weiszfeld import weiszfeld
from rfa.cli.main import main
from rfa.lab.settings.settings import Settings
from rfa.planning import Wish, plan
from rfa.secagg import (
    Contribution,
    Device,
    InProcess,
    Policy,
    Profile,
    SecureOracle,
    ServerModel,
    Terms,
)
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.device.profile import Identity
from rfa.secagg.messages.sizes import traffic
from rfa.secagg.oracle import open_round
from rfa.secagg.server.machine import Outbox


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


@pytest.mark.parametrize("trust", ServerModel)
@pytest.mark.parametrize(("count", "steps", "limit"), [(6, 2, 0.0), (11, 1, 0.9)])
@pytest.mark.parametrize("from_zero", [True, False])
def test_the_traffic_is_that_of_the_protocol(
    trust: ServerModel, count: int, steps: int, limit: float, from_zero: bool
) -> None:
    rng = np.random.default_rng(5)
    secrets = {name: bytes([name]) * 32 for name in range(count)}
    known = {name: identity_of(secret) for name, secret in secrets.items()}
    terms = Terms(0.1, 0.15, server_model=trust)
    devices = {
        name: Device(
            Contribution(rng.standard_normal(7).astype(np.float32), 1.0, (0.5,)),
            Profile(name, Policy(max_queries=steps), Identity(secrets[name], known)),
        )
        for name in range(count)
    }
    opening = open_round(1, terms, queries=steps, dim=7, metrics=1, max_share=limit)
    scale = Scale(devices)
    ask = SecureOracle(opening, terms, devices, scale, known)
    v = np.zeros(7) if from_zero else np.ones(7)
    for _ in range(steps):
        ask(v, 1.0)
        v = v + 0.1
    wanted = traffic(
        terms.parameters(count),
        queries=steps,
        dim=7,
        metrics=1,
        max_share=limit,
        from_zero=from_zero,
    )
    assert set(scale.down.values()) == {wanted.down}
    assert set(scale.up.values()) == {wanted.up}
    assert set(scale.times.values()) == {wanted.exchanges}


def test_a_plan_as_a_table_and_as_json() -> None:
    said = CliRunner().invoke(main, ["plan", "--rho", "0.25", "--rounds", "500"])
    assert said.exit_code == 0, said.output
    assert "times FedAvg's" in said.output
    found = json.loads(CliRunner().invoke(main, ["plan", "--json", "--budget", "1"]).output)
    assert found["theorem"] > found["exact"] == found["devices"]
    assert found["parameters"]["server_model"] == "semi-honest"
    assert found["traffic"]["up"] == pytest.approx(found["fedavg"], rel=0.01)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (["--rho", "0.5"], "no method bears more"),
        (["--rho", "0.2", "--theta", "0.1"], "theta=0.1 must exceed rho=0.2"),
        (["--confidence", "1"], "confidence must be between"),
        (["--devices", "3"], "devices are too few"),
        (["--devices", "10", "--devices-per-round", "11"], "give at most so many"),
        (["--colluder-fraction", "0.9"], "at most 1 together"),
        (["--groups", "3", "--schedule", "sub-cohorts"], "not both: give groups=0"),
        (["--groups", "9", "--devices-per-round", "8"], "make no 9 parts"),
        (["--groups", "9", "--devices", "20"], "9 secure sums take"),
        (["--server-model", "malicious"], "give budget=1, or schedule=sub-cohorts"),
    ],
)
def test_a_plan_that_cannot_be_had_says_what_to_change(wrong: list[str], what: str) -> None:
    said = CliRunner().invoke(main, ["plan", *wrong])
    assert said.exit_code == 2
    assert what in " ".join(said.output.split())


def test_a_wish_is_a_plan_in_python() -> None:
    found = plan(Wish(rho=0.1, population=100, devices=50, dim=1000, budget=1))
    assert found.devices == found.parameters.cohort == 50
    assert found.certificate == pytest.approx(2 / 45)
    assert found.certificate_most == pytest.approx(4 / 50)


HOW: dict[str, Any] = {"rho": 0.2, "population": 1000, "devices": 75, "dim": 1000}


@pytest.mark.parametrize(
    "how",
    [
        {"schedule": "plain"},
        {"schedule": "accelerated", "budget": 4},
        {"schedule": "sub-cohorts", "budget": 4},
        {"groups": 7},
    ],
)
def test_parts_and_questions_are_those_of_the_lab(how: dict[str, Any]) -> None:
    settings = Settings("glyphs-linear", devices_per_round=75, **how)
    wish = Wish(**HOW, **how)
    assert (wish.parts, wish.questions) == (settings.parts, settings.questions)
    found = plan(wish)
    sizes = [len(rows) for rows in split_cohort(75, settings, t=3)]
    assert found.parts == len(sizes)
    assert found.parameters.cohort == min(sizes)
    worst = [
        traffic(Terms().parameters(size), queries=settings.questions, dim=1000, metrics=1)
        for size in sizes
    ]
    assert found.traffic.up == max(each.up for each in worst)


def test_in_sub_cohorts_a_device_sends_as_much_as_in_fedavg() -> None:
    whole = plan(Wish(**HOW)).traffic
    parts = plan(Wish(**HOW, schedule="sub-cohorts")).traffic
    fedavg = plan(Wish(**HOW, budget=1)).traffic
    assert parts.exchanges == fedavg.exchanges < whole.exchanges
    assert parts.up <= fedavg.up < whole.up / 2.5
    assert parts.down >= 4 * 1000, "the point of a later part travels"


@pytest.mark.parametrize("groups", [1, 3, 4, 7])
def test_as_many_liars_inside_of_sums_are_withstood(groups: int) -> None:
    """Each spoils a group of its own, by a part that is no legal message; one more is too many."""
    rng = np.random.default_rng(8)
    points = rng.standard_normal((groups, 10, 3))
    liars = plan(Wish(**HOW, groups=groups)).liars

    def distance(count: int) -> float:
        asks = [spoilt(each, 1e9 * (place < count)) for place, each in enumerate(points)]
        center = center_of_groups(asks, lambda ask: one_step(ask, 3, nu=1.0))
        return float(np.linalg.norm(center))

    assert distance(liars) < 5
    assert distance(liars + 1) > 1e6


def spoilt(points: Floats, by: float) -> SumOracle:
    """An oracle whose push somebody adds to."""
    ask = PlainOracle(points)

    def told(v: Floats, nu: float) -> Sum:
        total = ask(v, nu)
        return replace(total, push=total.push + by)

    return told


def updates(m: int, rho: float, rng: np.random.Generator, *, spread: float) -> Floats:
    """A cohort, each corrupted with probability rho, and then far away."""
    points = rng.standard_normal((m, 50)) * np.exp(spread * rng.standard_normal((m, 1)))
    points[rng.random(m) < rho] += 1e6
    return points


@pytest.mark.parametrize("rho", [0.0, 0.25, 0.4])
@pytest.mark.parametrize("groups", [0, 3])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_the_certificate_is_what_rounds_with_a_learned_radius_show(
    rho: float, groups: int, spread: float
) -> None:
    """Where honest updates are not equally far, those that are nearer make it smaller."""
    wish = Wish(rho=rho, population=1000, devices=90, dim=50, groups=groups)
    settings = Settings("glyphs-linear", devices_per_round=90, groups=groups)
    rng, radius, shown = np.random.default_rng(6), Radius(), list[float]()
    for t in range(60):
        points, near = updates(90, rho, rng, spread=spread), list[float]()
        for rows in split_cohort(90, settings, t):
            ask = Witness(PlainOracle(points[rows]))
            weiszfeld(ask, np.zeros(50), nu=radius.nu, steps=3)
            assert ask.last
            assert ask.last.certificate() <= theory.largest_certificate(max(1, ask.last.near))
            near.append(ask.last.near / ask.last.count)
            if t >= 20:
                shown.append(ask.last.certificate())
        radius = radius.after(float(np.median(near)))
    told = plan(wish)
    assert np.mean(shown) <= 1.1 * told.certificate
    assert np.mean(shown) >= 0.85 * told.certificate or spread
    assert told.certificate <= told.certificate_most
