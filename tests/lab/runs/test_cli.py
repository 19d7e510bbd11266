"""The commands of the lab, as a user types them."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rfa.cli.main import main
from rfa.lab.runs.store import Store

SIZES = {"runs": 1, "evaluations": 2, "rounds": 4, "devices": 48}
"""Rows that a run of four rounds leaves."""
TINY = ["run", "tests.tiny:TASK", "--rounds", "4", "--workers", "1"]


def rfa(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def test_a_run_prints_a_summary(tmp_path: Path) -> None:
    result = rfa(*TINY, "--corruption", "omniscient", "--rho", "0.2", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    for text in ("finished after 4 rounds", "test accuracy", "worst tenth", "oracle calls     12"):
        assert text in result.stdout


def numbers_of(line: str) -> list[str]:
    return re.findall(r"[\d.]+%", line)


def test_accuracy_over_honest_devices_stands_beside_that_over_all(tmp_path: Path) -> None:
    how = [*TINY, "--corruption", "data", "--rho", "0.3", "--out", str(tmp_path)]
    plain, personal = rfa(*how), rfa(*how, "--personalize")
    rows = [json.loads(rfa(*how, *more, "--json").stdout) for more in ([], ["--personalize"])]
    for row in rows:
        assert row["honest_accuracy"] != row["test_accuracy"]
        assert len(row["corrupted"]) == row["corrupted_devices"]
    overall, honest = (f"{rows[1][name]:.1%}" for name in ("test_accuracy", "honest_accuracy"))
    assert f"test accuracy    honest {honest} (all {overall})" in personal.stdout
    overall, honest = (f"{rows[0][name]:.1%}" for name in ("test_accuracy", "honest_accuracy"))
    assert f"test accuracy    {overall} (honest {honest})" in plain.stdout
    listed = rfa("runs", "--out", str(tmp_path)).output
    for row, mark in zip(rows, ("", "*"), strict=True):
        (line,) = [each for each in listed.splitlines() if each.startswith(row["run"][-10:])]
        first = row["honest_accuracy" if mark else "test_accuracy"]
        assert numbers_of(line) == [f"{first:.1%}", f"{row['honest_accuracy']:.1%}"]
        assert (f"{first:.1%}*" in line) is bool(mark)
    assert "* personalized: over honest devices" in listed
    shown = rfa("runs", "show", rows[0]["run"], "--out", str(tmp_path)).output
    assert f"{rows[0]['honest_accuracy']:.1%}" in shown


def test_without_corrupted_devices_there_is_one_accuracy(tmp_path: Path) -> None:
    result = rfa(*TINY, "--personalize", "--out", str(tmp_path))
    assert "honest" not in result.stdout


def test_json_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    result = rfa(*TINY, "--json", "--out", str(tmp_path))
    found = json.loads(result.stdout)
    assert result.stderr == ""
    wanted = ("task", "aggregator", "corruption", "rho", "seed", "rounds", "oracle_calls")
    more = ("test_accuracy", "train_loss", "diverged", "seconds", "median_device", "worst_tenth")
    assert set(wanted + more) <= set(found)
    assert found["diverged"] is False
    assert 0 <= found["test_accuracy"] <= 1
    assert found["settings"]["rounds"] == 4


def test_a_run_that_diverged_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    result = rfa(
        *TINY, "--max-norm", "1e-9", "--max-rejected", "2", "--json", "--out", str(tmp_path)
    )
    assert result.exit_code == 3
    assert json.loads(result.stdout)["diverged"] is True


def test_settings_from_a_file_and_to_a_file(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    out = ["--out", str(tmp_path)]
    one = rfa(*TINY, "--seed", "7", "--save-config", str(config), "--json", *out)
    two = rfa("run", "--config", str(config), "--json", *out)
    assert json.loads(one.stdout)["run"] == json.loads(two.stdout)["run"]
    three = rfa("run", "--config", str(config), "--seed", "8", "--workers", "1", "--json", *out)
    assert json.loads(three.stdout)["seed"] == 8


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run"], 2, "no task is given"),
        (["run", "mnist"], 2, "no task is called 'mnist'"),
        (["run", "no_such:task"], 2, "no_such cannot be imported"),
        (["run", "tests.tiny:flip"], 2, "must be an rfa.lab.tasks.task.Task"),
        (["run", "glyphs-linear", "--rho", "0.2"], 2, "rho=0.2 needs a corruption"),
        (["run", "glyphs-linear", "--aggregator", "mean"], 2, "no aggregator is called 'mean'"),
        (
            ["run", "glyphs-linear", "--learning-rate", "-1"],
            2,
            "learning_rate must be a positive number",
        ),
        (
            ["run", "glyphs-linear", "--learning-rate", "nan"],
            2,
            "learning_rate must be a positive number",
        ),
        (["run", "glyphs-linear", "--seed", "9" * 20], 2, "seed must be at most"),
        (["run", "glyphs-linear", "--workers", "0"], 2, "0 is not in the range"),
        (["run", "--config", "missing.toml"], 2, "missing.toml cannot be read"),
        (["run", "emnist-linear", "--data-dir", "nowhere"], 1, "rfa data get emnist"),
        ([*TINY, "--corruption", "tests.tiny:nothing", "--rho", "0.1"], 2, "no such name"),
        ([*TINY, "--corruption", "tests.tiny:broken", "--rho", "0.5"], 1, "no data for you"),
        ([*TINY, "--devices-per-round", "99"], 2, "devices_per_round=99 of 24 devices"),
        ([*TINY, "--secure", "maybe"], 2, "is not one of"),
        ([*TINY, "--secure", "on", "--aggregator", "multi-krum"], 2, "must see single updates"),
        ([*TINY, "--dropout-rate", "0.1"], 2, "needs secure=unmasked or secure=on"),
        ([*TINY, "--secure", "on", "--devices-per-round", "2"], 2, "2 devices are too few"),
        ([*TINY, "--out", "setup.cfg/x"], 1, "cannot be used"),
        (["runs", "--out", "nowhere"], 1, "there are no results in nowhere"),
        (["runs", "show", "x", "--out", "nowhere"], 1, "there are no results in nowhere"),
        (["tune", "tests.tiny:TASK", "--learning-rates", "a,b"], 2, "is not a list of numbers"),
        (
            ["tune", "tests.tiny:TASK", "--learning-rates", "0"],
            2,
            "learning_rate must be a positive number",
        ),
        (["tune", "tests.tiny:TASK", "--corruption", "data"], 2, "without an attack"),
    ],
)
def test_mistakes_end_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    says: str,
) -> None:
    (tmp_path / "setup.cfg").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[3]), *sys.path])
    result = rfa(*arguments)
    assert result.exit_code == code, result.output
    assert says in " ".join(result.output.replace("│", " ").split())
    assert "Traceback" not in result.output


def test_runs_are_listed_filtered_shown_and_exported(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    for seed in ("1", "2"):
        rfa(*TINY, "--seed", seed, "--json", *out)
    listed = rfa("runs", *out)
    assert listed.output.count("finished") == 2
    only = json.loads(rfa("runs", "--seed", "2", "--json", *out).stdout)
    assert [row["seed"] for row in only] == [2]
    assert "no run matches" in rfa("runs", "--status", "diverged", *out).output
    shown = rfa("runs", "show", only[0]["run"][-6:], *out)
    assert shown.exit_code == 0, shown.output
    assert "The last 2 evaluations" in shown.output
    both = rfa("runs", "show", "tests", *out)
    assert both.exit_code == 2
    assert "2 runs match 'tests'" in both.output
    whole = json.loads(rfa("runs", "show", only[0]["run"], "--json", *out).stdout)
    assert len(whole["evaluations"][0]["device_accuracy"]) == 24


@pytest.mark.parametrize("table", ["runs", "evaluations", "rounds", "devices"])
def test_exports_can_be_read_back(tmp_path: Path, table: str) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    out = ["--out", str(tmp_path)]
    rfa(*TINY, "--aggregator", "coordinate-median", "--json", *out)
    for ending in ("csv", "parquet"):
        result = rfa("runs", "export", str(tmp_path / f"x.{ending}"), "--table", table, *out)
        assert result.exit_code == 0, result.output
    with (tmp_path / "x.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    again = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert len(rows) == len(again) == SIZES[table]
    assert list(rows[0]) == list(again[0])
    assert list(rows[0])[:4] == ["run", "task", "aggregator", "parameters"]
    assert [row["run"] for row in rows] == [row["run"] for row in again]
    wrong = rfa("runs", "export", str(tmp_path / "x.xls"), *out)
    assert wrong.exit_code == 2
    assert ".csv or .parquet" in wrong.output


def test_an_export_of_the_last_of_each_run(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    for seed in ("1", "2"):
        rfa(*TINY, "--seed", seed, "--json", *out)
    file = tmp_path / "x.csv"
    for table, count, last in (("evaluations", 2, "4"), ("rounds", 2, "4"), ("devices", 48, "4")):
        result = rfa("runs", "export", str(file), "--table", table, "--last", *out)
        assert f"{count} rows of {table} written" in result.stderr
        with file.open(newline="") as stream:
            assert {row["round"] for row in csv.DictReader(stream)} == {last}
    wrong = rfa("runs", "export", str(file), "--table", "runs", "--last", *out)
    assert wrong.exit_code == 2
    assert "one row per run" in wrong.output


def test_tuning_finds_the_better_rate_on_held_out_data(tmp_path: Path) -> None:
    arguments = [
        "--learning-rates",
        "0.0001,0.1",
        "--lr-decays",
        "1",
        "--rounds",
        "8",
        "--out",
        str(tmp_path),
    ]
    result = rfa("tune", "tests.tiny:TASK", "--json", "--workers", "1", *arguments)
    found = json.loads(result.stdout)
    assert found["best"]["learning_rate"] == 0.1
    assert [trial["settings"]["evaluation"]["holdout"] for trial in found["trials"]] == [0.2, 0.2]
    assert [trial["aggregator"] for trial in found["trials"]] == ["fedavg", "fedavg"]
    shown = rfa("tune", "tests.tiny:TASK", *arguments)
    assert "rfa run tests.tiny:TASK --rounds 8 --learning-rate 0.1 --lr-decay 1" in shown.output


def test_the_tasks_are_listed() -> None:
    result = rfa("tasks")
    assert result.exit_code == 0
    assert "shakespeare-lstm" in result.output


def test_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # tests may run unheard
    code = f"import runpy, signal; {heard}; runpy.run_module('rfa', run_name='__main__')"
    command = [sys.executable, "-c", code, *TINY, "--rounds", "100000", "--out", str(tmp_path)]
    process = subprocess.Popen(  # noqa: S603
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    database = tmp_path / "runs.sqlite"
    try:
        while not list(tmp_path.glob("*/checkpoint.npz")):
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "the same command resumes it" in err
    assert "Traceback" not in err
    assert database.exists()


def test_a_run_that_nobody_is_running_is_interrupted(tmp_path: Path) -> None:
    rfa(*TINY, "--json", "--out", str(tmp_path))
    with Store(tmp_path) as store:
        store.rewind(store.runs()[0]["run"], 0)  # as a kill leaves it
    assert "interrupted" in rfa("runs", "--out", str(tmp_path)).output
    assert "no run matches" in rfa("runs", "--status", "finished", "--out", str(tmp_path)).output


def test_a_run_that_was_done_before_says_so(tmp_path: Path) -> None:
    rfa(*TINY, "--out", str(tmp_path))
    again = rfa(*TINY, "--out", str(tmp_path))
    assert "was done before: --fresh does it again" in again.stderr
    assert "finished after 4 rounds" in again.stdout


def test_a_changed_attack_is_noticed_and_its_prints_stay_out_of_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from rfa.lab.attacks.corruption import corrupts_updates\n"
        "@corrupts_updates\ndef f(attack):\n    print('hello')\n"
        "    return -attack.updates[attack.corrupted]\n"
    )
    (tmp_path / "own_attack.py").write_text(code)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    command = [*TINY, "--corruption", "own_attack:f", "--rho", "0.3", "--out", str(tmp_path)]
    first = rfa(*command, "--json")
    assert json.loads(first.stdout)["corruption"] == "own_attack:f"
    assert "hello" in first.stderr
    (tmp_path / "own_attack.py").write_text(code + "# another version\n")
    monkeypatch.delitem(sys.modules, "own_attack")
    changed = rfa(*command)
    assert changed.exit_code == 1
    assert "or your own code, has changed" in " ".join(changed.output.split())


def test_a_secure_run_says_so(tmp_path: Path) -> None:
    how = ["--secure", "unmasked", "--devices-per-round", "8", "--start", "current", "--nu", "0.1"]
    how += ["--honest-per-query", "0"]
    result = rfa(*TINY, *how, "--dropout-rate", "0.15", "--rounds", "6", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "largest share" in result.output
    assert "stopped rounds" in result.output
    listed = rfa("runs", "--out", str(tmp_path)).output
    assert "(unmasked)" in listed
