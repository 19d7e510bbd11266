"""`rfa sweep` takes every file that docs/reproduce.md describes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rfa.cli.main import main
from rfa.lab.report.exhibit import load
from rfa.lab.runs.sweep import Sweep, cells

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ARENA = """
order = 3
beyond = true
kind = "arena"
title = "Mine"
tasks = { "tests.tiny:TASK" = "Tiny" }
levels = [0.2]
attacks = ["omniscient"]
defenses = ["fedavg", "rfa"]
[settings]
rounds = 2
"""


def rfa(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def sweep(folder: Path, text: str, *options: str) -> Any:
    (folder / "mine.toml").write_text(text)
    return rfa("sweep", str(folder / "mine.toml"), "--out", str(folder), *options)


def test_an_arena_is_done_drawn_and_ranked(tmp_path: Path) -> None:
    result = sweep(tmp_path, ARENA)
    assert result.exit_code == 0, result.output
    assert "4 runs" in result.stderr
    assert "Tiny, level 0.2: accuracy in %" in result.stdout
    assert re.search(r"rank +defense", result.stdout)
    assert "pictures/mine.png" in result.stdout
    exhibit = load(tmp_path / "exhibits" / "mine.json")
    assert exhibit.command == f"rfa sweep {tmp_path / 'mine.toml'}"
    assert "Tiny, level 0.2" in [matrix.title for matrix in exhibit.matrices]
    page = rfa("report", "--out", str(tmp_path))
    assert page.exit_code == 0, page.output


@pytest.mark.parametrize(
    ("said", "rounds"),
    [("", {2000}), ("rounds = 7", {7}), ("calls = 6", {2, 6})],  # RFA makes three calls a round
)
def test_without_rounds_all_defenses_of_an_arena_have_the_same(
    said: str, rounds: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Sweep] = []
    monkeypatch.setattr("rfa.cli.sweep.do_sweep", lambda plan, *_: done.append(plan))  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    text = ARENA.replace("tests.tiny:TASK", "emnist-linear").replace("rounds = 2", said)
    result = sweep(tmp_path, text)
    assert result.exit_code == 0, result.output
    assert {cell.settings.rounds for cell in cells(done[0])} == rounds


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    assert "none.toml" in rfa("sweep", str(tmp_path / "none.toml")).stderr
    result = sweep(tmp_path, "title = [")
    assert result.exit_code == 2
    assert "mine.toml cannot be read" in " ".join(result.stderr.split())


@pytest.mark.parametrize("name", ["arena", "arena-long", "robustness", "comparators"])
def test_the_sweeps_and_arenas_of_the_repository_are_taken(name: str, tmp_path: Path) -> None:
    file = str(EXPERIMENTS / f"{name}.toml")
    result = rfa("sweep", file, "--dry-run", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert re.search(r"\d+ runs", result.stderr)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            ARENA.replace('"arena"', '"frozen"'),
            "mine.toml has kind = 'frozen', and rfa sweep does sweep and arena: take rfa reproduce "
            "mine --from",
        ),
        (ARENA.replace('kind = "arena"', "kind = 3"), "mine.toml has kind = 3, and rfa sweep does"),
        (re.sub("tasks = .*", "", ARENA), "the arena mine needs tasks with their titles"),
        (re.sub("tasks = .*", "tasks = []", ARENA), "the arena mine needs tasks with their titles"),
        (ARENA.replace('["omniscient"]', "3"), "attacks must be a list of names, not 3"),
        (ARENA.replace("defenses", "defences"), "the sweep mine is invalid: it has 'defences'"),
    ],
)
def test_other_files_are_refused_with_what_to_do(text: str, said: str, tmp_path: Path) -> None:
    result = sweep(tmp_path, text, "--dry-run")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
