"""What a summary, a list and a page say of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from rfa.cli.main import main
from rfa.lab import load_run

TASK = "tests.tiny:TASK"


def rfa(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def test_sybils_are_named_and_it_is_said_that_their_dropped_updates_do_not_count(
    tmp_path: Path,
) -> None:
    how = ["--rounds", "2", "--workers", "1", "--corruption", "nan", "--out", str(tmp_path)]
    result = rfa("run", TASK, "--sybils", "4", *how)
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "corruption nan, rho 0: 0 of 24 devices, and 4 sybils in every round" in text
    assert "dropped updates 0, those of sybils not counted" in text
    (row,) = json.loads(rfa("runs", "--json", "--out", str(tmp_path)).stdout)
    assert row["dropped_updates"] == 0, "as in the runs that are published"
    assert "nan by 4 sybils" in rfa("runs", "--out", str(tmp_path)).output
    assert ", nan by 4 sybils:" in str(load_run(row["run"], tmp_path))
    page = tmp_path / "page.html"
    assert rfa("report", row["run"], "--out", str(tmp_path), "--to", str(page)).exit_code == 0
    assert "rfa, nan by 4 sybils" in page.read_text(encoding="utf-8")


def test_a_run_without_sybils_says_nothing_of_them(tmp_path: Path) -> None:
    how = ["--rounds", "2", "--workers", "1", "--corruption", "nan", "--out", str(tmp_path)]
    result = rfa("run", TASK, "--rho", "0.2", *how)
    assert result.exit_code == 0, result.output
    assert "sybil" not in result.output
