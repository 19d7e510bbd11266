"""Runs with noise: budgets that stop them, kills that undercharge nobody, and what they show."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rfa import lab
from rfa.cli.main import main
from rfa.lab.runs import checkpoint, spent
from rfa.lab.runs.progress import Bar
from rfa.lab.runs.screens import Screen, Shown
from rfa.lab.runs.store import Store
from rfa.lab.settings.settings import Settings
from rfa.privacy import NoisySum, epsilon_of
from rfa.secagg.security.terms import Terms
from tests.lab.runs.test_run import COMMAND, Notes, do, kill_on_its_way, results
from tests.thorough import part_or_all

ONE: dict[str, Any] = {"aggregator": "rfa-one-step"}
NOISY = ["run", "tests.tiny:TASK", "--aggregator", "rfa-one-step", "--workers", "1"]


def rfa(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def saved(out: Path, row: dict[str, Any]) -> checkpoint.Checkpoint:
    settings = Settings.from_dict(json.loads(row["settings"]))
    found = checkpoint.load(out / row["run"] / "checkpoint.npz", settings.aggregation)
    assert found is not None
    return found


def participations(out: Path, run: str, until: int | None = None) -> Counter[int]:
    with Store(out) as store:
        rounds = store.table("rounds", run=run)
    return Counter(
        device
        for row in rounds
        if until is None or row["round"] <= until
        for device in json.loads(row["devices"])
    )


@pytest.mark.parametrize(
    "values",
    [
        {**ONE, "epsilon": 8.0},
        {**ONE, "epsilon": 8.0, "noise": 3.0, "rounds": 60, "checkpoint_every": 4},
        {**ONE, "noise": 0.1, "corruption": "sign-flip", "rho": 0.2, "worker_momentum": 0.5},
        {**ONE, "epsilon": 8.0, "noise_cohort": 500, "groups": 2, "dropout_rate": 0.1},
        {"aggregator": "adaptive-clipping", "noise": 0.1, "noise_model": "central"},
        {"aggregator": "rfa", "budget": 2, "epsilon": 4.0, "secure": "on"},
    ],
)
def test_interrupted_and_gone_on_with_is_the_same_to_the_bit(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    whole = do(tmp_path / "whole", **values)
    for stop in (1, 5, 8):
        with pytest.raises(KeyboardInterrupt):
            do(tmp_path / "parts", Notes(stop), **{**values, "checkpoint_every": 3})
    again = do(tmp_path / "parts", **{**values, "checkpoint_every": 3})
    assert again["model_sha256"] == whole["model_sha256"]
    assert results(tmp_path / "parts", again["run"]) == results(tmp_path / "whole", whole["run"])
    both = saved(tmp_path / "parts", again), saved(tmp_path / "whole", whole)
    assert both[0].state.charges == both[1].state.charges
    if values.get("noise_model") != "central":
        assert both[0].state.charges.largest > 0


def test_a_run_whose_budget_is_spent_keeps_the_model_and_says_so(tmp_path: Path) -> None:
    how = ["--epsilon", "8", "--noise", "3", "--rounds", "300", "--out", str(tmp_path)]
    found = rfa(*NOISY, *how)
    assert found.exit_code == 0, found.output
    row = json.loads(rfa(*NOISY, *how, "--json").stdout)
    assert row["status"] == "spent"
    assert 3 < row["rounds"] < 300
    assert "spent after" in found.stdout
    assert "the privacy budget of epsilon=8 is spent" in " ".join(found.stdout.split())
    assert row["epsilon_server"] <= 8
    assert row["noise_multiplier"] == 3
    counted = participations(tmp_path, row["run"])
    kept = saved(tmp_path, row | {"settings": json.dumps(row["settings"])}).state
    cohort, terms = row["settings"]["training"]["devices_per_round"], Terms()
    each = NoisySum(cohort, terms.honest(cohort), 3.0, len(kept.model)).rho
    assert kept.charges.largest == pytest.approx(max(counted.values()) * each)
    assert row["epsilon_server"] == pytest.approx(epsilon_of(kept.charges.largest, 1e-5))
    with Store(tmp_path) as store:
        last = store.table("evaluations", run=row["run"])[-1]
    assert last["round"] == row["rounds"], "the last model is evaluated"
    assert last["test_accuracy"] == row["test_accuracy"]
    again = rfa(*NOISY, *how)
    assert "was done before" in again.stderr
    listed = rfa("runs", "--out", str(tmp_path), "--status", "spent").output
    assert row["run"][-10:] in listed


def test_charges_are_those_of_the_rounds_that_a_device_was_in(tmp_path: Path) -> None:
    row = do(tmp_path, **ONE, noise=2.0, rounds=10)
    charges = saved(tmp_path, row).state.charges
    counted = participations(tmp_path, row["run"])
    each = charges.largest / max(counted.values())
    assert {device for device, _ in charges.charges} == set(counted)
    for device, count in counted.items():
        assert charges.of(device) == pytest.approx(count * each)
    with Store(tmp_path) as store:
        rounds = store.table("rounds", run=row["run"])
        evaluations = store.table("evaluations", run=row["run"])
    spending = [each["epsilon_server"] for each in rounds]
    assert spending == sorted(spending)
    assert spending[-1] == row["epsilon_server"] == evaluations[-1]["epsilon_server"]
    assert evaluations[0]["epsilon_server"] == 0


@part_or_all("kills", 2, 5)
def test_killed_at_random_moments_nobody_is_undercharged(tmp_path: Path, kills: int) -> None:
    """After each kill the checkpoint charges all rounds that it has, and at the end all are."""
    rounds = 120 * kills
    how = ["--aggregator", "rfa-one-step", "--noise", "5", "--rounds", str(rounds)]
    how += ["--eval-every", "60"]
    command = [*COMMAND, *how, "--checkpoint-every", "7", "--out", str(tmp_path / "parts")]
    chance = random.Random(7)  # noqa: S311
    settings = Settings.of("tests.tiny:TASK", **ONE, noise=5.0, rounds=rounds, eval_every=60)
    path = tmp_path / "parts" / settings.run_name / "checkpoint.npz"
    each = 0.0
    for _ in range(kills):
        kill_on_its_way(command, tmp_path / "parts", chance.uniform(0, 0.15))
        kept = checkpoint.load(path, settings.aggregation)
        assert kept is not None
        counted = participations(tmp_path / "parts", settings.run_name, kept.state.round)
        assert sum(counted.values()) == 8 * kept.state.round
        each = each or kept.state.charges.largest / max(counted.values())
        assert each > 0
        for device, count in counted.items():
            assert kept.state.charges.of(device) == pytest.approx(count * each)
    last = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    how_whole: dict[str, Any] = {"noise": 5.0, "rounds": rounds, "eval_every": 60}
    whole = do(tmp_path / "whole", **ONE, **how_whole, honest_per_query=16)
    parts = json.loads(last.stdout)
    assert parts["model_sha256"] == whole["model_sha256"]
    assert parts["epsilon_server"] == whole["epsilon_server"]
    assert results(tmp_path / "parts", parts["run"]) == results(tmp_path / "whole", whole["run"])


# What is shown


def test_a_summary_has_both_epsilons_and_a_simulated_cohort(tmp_path: Path) -> None:
    how = [*NOISY, "--rounds", "4", "--epsilon", "8", "--out", str(tmp_path)]
    plain = " ".join(rfa(*how).stdout.split())
    assert "against the server, at delta 1e-05" in plain
    assert "against readers of the models" in plain or spent.MISSING in plain
    assert "simulated" not in plain
    assert "reveal everything" not in plain
    large = " ".join(rfa(*how, "--delta", "0.1").stdout.split())
    assert "delta of " in large
    assert "it may reveal everything about 2 of 24 devices: give a delta of 0.01 or less" in large
    simulated = " ".join(rfa(*how, "--noise-cohort", "1000").stdout.split())
    assert "(noise of 1000 devices per round, simulated)" in simulated
    listed = " ".join(rfa("runs", "--out", str(tmp_path)).output.split())
    assert "noise_cohort=1000" in listed.replace(" ", "")
    central = " ".join(
        rfa(*how[:-4], "--noise", "1", "--noise-model", "central", *how[-2:]).stdout.split()
    )
    assert "which sees every update and must be trusted" in central


def test_exports_and_tables_have_them(tmp_path: Path) -> None:
    result = lab.run(
        "tests.tiny:TASK", **ONE, epsilon=8, noise_cohort=500, rounds=4, out=tmp_path, workers=1
    )
    do(tmp_path, **ONE, rounds=4)
    assert result.epsilon_server == pytest.approx(8, rel=0.01)
    assert "epsilon" in str(result)
    assert "500 devices per round, simulated" in str(result)
    asked = "epsilon=8.0,delta=1e-05,noise_cohort=500"
    for table in ("runs", "evaluations", "rounds", "devices"):
        file = tmp_path / f"{table}.csv"
        rfa("runs", "export", str(file), "--table", table, "--out", str(tmp_path))
        with file.open() as stream:
            rows = list(csv.DictReader(stream))
        noisy = [row for row in rows if row["privacy"]]
        assert {row["privacy"] for row in noisy} == {asked}
        assert len(noisy) == len(rows) / 2
        if table != "devices":
            assert float(noisy[-1]["epsilon_server"]) == pytest.approx(8, rel=0.01)
    (first, second) = lab.list_runs(tmp_path)
    assert first["noise_multiplier"] > 0
    assert np.isnan(second["noise_multiplier"])
    shown = rfa("runs", "show", result.name, "--out", str(tmp_path)).output
    assert "epsilon" in shown
    page = rfa("report", "--out", str(tmp_path)).output.strip()
    text = Path(page).read_text()
    assert asked in text
    assert "noise of 500 devices per round, simulated" in text


def test_a_study_over_epsilon_says_what_is_simulated(tmp_path: Path) -> None:
    how: dict[str, Any] = {"rounds": 3, "noise_cohort": 500, "out": tmp_path, "jobs": 1}
    study = lab.sweep("tests.tiny:TASK", **ONE, epsilon=[0, 8], progress=False, **how)
    figure = study.plot(x="epsilon")
    assert figure.get_suptitle() == "noise of 500 devices per round, simulated"
    none, noisy = (row["epsilon_server"] for row in study.table)
    assert np.isnan(none)
    assert noisy == pytest.approx(8, rel=0.01)
    plain = study.where(epsilon=0).plot(x="epsilon")
    assert plain.get_suptitle() == ""


class Kept(Screen):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def show(self, shown: Shown) -> None:
        self.texts.append(shown.text)


def test_progress_shows_what_is_spent(tmp_path: Path) -> None:
    screen = Kept()
    do(tmp_path, Bar("x", screen), **ONE, epsilon=8.0, noise_cohort=700, rounds=4)
    told = [text for text in screen.texts if "epsilon" in text]
    assert len(told) >= 5
    assert all("noise of 700 devices per round, simulated" in text for text in told)
    quiet = Kept()
    do(tmp_path, Bar("x", quiet), **ONE, rounds=4)
    assert not any("epsilon" in text for text in quiet.texts)


def test_without_the_accountant_readers_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [name for name in sys.modules if name.startswith("dp_accounting.")]
    for name in ("dp_accounting", "dp_accounting.pld", *there):
        monkeypatch.setitem(sys.modules, name, None)
    row = do(tmp_path, **ONE, epsilon=7.25, rounds=4)  # as no other test, whose losses are kept
    assert row["epsilon_readers"] is None
    assert row["epsilon_server"] == pytest.approx(7.25, rel=0.01)
    lines = spent.privacy_lines(row, json.loads(row["settings"]))
    assert lines["  readers"] == spent.MISSING
    with pytest.raises(Exception, match=r"rfa\[dp\]"):
        do(tmp_path, aggregator="adaptive-clipping", epsilon=8.0, noise_model="central")


def test_against_readers_less_is_spent(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    row = do(tmp_path, **ONE, epsilon=8.0, rounds=12)
    assert 0 < row["epsilon_readers"] < row["epsilon_server"]
    how: dict[str, Any] = {"aggregator": "adaptive-clipping", "noise_model": "central"}
    trusted = do(tmp_path, **how, epsilon=8.0, rounds=12, divergence_factor=0)
    assert trusted["status"] == "finished"
    assert trusted["epsilon_server"] is None
    assert trusted["epsilon_readers"] == pytest.approx(8.0, rel=0.01)
    assert trusted["epsilon_readers"] <= 8.0


def test_mistakes_on_the_command_line_name_the_remedy(tmp_path: Path) -> None:
    for options, says in (
        (["--epsilon", "8", "--secure", "off"], "give secure=unmasked or secure=on"),
        (["--epsilon", "8", "--weights", "examples"], "needs weights=equal"),
        (["--noise-cohort", "100"], "give epsilon or noise"),
        (["--epsilon", "1e-6"], "cannot be had"),
    ):
        found = rfa(*NOISY, *options, "--out", str(tmp_path))
        assert found.exit_code == 2, found.output
        assert says in " ".join(found.stderr.split())
        assert "Traceback" not in found.stderr


def test_the_help_has_a_section_of_privacy() -> None:
    text = rfa("run", "--help").output
    assert "Differential privacy:" in text
    for option in ("--epsilon", "--delta", "--noise", "--noise-cohort", "--noise-model"):
        assert f"{option} " in text
