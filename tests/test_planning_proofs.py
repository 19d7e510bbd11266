"""`rfa plan` states what is proven of an aggregator, and of no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rfa import PlainOracle, RecordingOracle
from rfa._types import Floats
from rfa.aggregators import (
    RFA,
    BlockClipping,
    CenteredClipping,
    Groups,
    Layout,
    Mean,
    OneStepRFA,
    SubCohorts,
    SumAggregator,
)
from rfa.cli.main import main
from rfa.planning import PlanRequest, plan
from rfa.secagg import Contribution, Terms
from rfa.secagg.oracle import open_round
from rfa.secagg.unmasked import UnmaskedOracle


class Halved(SumAggregator[None]):
    """One's own aggregator, which proves no share."""

    def aggregate(self, oracles: Sequence[RecordingOracle], dim: int, state: None) -> Floats:
        total = oracles[0](np.zeros(dim), 1.0)
        return total.push / total.need("mass") / 2


class Thirds(Halved):
    """The same from the first of three parts: the others do not help against a liar in it."""

    def layout(self, devices: int) -> Layout:
        return Layout(parts=3)


def test_parts_without_a_median_of_them_withstand_no_liar() -> None:
    assert plan(PlanRequest(aggregator=Thirds())).liars == 0
    assert plan(PlanRequest(aggregator=Groups(Halved(), 3))).liars == 1


MEANS: list[SumAggregator[Any]] = [
    Mean(),
    Mean(clip_norm=None),
    CenteredClipping(budget=1),
    BlockClipping(),
    Groups(Mean(), 4),
    Groups(CenteredClipping(budget=1), 4),
]
MEDIANS: list[SumAggregator[Any]] = [
    RFA(budget=1),
    OneStepRFA(),
    SubCohorts(RFA()),
    Groups(RFA(budget=1), 4),
    Groups(OneStepRFA(), 4),
]


@pytest.mark.parametrize("aggregator", [*MEANS, Halved()])
def test_the_certificate_of_a_mean_is_that_of_its_secure_sums(
    aggregator: SumAggregator[Any],
) -> None:
    """A part of 20 devices, with the totals that devices send."""
    terms, rng = Terms(), np.random.default_rng(2)
    request = PlanRequest(devices=100, devices_per_round=80, dim=16, aggregator=aggregator)
    found = plan(request)
    asks = [
        UnmaskedOracle(
            open_round(
                1,
                terms,
                queries=1,
                dim=16,
                statistics=aggregator.statistics,
                block=aggregator.block,
            ),
            terms,
            {
                device: Contribution(rng.standard_normal(16).astype(np.float32))
                for device in range(80 // found.parts)
            },
        )
        for _ in range(found.parts)
    ]
    result, _ = aggregator(asks, 16)
    assert found.certificate == result.certificate
    assert found.certificate_most == result.certificate


@pytest.mark.parametrize("aggregator", [*MEANS, *MEDIANS, Halved()])
def test_what_a_round_tolerates_is_said_of_geometric_medians_alone(
    aggregator: SumAggregator[Any],
) -> None:
    found = plan(PlanRequest(aggregator=aggregator))
    assert found.c_theta == (pytest.approx(6.25) if aggregator in MEDIANS else None)


def test_a_plan_for_a_mean_in_words() -> None:
    options = ["--devices", "20", "--devices-per-round", "10"]
    text, median = (
        " ".join(CliRunner().invoke(main, ["plan", *options, "--aggregator", name]).output.split())
        for name in ("fedavg", "rfa-one-step")
    )
    assert "largest share 10.0% of a step, for devices of equal weight" in text
    assert "certificate the same: a mean shares by weights" in text
    assert "certificate about 22.2%; at most 40.0%" in median
    assert "no round of 100 has more than 30.0%" in text
    assert "tolerated nothing proven" in text
    for words in ("a round tolerates 30.0%", "C_theta = 6.2", "the paper's theorem needs 96"):
        assert words in median
        assert words not in text


def test_a_plan_for_means_of_groups_and_for_ones_own_in_words() -> None:
    command = ["plan", "--aggregator", "bucketing:groups=5"]
    text = " ".join(CliRunner().invoke(main, command).output.split())
    assert "tolerated up to 2 corrupted devices, which are in fewer than half of the parts" in text
    command = ["plan", "--aggregator", f"{__name__}:Halved"]
    text = " ".join(CliRunner().invoke(main, command).output.split())
    assert "tolerated nothing proven" in text
    assert "certificate none: the aggregator proves none" in text


def test_the_certificate_of_a_mean_of_clipped_blocks_is_that_of_its_sums() -> None:
    found = plan(PlanRequest(aggregator="block-clipping"))
    updates = np.random.default_rng(1).standard_normal((found.devices_per_round, 20))
    result, _ = BlockClipping()([PlainOracle(updates)], 20, None)
    assert result.certificate == pytest.approx(found.certificate)
    assert found.certificate_most == found.certificate == found.share
