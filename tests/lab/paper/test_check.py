"""Frozen numbers against fresh runs: every number of a run is compared, to the bit."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.lab.paper.releases import SUMS, copy, edit, reproduce, rows

Made = tuple[Path, Path, Path]


def test_fresh_runs_confirm_frozen_numbers_to_the_bit(made: Made, tmp_path: Path) -> None:
    files, _, numbers = made
    result = reproduce(files, tmp_path, "--numbers-from", str(numbers), "--check", "2")
    assert result.exit_code == 0, result.output
    assert result.output.count("the same to the bit") == 2


def nudged(row: dict[str, str], column: str) -> dict[str, str]:
    """A row with a number that is another in its last bit."""
    return row | {column: repr(math.nextafter(float(row[column]), 0.0))}


def changed(row: dict[str, str], file: str) -> dict[str, str]:
    if file == "runs.csv":
        return row | {"model_sha256": row["model_sha256"][::-1]}
    if file == "facts.csv":
        return nudged(row, "value")
    return nudged(row, "train_loss") if row["round"] == "8" else row


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("evaluations.csv", "train_loss after round 8"),
        ("runs.csv", "model_sha256"),
        ("facts.csv", "weight of the poisoned in the mean"),
    ],
)
def test_a_number_that_differs_in_its_last_bit_is_found(
    made: Made, tmp_path: Path, file: str, what: str
) -> None:
    """Even where whoever changed it left out what tells how the files were."""
    files, _, numbers = made
    forged = copy(numbers, tmp_path / "numbers", SUMS, "numbers.csv")
    edit(forged / file, lambda row: changed(row, file))
    result = reproduce(files, tmp_path, "--numbers-from", str(forged), "--check", "8")
    assert result.exit_code == 1
    assert f"differ, first {what}" in result.output


def test_facts_are_among_the_numbers_that_are_compared(made: Made, tmp_path: Path) -> None:
    files, _, numbers = made
    without = copy(numbers, tmp_path / "numbers", SUMS, "numbers.csv")
    edit(without / "facts.csv", lambda row: None)
    counts: list[int] = []
    for number, folder in enumerate((numbers, without)):
        out = tmp_path / str(number)
        result = reproduce(files, out, "--numbers-from", str(folder), "--check", "8")
        assert result.exit_code == 0, result.output
        lines = [line for line in result.output.splitlines() if "the same to the bit" in line]
        counts.append(sum(int(line.split(": ")[1].split()[0]) for line in lines))
    assert counts[0] - counts[1] == len(rows(numbers / "facts.csv"))
