"""Rounds that break the rules on several sums hold, with a warning."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rfa.aggregators import RFA, OneStepRFA
from rfa.receipts import Expected, ReceiptError, Verifier, read_receipt
from rfa.secagg.security.terms import Terms
from tests.receipts.rounds import Run, forge
from tests.secagg.party import SMALL

ROOMY = Terms(colluder_fraction=0.05, max_dropout_fraction=0.05, honest_per_query=0)


def warned(path: Path) -> tuple[str, ...]:
    return Verifier().check(path).warnings


def test_fewer_honest_devices_than_the_sums_take_are_said(tmp_path: Path) -> None:
    (path,) = Run(tmp_path, RFA(budget=3, nu=0.1), count=8).play()
    assert warned(path)[0].startswith("part 0: fewer honest devices than 3 sums take: ")
    assert warned(path)[0].endswith("and 35 are needed")


def test_sums_that_tell_of_few_beyond_the_radius_are_said(tmp_path: Path) -> None:
    """All devices are within the radius, so that the difference of two sums is about nobody."""
    (path,) = Run(tmp_path, RFA(budget=2, nu=1e3), count=24, terms=ROOMY).play()
    said = warned(path)
    assert len(said) == 1, "honest devices are enough"
    assert said[0] == (
        "masked sum 1 of part 0 was asked for with too few devices beyond the radius to hide each "
        "other"
    )


@pytest.mark.parametrize("max_share", [0.0, 0.9])
def test_rounds_that_keep_the_rules_are_not_warned_of(tmp_path: Path, max_share: float) -> None:
    aggregator = RFA(budget=2, nu=1e-3)
    run = Run(tmp_path / "two", aggregator, count=24, terms=ROOMY, max_share=max_share)
    assert warned(run.play()[0]) == ()
    (one,) = Run(tmp_path / "one", OneStepRFA(nu=1e3), terms=SMALL, max_share=max_share).play()
    assert warned(one) == ()


NINES = "9" * 400


@pytest.mark.parametrize(
    "text",
    [
        f"rfa-one-step:nu={NINES}",
        f"rfa:budget=3,nu=0.5,clip_norm={NINES}",
        f"fedavg:clip_norm={NINES}",
        f"rfa:budget={NINES}",
        f"rfa:budget={'9' * 4000}",
        f"fedavg:groups={NINES}",
        f"fedavg:groups={'9' * 30}",
        "rfa-one-step:nu=1e400",
        "rfa:budget=1000000000,schedule=sub-cohorts",
    ],
    ids=lambda text: text[:24],
)
def test_numbers_that_no_float_holds_get_a_verdict(tmp_path: Path, text: str) -> None:
    (path,) = Run(tmp_path, OneStepRFA(nu=1.0)).play()
    lie: Any = dataclasses.replace(read_receipt(path).receipt, aggregator=text)
    forged = forge(tmp_path / "lie.rfa", lie)
    for expected in (Expected(), Expected(aggregator="rfa-one-step:nu=1.0")):
        with pytest.raises(ReceiptError, match="aggregat"):
            Verifier(expected).check(forged)
