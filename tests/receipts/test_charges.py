"""Receipts of rounds with noise say what each sum was charged, and `rfa verify` what that means."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from rfa.aggregators import Groups, Mean, OneStepRFA
from rfa.cli.main import main
from rfa.privacy import epsilon_of
from rfa.receipts import Receipt, ReceiptError, Verifier, read_receipt
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.noise import noisy_sum
from tests.receipts.rounds import Run, forge, with_part

NOISE = 1.5


def run_of(folder: Path, noise: float = NOISE, rounds: int = 1) -> tuple[Run, list[Path]]:
    run = Run(folder, OneStepRFA(nu=1.0), noise=noise)
    return run, run.play(rounds)


def charge_of(run: Run) -> float:
    table = run.parties[0]
    scales = noisy_sum(table.opening, table.terms.parameters(len(table.parts)))
    assert scales is not None
    return scales.rho


def changed(tmp_path: Path, path: Path, **cohort: object) -> str:
    """Why a receipt does not hold whose server signed another cohort."""
    receipt: Receipt = with_part(read_receipt(path).receipt, 0, cohort=cohort)
    with pytest.raises(ReceiptError) as caught:
        Verifier().check(forge(tmp_path / "lie.rfa", receipt))
    return str(caught.value)


def test_charges_are_those_of_the_noise_and_add_up(tmp_path: Path) -> None:
    run, files = run_of(tmp_path, rounds=3)
    verifier, charge = Verifier(), charge_of(run)
    for number, path in enumerate(files, 1):
        verified = verifier.check(path)
        assert verified.noisy
        assert verified.signed.receipt.parts[0].cohort.rho == charge
        assert verified.rho == charge
        assert verified.total_rho == pytest.approx(number * charge)
        assert verified.signed.receipt.certificate is None
    assert {device.spent_rho for device in run.parties[0].devices.values()} == {charge}


def test_a_charge_that_the_noise_does_not_make_is_found(tmp_path: Path) -> None:
    run, (path,) = run_of(tmp_path)
    for lie in (0.0, charge_of(run) * (1 - 1e-15), 1.0):
        reason = changed(tmp_path, path, rho=lie)
        assert f"its sums are said to be charged {lie}, and their noise makes it" in reason
    _, (plain,) = run_of(tmp_path / "plain", noise=0.0)
    assert "and their noise makes it 0.0" in changed(tmp_path, plain, rho=0.1)


def test_an_opening_that_no_device_joins_is_found(tmp_path: Path) -> None:
    _, (path,) = run_of(tmp_path)
    opening = decode_as(OpenRound, read_receipt(path).receipt.parts[0].cohort.opening)
    lie = dataclasses.replace(opening, metrics=1).encode()
    reason = changed(tmp_path, path, opening=lie)
    assert "the cohort of part 0 does not hold" in reason


def test_who_was_asked_and_dropped_out_is_charged_too(tmp_path: Path) -> None:
    """Its input left it, and may have come late."""
    run = Run(
        tmp_path,
        OneStepRFA(nu=1.0),
        noise=NOISE,
        lost=lambda names: {names[0]: Moment(0, Stage.SUM)},
    )
    first = Verifier().check(run.play()[0])
    assert first.rho == first.total_rho == charge_of(run)


def test_each_part_has_its_own_charge_and_a_device_is_in_one(tmp_path: Path) -> None:
    run = Run(tmp_path, Groups(Mean(clip_norm=1.0), 2), count=12, noise=NOISE)
    verified = Verifier().check(run.play()[0])
    charges = {part.rho for part in verified.parts}
    assert len(verified.parts) == 2
    assert verified.rho == max(charges) > 0


def test_a_round_without_noise_has_no_epsilon(tmp_path: Path) -> None:
    run, (first,) = run_of(tmp_path)
    run.noise = 0.0
    second = run.book.write(run.receipt())
    verifier = Verifier()
    verifier.check(first)
    verified = verifier.check(second)
    assert math.isinf(verified.rho)
    assert math.isinf(verified.total_rho)
    _, (plain,) = run_of(tmp_path / "plain", noise=0.0)
    assert not Verifier().check(plain).noisy
    shown = verify(first, second)
    assert "in all no epsilon (a sum without noise) for the most charged node" in shown
    assert "privacy" not in verify(plain)


def verify(*arguments: Path | str) -> str:
    result = CliRunner().invoke(main, ["verify", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_shows_epsilon_for_each_round_and_in_all(tmp_path: Path) -> None:
    run, files = run_of(tmp_path, rounds=2)
    charge = charge_of(run)
    lines = verify(*files, "--delta", "1e-6").splitlines()
    one, both = (f"epsilon {epsilon_of(times * charge, 1e-6):.3g}" for times in (1, 2))
    shown = " ".join(" ".join(lines).split())
    assert shown.count(f"privacy noise 1.5: {one} at delta 1e-06 for this round") == 2
    assert f"{both} at delta 1e-06 for the most charged node so far" in shown
    assert lines[-1] == f"in all {both} at delta 1e-06 for the most charged node"
    assert "largest share the aggregator proves no bound" in shown
    result = CliRunner().invoke(main, ["verify", str(files[0]), "--delta", "2"])
    assert result.exit_code != 0
    assert "delta must be" in result.output
