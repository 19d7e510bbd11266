"""`rfa plan` against the protocol and the rounds that it is about."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rfa import PlainOracle, RecordingOracle, Sum, SumOracle, one_step, theory
from rfa._types import Floats
from rfa.aggregators import (
    RFA,
    BlockClipping,
    Groups,
    Mean,
    OneStepRFA,
    SubCohorts,
    SumAggregator,
)
from rfa.aggregators.partition import center_of_groups
from rfa.cli.main import main
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import split_cohort
from rfa.planning import PlanRequest, check_fit, plan
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
from rfa.secagg.errors import ParameterError
from rfa.secagg.fixed_point import Encoding
from rfa.secagg.messages.sizes import traffic
from rfa.secagg.oracle import open_round
from rfa.secagg.security import parameters
from rfa.secagg.server.requests import Outbox
from rfa.secagg.statistics import ALL, mask_of


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
@pytest.mark.parametrize(
    ("count", "steps", "limit", "fast"),
    [(6, 2, 0.0, False), (11, 1, 0.9, False), (6, 3, 0.0, True), (11, 1, 0.0, True)],
)
@pytest.mark.parametrize("from_zero", [True, False])
def test_the_traffic_is_that_of_the_protocol(
    trust: ServerModel, *, count: int, steps: int, limit: float, fast: bool, from_zero: bool
) -> None:
    rng = np.random.default_rng(5)
    secrets = {name: bytes([name]) * 32 for name in range(count)}
    known = {name: identity_of(secret) for name, secret in secrets.items()}
    terms = Terms(0.1, 0.15, server_model=trust, honest_per_query=0)
    policy = Policy(max_queries=steps, honest_per_query=0)
    devices = {
        name: Device(
            Contribution(rng.standard_normal(7).astype(np.float32), 1.0, (0.5,)),
            Profile(name, policy, Identity(secrets[name], known)),
        )
        for name in range(count)
    }
    sent = {"mass", "near"} if from_zero else ALL
    opening = open_round(
        1, terms, queries=steps, dim=7, metrics=1, max_share=limit, statistics=sent, fast=fast
    )
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
        statistics=sent,
        from_zero=from_zero,
        fast=fast,
    )
    assert set(scale.down.values()) == {wanted.down}
    assert set(scale.up.values()) == {wanted.up}
    assert set(scale.times.values()) == {wanted.exchanges}


def test_a_plan_as_a_table_and_as_json() -> None:
    said = CliRunner().invoke(main, ["plan", "--rho", "0.25", "--rounds", "500"])
    assert said.exit_code == 0, said.output
    assert "x FedAvg)" in said.output
    assert "35 for 3 secure sums about the same updates" in said.output
    assert re.search(r"exchanges per device +7 per round, training included", said.output)
    found = json.loads(
        CliRunner().invoke(main, ["plan", "--json", "--aggregator", "rfa:budget=1"]).output
    )
    assert found["theorem"] > found["exact"] == found["devices_per_round"]
    assert found["parameters"]["server_model"] == "semi-honest"
    assert found["traffic"]["up"] == pytest.approx(found["fedavg"], rel=0.01)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (["--rho", "0.5"], "no method tolerates more"),
        (["--rho", "0.2", "--theta", "0.1"], "theta=0.1 must exceed rho=0.2"),
        (["--confidence", "1"], "confidence must be between"),
        (["--devices", "3"], "devices are too few"),
        (
            ["--devices", "10", "--devices-per-round", "11"],
            "devices_per_round=11 is more than devices=10: give at most 10",
        ),
        (["--devices-per-round", "-1"], "devices_per_round must be a whole number from 0 on"),
        (["--devices", "0"], "Error: devices must be a whole number from 1 on, not 0"),
        (["--colluder-fraction", "0.9"], "at most 1 together"),
        (["--aggregator", "rfa:groups=3,schedule=sub-cohorts"], "splits a cohort itself"),
        (["--aggregator", "rfa:groups=9", "--devices-per-round", "8"], "cannot form 9 parts"),
        (
            ["--aggregator", "rfa-one-step:groups=9", "--devices", "20"],
            "one secure sum in each of 9 parts take 36",
        ),
        (
            ["--devices", "48"],
            "48 devices are too few: 3 secure sums about the same updates take 49",
        ),
        (["--devices", "48"], "or take rfa-one-step or sub-cohorts"),
        (["--devices-per-round", "48"], "Ask 49 devices or more, or each device once: one-step"),
        (["--devices-per-round", "4", "--honest-per-query", "0"], "Ask 6 devices or more"),
        (["--server-model", "malicious"], "take rfa-one-step, or RFA in sub-cohorts"),
        (["--aggregator", "krum"], "krum must see single updates"),
        (["--aggregator", "median"], "no aggregator is called 'median'"),
        (["--aggregator", "rfa:steps=2"], "rfa has no parameter 'steps'"),
        (["--aggregator", "rfa:budget=257"], "at most 256 queries a round"),
    ],
)
def test_a_plan_that_cannot_be_had_says_what_to_change(wrong: list[str], what: str) -> None:
    said = CliRunner().invoke(main, ["plan", *wrong])
    assert said.exit_code == 2
    assert what in " ".join(said.output.split())


@pytest.mark.parametrize("aggregator", [RFA(budget=1), "rfa:budget=1"])
def test_a_request_is_a_plan_in_python(aggregator: SumAggregator[Any] | str) -> None:
    request = PlanRequest(
        rho=0.1, devices=100, devices_per_round=50, dim=1000, aggregator=aggregator
    )
    found = plan(request)
    assert found.devices_per_round == found.parameters.cohort == 50
    assert found.certificate == pytest.approx(2 / 45)
    assert found.certificate_most == pytest.approx(4 / 50)


HOW: dict[str, Any] = {"rho": 0.2, "devices": 1000, "devices_per_round": 75, "dim": 1000}


@pytest.mark.parametrize(
    ("aggregator", "how"),
    [
        (RFA(), {"schedule": "plain"}),
        (RFA(schedule="accelerated", budget=4), {"schedule": "accelerated", "budget": 4}),
        (SubCohorts(RFA(budget=4)), {"schedule": "sub-cohorts", "budget": 4}),
        (Groups(RFA(budget=1), 7), {"groups": 7, "budget": 1}),
        (Groups(Mean(), 7), {"aggregator": "fedavg:groups=7"}),
    ],
)
def test_parts_and_queries_are_those_of_the_lab(
    aggregator: SumAggregator[Any], how: dict[str, Any]
) -> None:
    settings = Settings.of("glyphs-linear", devices_per_round=75, **how)
    request = PlanRequest(**HOW, aggregator=aggregator)
    assert request.layout == settings.layout
    found = plan(request)
    sizes = [len(rows) for rows in split_cohort(75, settings, t=3)]
    assert found.parts == len(sizes)
    assert found.parameters.cohort == min(sizes)
    worst = [
        traffic(
            Terms().parameters(size),
            queries=settings.layout.queries,
            dim=1000,
            metrics=2,
            statistics=aggregator.statistics,
            fast=True,
        )
        for size in sizes
    ]
    assert found.traffic.up == max(each.up for each in worst)


@pytest.mark.parametrize("aggregator", [RFA(budget=2), SubCohorts(RFA()), Mean()])
def test_the_bytes_of_a_large_model_follow_from_small_ones(aggregator: SumAggregator[Any]) -> None:
    request = PlanRequest(devices=1000, devices_per_round=75, dim=123_457, aggregator=aggregator)
    expected = traffic(
        request.terms.parameters(math.ceil(75 / request.layout.parts)),
        queries=request.layout.queries,
        dim=123_457,
        metrics=2,
        statistics=aggregator.statistics,
        from_zero=not request.layout.sequential,
        fast=True,
    )
    assert plan(request).traffic == expected
    plan(dataclasses.replace(request, dim=10**12))  # no message of that length is made


def test_in_sub_cohorts_a_device_sends_as_much_as_in_fedavg() -> None:
    whole = plan(PlanRequest(**HOW)).traffic
    parts = plan(PlanRequest(**HOW, aggregator=SubCohorts(RFA()))).traffic
    fedavg = plan(PlanRequest(**HOW, aggregator=Mean())).traffic
    assert parts.exchanges == fedavg.exchanges < whole.exchanges
    assert parts.up <= fedavg.up < whole.up / 2.5
    assert parts.down >= 4 * 1000, "the point of a later part travels"


@pytest.mark.parametrize("groups", [1, 3, 4, 7])
def test_as_many_liars_inside_of_sums_are_withstood(groups: int) -> None:
    """Each spoils a group of its own, by a part that is no legal message; one more is too many."""
    rng = np.random.default_rng(8)
    points = rng.standard_normal((groups, 10, 3))
    liars = plan(PlanRequest(**HOW, aggregator=Groups(RFA(budget=1), groups))).liars

    def distance(count: int) -> float:
        spoiled = [spoil(each, 1e9 * (place < count)) for place, each in enumerate(points)]
        asks = [RecordingOracle(ask) for ask in spoiled]
        center = center_of_groups(asks, lambda ask: one_step(ask, 3, nu=1.0))
        return float(np.linalg.norm(center))

    assert distance(liars) < 5
    assert distance(liars + 1) > 1e6


def spoil(points: Floats, by: float) -> SumOracle:
    """An oracle whose push somebody adds to."""
    ask = PlainOracle(points)

    def told(v: Floats, nu: Any) -> Sum:
        total = ask(v, nu)
        return replace(total, push=total.push + by)

    return told


def updates(m: int, rho: float, rng: np.random.Generator, *, spread: float) -> Floats:
    """A cohort, each corrupted with probability rho, and then far away."""
    points = rng.standard_normal((m, 50)) * np.exp(spread * rng.standard_normal((m, 1)))
    points[rng.random(m) < rho] += 1e6
    return points


@pytest.mark.parametrize("rho", [0.0, 0.25, 0.4])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_the_certificate_is_what_rounds_with_a_learned_radius_show(
    rho: float, groups: int, spread: float
) -> None:
    """Where honest updates are not equally far, those that are nearer make it smaller."""
    aggregator = Groups(RFA(), groups)
    settings = Settings.of("glyphs-linear", devices_per_round=90, groups=groups)
    rng, state, shown = np.random.default_rng(6), aggregator.init(), list[float]()
    for t in range(60):
        points = updates(90, rho, rng, spread=spread)
        asks = [RecordingOracle(PlainOracle(points[r])) for r in split_cohort(90, settings, t)]
        result, state = aggregator(asks, 50, state)
        certificates: list[float] = []
        for ask in asks:
            assert ask.last
            certificates.append(ask.last.certificate())
            assert certificates[-1] <= theory.largest_certificate(
                max(1, int(ask.last.need("near")))
            )
        assert result.certificate == max(certificates)
        if t >= 20:
            shown += certificates
    request = PlanRequest(
        rho=rho,
        devices=1000,
        devices_per_round=90,
        dim=50,
        aggregator=aggregator,
        terms=Terms(honest_per_query=0),
    )
    told = plan(request)
    assert told.certificate is not None
    assert told.certificate_most is not None
    assert np.mean(shown) <= 1.1 * told.certificate
    assert np.mean(shown) >= 0.85 * told.certificate or spread
    assert told.certificate <= told.certificate_most


@pytest.mark.parametrize(
    ("aggregator", "options", "what"),
    [
        (
            RFA(),
            {"terms": Terms(server_model=ServerModel.MALICIOUS)},
            "for one query a device, not for 3",
        ),
        (RFA(budget=3), {"max_queries": 2}, "at most 2 queries a round"),
        (RFA(budget=200), {"max_share": 0.5}, "200 queries take 400 secure sums"),
        (Groups(RFA(), 9), {"devices": 8}, "8 devices per round cannot form 9 parts"),
        (Groups(RFA(), 4), {"devices": 8}, "2 devices are too few"),
        (Groups(RFA(budget=1), 4), {"devices": 40, "max_share": 0.05}, "give 0.1 or more"),
        (RFA(budget=3), {"devices": 48}, "34 honest ones .* and 35 must be. Ask 49 devices"),
        (Groups(RFA(budget=2), 4), {"devices": 104}, "of 26 devices 18 honest ones .* Ask 27"),
        (RFA(), {"terms": Terms(honest_per_query=0), "devices": 4}, "Ask 6 devices or more"),
        (RFA(early_stop=0.1), {}, "needs the objective"),
        (Mean(clip_norm=float("inf")), {}, "secure sums are of clipped updates"),
        (BlockClipping(size=1), {"weights": "examples"}, "give equal weights, or blocks of 2"),
    ],
)
def test_what_secure_sums_do_not_allow_is_said_in_one_place(
    aggregator: SumAggregator[Any], options: dict[str, Any], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        check_fit(aggregator, options.pop("terms", Terms()), **options)


def test_what_fits_is_allowed() -> None:
    malicious = Terms(server_model=ServerModel.MALICIOUS)
    for aggregator in (OneStepRFA(), Mean(), SubCohorts(RFA(budget=4)), Groups(Mean(), 4)):
        check_fit(aggregator, malicious, devices=40)
    check_fit(RFA(budget=3), Terms(), devices=49, max_share=0.5, max_queries=3)
    check_fit(Groups(RFA(budget=2), 4), Terms(), devices=108)
    check_fit(RFA(budget=3), Terms(honest_per_query=0), devices=6)
    check_fit(BlockClipping(size=1), malicious, devices=40)
    check_fit(BlockClipping(size=2), malicious, devices=40, weights="examples")


@pytest.mark.parametrize(
    ("size", "dim"), [(1, 7), (3, 7), (7, 7), (8, 7), (8, 1), (2**32 - 1, 7), (8, 10**9)]
)
def test_the_bytes_of_blocks_are_counted_whatever_their_size(size: int, dim: int) -> None:
    found = plan(PlanRequest(dim=dim, aggregator=f"block-clipping:size={size}"))
    few = min(dim, 1000)
    at = min(size, few)
    wanted = traffic(
        found.parameters, queries=1, dim=few, metrics=2, statistics={"weight"}, fast=True, block=at
    )
    blocks = math.ceil(dim / size) - math.ceil(few / at)
    assert found.traffic.down == wanted.down + blocks
    assert found.traffic.up == wanted.up + 4 * (dim - few)


def test_more_votes_than_words_have_digits_for_are_refused_with_the_remedy() -> None:
    most = parameters.MAX_VOTERS
    asked = PlanRequest(devices=100_000, devices_per_round=most, aggregator="block-clipping")
    assert plan(asked).devices_per_round == most
    with pytest.raises(ValueError, match=rf"votes of {most + 1} .*groups=2 or more, or at most"):
        replace(asked, devices_per_round=most + 1)
    grouped = replace(asked, devices_per_round=most + 1, aggregator="block-clipping:groups=2")
    assert plan(grouped).parts == 2
    Encoding(most, mask_of({"weight"}), block=8)
    with pytest.raises(ParameterError, match="votes"):
        Encoding(most + 1, mask_of({"weight"}), block=8)
