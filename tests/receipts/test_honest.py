"""Receipts of honest rounds hold, of every private aggregator, for both models of the server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.aggregators import (
    RFA,
    CenteredClipping,
    Groups,
    Mean,
    OneStepRFA,
    SubCohorts,
    SumAggregator,
)
from rfa.receipts import Expected, Verifier, read_model, read_receipt
from rfa.receipts.models import digest_of
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.in_process import Losses
from rfa.secagg.messages.stages import Moment, Stage
from tests.receipts.rounds import SECRET, Run, first_model
from tests.secagg.party import MALICIOUS, SMALL

AGGREGATORS: list[SumAggregator[Any]] = [
    RFA(budget=3, nu=0.5),
    RFA(budget=3),
    RFA(budget=3, start="mean", nu=0.5),
    RFA(budget=4, schedule="accelerated", nu=0.5),
    OneStepRFA(),
    Mean(),
    Mean(clip_norm=None),
    CenteredClipping(budget=2),
    SubCohorts(RFA(budget=3)),
    Groups(OneStepRFA(), 3),
    Groups(RFA(budget=2), 3),
]


def lose(which: int, moment: Moment) -> Any:
    def lost(names: Sequence[int]) -> Losses:
        return {names[which]: moment}

    return lost


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi-honest", "malicious"])
@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=repr)
def test_receipts_of_honest_rounds_hold(
    tmp_path: Path, aggregator: SumAggregator[Any], terms: Any
) -> None:
    run = Run(tmp_path, aggregator, count=24, terms=terms)
    files = run.play(3)
    first = read_model(tmp_path / "first-model.npz")
    expected = Expected(signer=identity_of(SECRET), models=(("first", first), ("last", run.model)))
    verifier = Verifier(expected)
    verified = [verifier.check(path) for path in files]
    verifier.check_models()
    assert all(one.computed for one in verified)
    assert [one.chain for one in verified] == [
        "the first of its run",
        "follows round 1",
        "follows round 2",
    ]
    assert digest_of(first) == digest_of(first_model())
    assert verified[-1].signed.receipt.model_after == digest_of(run.model)


def test_a_learned_radius_is_part_of_the_record(tmp_path: Path) -> None:
    run = Run(tmp_path, OneStepRFA())
    receipts = [read_receipt(path).receipt for path in run.play(2)]
    radii = [float(receipt.state_after["nu"]) for receipt in receipts]
    assert radii[1] == run.state.nu
    assert radii[0] != radii[1]
    assert receipts[0].parts[0].sums[0].nu == 0.1
    assert receipts[1].parts[0].sums[0].nu == radii[0]


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi-honest", "malicious"])
@pytest.mark.parametrize(
    "moment",
    [Moment(0, Stage.ROSTER), Moment(0, Stage.SUM), Moment(0, Stage.UNMASK)],
    ids=str,
)
def test_receipts_of_rounds_with_drop_outs_hold(tmp_path: Path, terms: Any, moment: Moment) -> None:
    run = Run(tmp_path, OneStepRFA(), count=12, terms=terms, lost=lose(2, moment))
    verified = [Verifier().check(path) for path in run.play()]
    ((part,),) = [one.parts for one in verified]
    gone = moment != Moment(0, Stage.UNMASK)
    assert len(part.sums[0].survivors) == 12 - gone


def test_a_round_that_stopped_between_queries_holds_with_the_sums_that_it_has(
    tmp_path: Path,
) -> None:
    lost = lose(2, Moment(1, Stage.SUM))
    run = Run(tmp_path, RFA(budget=3, nu=0.5), count=12, lost=lost)
    (path,) = run.play()
    verified = Verifier().check(path)
    assert verified.parts[0].stopped == "SurvivorsChangedError"
    assert len(verified.parts[0].sums) == 1


def test_a_group_without_a_cohort_is_recorded_as_such(tmp_path: Path) -> None:
    def lost(names: Sequence[int]) -> Losses:
        return {name: Moment(0, Stage.OPEN) for name in names} if 5 in names else {}

    run = Run(tmp_path, Groups(OneStepRFA(), 3), count=24, lost=lost)
    (path,) = run.play()
    verified = Verifier().check(path)
    assert [part.stopped for part in verified.parts] == ["TooFewDevicesError", "", ""]


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi-honest", "malicious"])
def test_a_limit_on_shares_takes_two_masked_sums_a_query(tmp_path: Path, terms: Any) -> None:
    run = Run(tmp_path, OneStepRFA(nu=10.0), count=12, terms=terms, max_share=0.5)
    (path,) = run.play()
    assert len(Verifier().check(path).parts[0].sums) == 2


def test_a_receipt_holds_nothing_of_a_single_device_but_digests_and_keys(tmp_path: Path) -> None:
    run = Run(tmp_path, OneStepRFA(nu=0.5), dim=50)
    (path,) = run.play()
    data = path.read_bytes()
    for table in run.parties:
        for part in table.parts.values():
            assert part is not None
            for start in range(0, 48, 2):
                assert part.update[start : start + 2].tobytes() not in data
            assert np.float64(part.weight).tobytes() not in data


def test_a_receipt_is_about_r_plus_two_models_long(tmp_path: Path) -> None:
    dim = 20_000
    run = Run(tmp_path, RFA(budget=3, nu=0.5), dim=dim)
    (path,) = run.play()
    assert path.stat().st_size == pytest.approx(4 * dim * (3 + 2), rel=0.05)
