"""`rfa sweep` and `rfa report`, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rfa.cli.main import main

SWEEP = """
title = "My <b>attack</b>"
x = "rho"
values = [0.0, 0.25]
[settings]
task = "tests.tiny:TASK"
corruption = "tests.tiny:backwards"
calls = 6
[[lines]]
label = "FedAvg"
aggregator = "fedavg"
[[lines]]
label = "RFA"
aggregator = "rfa"
"""


def rfa(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "mine.toml").write_text(SWEEP)
    result = rfa("sweep", str(folder / "mine.toml"), "--out", str(folder))
    assert result.exit_code == 0, result.output
    assert "4 runs: less than a minute" in result.stderr
    assert "pictures/mine.png" in result.stdout
    return folder


def test_a_sweep_is_done_once(out: Path) -> None:
    result = rfa("sweep", str(out / "mine.toml"), "--out", str(out))
    assert "all 4 runs are done already" in result.stderr


def test_the_report_shows_the_sweep(out: Path) -> None:
    result = rfa("report", "--out", str(out))
    assert result.exit_code == 0, result.output
    page = (out / "report.html").read_text()
    assert "My &lt;b&gt;attack&lt;/b&gt;" in page
    assert f"rfa sweep {out / 'mine.toml'}" in page


def test_the_report_shows_single_runs(out: Path, tmp_path: Path) -> None:
    rows = json.loads(rfa("runs", "--out", str(out), "--json").stdout)
    name = rows[0]["run"].rsplit(".", 1)[-1]
    result = rfa("report", name, "--out", str(out), "--to", str(tmp_path / "new" / "one.html"))
    assert result.exit_code == 0, result.output
    page = (tmp_path / "new" / "one.html").read_text()
    assert "training loss against rounds" in page
    assert "attack" not in page.partition("page-data")[0].partition("How it was made")[0]


def test_without_experiments_all_runs_are_shown(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        run = ("run", "tests.tiny:TASK", "--rounds", "2", "--seed", seed, "--workers", "1")
        assert rfa(*run, "--out", str(tmp_path)).exit_code == 0
    result = rfa("report", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "means of 2 seeds" in (tmp_path / "report.html").read_text()


def test_a_page_of_personalized_runs_is_of_honest_devices_and_says_so(tmp_path: Path) -> None:
    run = ("run", "tests.tiny:TASK", "--rounds", "2", "--workers", "1", "--out", str(tmp_path))
    corrupted = ("--corruption", "data", "--rho", "0.3")
    assert rfa(*run, *corrupted).exit_code == 0
    rfa("report", "--out", str(tmp_path))
    page = (tmp_path / "report.html").read_text()
    assert "test accuracy of honest devices (%)" not in page
    assert "honest devices (%)" in page
    assert rfa(*run, *corrupted, "--personalize").exit_code == 0
    rfa("report", "--out", str(tmp_path))
    page = (tmp_path / "report.html").read_text()
    assert "test accuracy of honest devices (%)" in page
    assert "all devices (%)" in page


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["report", "nonsense"], "no run matches"),
        (["sweep", "none.toml"], "none.toml"),
        (["sweep", "mine.toml", "-j", "0"], "-j"),
    ],
)
def test_mistakes_are_named(out: Path, arguments: list[str], text: str) -> None:
    result = rfa(*arguments, "--out", str(out))
    assert result.exit_code != 0
    assert text in result.stderr
    assert "Traceback" not in result.output


def test_nothing_to_show_is_said(tmp_path: Path) -> None:
    result = rfa("report", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "there are no results in" in result.stderr
    (tmp_path / "exhibits").mkdir()
    (tmp_path / "exhibits" / "broken.json").write_text("{")
    result = rfa("report", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "broken.json cannot be read" in result.stderr


def test_runs_that_fail_are_named_and_the_rest_is_drawn(tmp_path: Path) -> None:
    text = SWEEP.replace("values = [0.0, 0.25]", "values = [4, 999]")
    text = text.replace('x = "rho"', 'x = "devices_per_round"')
    text = text.replace("calls = 6", "calls = 6\nrho = 0.25")
    (tmp_path / "bad.toml").write_text(text)
    result = rfa("sweep", str(tmp_path / "bad.toml"), "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "devices_per_round=999 of 24 devices" in result.stderr
    assert "2 runs failed, for the reasons above" in result.stderr
    assert (tmp_path / "pictures" / "bad.png").exists()
    assert "2 of 4 runs are not done" in (tmp_path / "exhibits" / "bad.json").read_text()


def test_results_in_a_folder_inside_are_named(out: Path) -> None:
    result = rfa("report", "--out", str(out.parent))
    assert result.exit_code == 2
    assert f"--out {out}" in result.stderr.replace("\n", "")
