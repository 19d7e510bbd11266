"""`rfa plan --epsilon`: noise, errors of steps, and what would help, against simulated rounds."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa import PlainOracle, Sum, one_step
from rfa._types import Floats
from rfa.aggregators import Layout
from rfa.cli.main import main
from rfa.errors import InvalidValueError
from rfa.numerics.draws import binomial_tail
from rfa.planning import NoiseRequest, PlanRequest, plan, plan_noise
from rfa.planning.noise import MASS, MOST_ERROR
from rfa.privacy import Budget, NoisySum, epsilon_of
from rfa.radii import Radius

USUAL: dict[str, Any] = {
    "rounds": 100,
    "devices": 10**6,
    "devices_per_round": 1000,
    "dim": 7850,
}


def error_at(z: float, devices: int, dim: int, mass: float = MASS) -> float:
    """The error of a step by the formula, with a tenth of colluders and a fifth of drop-outs."""
    noise = NoisySum(devices, devices * 7 // 10, z, dim)
    return math.sqrt(dim) * noise.noise_of(devices) / (mass * devices)


@pytest.mark.parametrize(
    ("devices", "dim", "error"), [(100, 7850, 2.0), (1000, 7850, 0.18), (1000, 100_000, 0.64)]
)
def test_the_errors_at_a_multiplier_of_1_2(devices: int, dim: int, error: float) -> None:
    """The numbers of the design, which lie between masses of 0.6 and of 1 a device."""
    assert error_at(1.2, devices, dim, 1.0) < error < error_at(1.2, devices, dim, 0.6)
    assert error_at(1.2, devices, dim, 0.7) == pytest.approx(error, rel=0.1)


@pytest.mark.parametrize(
    ("aggregator", "mass"), [("rfa-one-step", MASS), ("adaptive-clipping", 1.0)]
)
def test_a_mean_divides_by_its_devices_and_other_steps_by_their_mass(
    aggregator: str, mass: float
) -> None:
    found = plan(
        PlanRequest(
            aggregator=aggregator,
            epsilon=8.0,
            rounds=10,
            devices=1000,
            devices_per_round=1000,
            dim=7850,
        )
    ).noise
    assert found is not None
    assert found.error == pytest.approx(error_at(found.multiplier, 1000, 7850, mass), rel=1e-9)


def test_the_error_of_a_request_is_the_formula_at_its_noise() -> None:
    request = NoiseRequest(Budget(8.0), **USUAL)
    z = plan_noise(request).multiplier
    assert request.error == pytest.approx(error_at(z, 1000, 7850), rel=1e-12)


@pytest.mark.parametrize(("devices", "dim"), [(100, 500), (300, 2000)])
def test_the_error_is_what_steps_with_noise_show(devices: int, dim: int) -> None:
    """Steps of simulated rounds, with noise as it is sent, against those without."""
    rng, nu = np.random.default_rng(3), 0.5
    points = rng.standard_normal((devices, dim)) / math.sqrt(dim)
    noise = NoisySum(devices, devices * 7 // 10, 2.0, dim)

    def with_noise(v: Floats, radius: Radius) -> Sum:
        total = PlainOracle(points)(v, radius)
        sent = rng.normal(0, noise.std, (devices, dim)).round().sum(axis=0) / noise.scale
        return dataclasses.replace(total, push=total.push + sent)

    exact = one_step(PlainOracle(points), dim, nu=nu)
    shown = float(np.linalg.norm(one_step(with_noise, dim, nu=nu) - exact)) / nu
    mass = PlainOracle(points)(np.zeros(dim), nu).need("mass") / devices
    assert shown == pytest.approx(error_at(2.0, devices, dim, mass), rel=0.1)


@given(rounds=st.integers(1, 2000), devices=st.integers(3, 10**6), fraction=st.floats(0.001, 1.0))
@settings(max_examples=40)
def test_no_device_is_in_more_rounds_than_is_planned_for(
    rounds: int, devices: int, fraction: float
) -> None:
    drawn = max(1, math.floor(fraction * devices))
    request = NoiseRequest(
        Budget(8.0), rounds=rounds, devices=devices, devices_per_round=drawn, dim=10
    )
    most, q = request.device_rounds, drawn / devices
    assert 1 <= most <= rounds
    assert devices * binomial_tail(most + 1, rounds, q) <= 0.05
    assert most == 1 or devices * binomial_tail(most, rounds, q) > 0.05


def test_the_most_rounds_of_a_device_are_those_of_simulated_draws() -> None:
    request = NoiseRequest(Budget(8.0), rounds=100, devices=500, devices_per_round=50, dim=10)
    rng, over = np.random.default_rng(1), 0
    for _ in range(200):
        drawn = np.zeros(500, np.int64)
        for _ in range(100):
            drawn[rng.choice(500, 50, replace=False)] += 1
        over += int(drawn.max()) > request.device_rounds
    assert over <= 0.1 * 200


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("parts", [1, 5])
def test_a_plan_keeps_to_its_budget_in_every_part(queries: int, parts: int) -> None:
    layout = Layout(parts=parts, queries=queries)
    request = NoiseRequest(Budget(8.0), **USUAL, layout=layout)
    found = plan_noise(request)
    assert found.epsilon <= 8.0
    assert found.epsilon == pytest.approx(8.0, rel=1e-3)
    rho = NoisySum(1000 // parts, request.terms.honest(1000 // parts), found.multiplier, 7850).rho
    assert epsilon_of(found.device_rounds * queries * rho, 1e-5) == pytest.approx(found.epsilon)
    assert found.effective == pytest.approx(1 / math.sqrt(2 * rho))
    assert (
        found.error > plan_noise(NoiseRequest(Budget(8.0), **USUAL)).error or queries == parts == 1
    )


@pytest.mark.parametrize("dim", [7850, 2_000_000])
def test_what_would_help_does_and_a_little_less_does_not(dim: int) -> None:
    request = dataclasses.replace(NoiseRequest(Budget(2.0), **USUAL), dim=dim)
    found = plan_noise(request)
    changes: list[tuple[str, Any, Any]] = [
        ("devices_per_round", found.enough.devices_per_round, -20),
        ("dim", found.enough.dim, (found.enough.dim or 0) // 50),
        ("rounds", found.enough.rounds, 40),
    ]
    for name, value, step in changes:
        if value is None:
            continue
        assert dataclasses.replace(request, **{name: value}).error <= MOST_ERROR, name
        worse = dataclasses.replace(request, **{name: max(1, value + step)})
        assert worse.error > 0.99 * MOST_ERROR, name
    assert found.enough.epsilon is not None
    enough = dataclasses.replace(request, budget=Budget(found.enough.epsilon))
    assert enough.error <= MOST_ERROR


def test_what_no_noise_is_enough_for_says_what_would_help() -> None:
    request = NoiseRequest(Budget(0.1), rounds=1000, devices=20, devices_per_round=20, dim=10**6)
    assert request.error == math.inf
    with pytest.raises(InvalidValueError, match=r"cannot be had .* For an error of"):
        plan_noise(request)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"devices_per_round": 2_000_000}, "_round=2000000 is more than devices=1000000: give at"),
        ({"rounds": 0}, "rounds must be"),
        ({"mass_share": 0}, "mass_share must be"),
    ],
)
def test_a_request_without_meaning_is_refused(values: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        NoiseRequest(Budget(8.0), **{**USUAL, **values})


def said(*options: str) -> str:
    result = CliRunner().invoke(main, ["plan", *options])
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 80
    return " ".join(result.output.split())


FEDERATION = ["--devices", "100000", "--dim", "7850", "--aggregator", "rfa-one-step"]


def test_a_plan_with_noise_in_words() -> None:
    text = said("--epsilon", "8", *FEDERATION)
    assert "epsilon, server" in text
    assert "at delta 1e-05; the server knows who takes part" in text
    assert "little is lost" in text
    assert "certificate none: only exact sums prove one" in text
    assert "who takes part in which round" in text


def test_a_plan_says_when_delta_is_too_large_for_so_many_devices() -> None:
    large = said("--epsilon", "8", "--devices", "1000000", *FEDERATION[2:])
    assert (
        "it may reveal everything about 10 of 1000000 devices: give a delta of 1e-07 or less"
        in large
    )
    for fine in (["--devices", "1000000", "--delta", "1e-7"], ["--devices", "20000"]):
        assert "reveal everything" not in said("--epsilon", "8", *fine, *FEDERATION[2:])


def test_a_plan_that_is_hopeless_says_what_would_help() -> None:
    text = said("--epsilon", "8")
    assert "hopeless" in text
    assert "for an error of 1 a model of at most" in text
    assert "(all 1000 devices per round are too few)" in text
    assert "less noise with one sum per round: --aggregator rfa-one-step" in text


def test_without_epsilon_nothing_is_said_about_noise() -> None:
    text = said()
    assert "epsilon" not in text
    assert "a coordinate that only one device changes" in text


def test_devices_a_round_are_as_many_as_noise_takes() -> None:
    request = PlanRequest(
        devices=100_000, dim=7850, aggregator="rfa-one-step", epsilon=8.0, delta=1e-6
    )
    found = plan(request)
    assert found.noise is not None
    assert found.noise.delta == 1e-6
    assert found.devices_per_round == found.noise.enough.devices_per_round
    assert found.devices_per_round > found.exact
    assert found.noise.error <= MOST_ERROR
    fewer = plan(dataclasses.replace(request, devices_per_round=100))
    assert fewer.devices_per_round == 100
    assert fewer.noise is not None
    assert fewer.noise.error > MOST_ERROR


def test_a_plan_with_noise_as_json() -> None:
    result = CliRunner().invoke(main, ["plan", "--json", "--epsilon", "8", *FEDERATION])
    found = json.loads(result.output)
    assert found["noise"]["epsilon"] <= 8
    assert found["noise"]["verdict"] == "little is lost"
    assert found["certificate"] is None


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (["--epsilon", "0"], "epsilon must be a positive number"),
        (["--epsilon", "8", "--delta", "2"], "delta must be"),
        (["--delta", "1e-6"], "delta=1e-06 needs epsilon: give epsilon, too"),
        (["--epsilon", "8", "--metrics", "2"], "metrics=2 with noise.* give metrics=0"),
        (
            ["--epsilon", "1", "--dim", "10000000000"],
            "cannot be had .* For an error of 1: a model",
        ),
        (["--rho", "0.4999", "--devices", "1000000000000"], "are so close that up to"),
        (["--rho", "0.498", "--devices", "100000000"], "no secure sum has more than 1048576"),
    ],
)
def test_a_plan_with_noise_that_cannot_be_had(wrong: list[str], what: str) -> None:
    result = CliRunner().invoke(main, ["plan", *wrong])
    assert result.exit_code == 2, result.output
    assert re.search(what, " ".join(result.output.split()))
