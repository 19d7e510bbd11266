"""Aggregators with parameters, and of one's own: in runs, sweeps, the arena and plans."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rfa.aggregators import RFA
from rfa.cli.main import main
from rfa.lab.report.exhibit import load
from rfa.lab.runs.jobs import do_work, plan_work
from rfa.lab.runs.run import Options
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import cells, make_sweep
from tests.lab.runs.test_jobs import Notes, tiny

TASK = "tests.tiny:TASK"
RUN = ["run", TASK, "--rounds", "3", "--workers", "1", "--json"]
OWN = """
from dataclasses import dataclass
import numpy as np
from rfa.aggregators import SumAggregator
from rfa.aggregators.clear import ClearAggregator


@dataclass(frozen=True)
class HalfStep(SumAggregator[None]):
    nu: float = 1.0

    def aggregate(self, oracles, dim, state):
        total = oracles[0](np.zeros(dim), self.nu)
        return self.nu * total.push / total.mass / 2


class Shortest(ClearAggregator):
    def aggregate(self, points, weights):
        order = np.argsort(np.linalg.norm(points, axis=1))
        return points[order[: (len(order) + 1) // 2]].mean(axis=0)
"""


def rfa(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def run(out: Path, *more: str) -> dict[str, Any]:
    result = rfa(*RUN, "--out", str(out), *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the user's own with an aggregator of each kind."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "own_aggregators", raising=False)
    path = tmp_path / "own_aggregators.py"
    path.write_text(OWN)
    return path


def test_a_run_takes_parameters_of_its_aggregator(tmp_path: Path) -> None:
    told = run(tmp_path / "text", "--aggregator", "rfa:budget=4")
    option = run(tmp_path / "option", "--budget", "4")
    assert (told["aggregator"], told["oracle_calls"]) == ("rfa:budget=4", 12)
    assert (told["run"], told["model_sha256"]) == (option["run"], option["model_sha256"])
    assert told["model_sha256"] != run(tmp_path / "text")["model_sha256"]
    both = rfa(*RUN, "--out", str(tmp_path), "--aggregator", "rfa:budget=4", "--budget", "9")
    assert both.exit_code == 2
    assert "budget=9 contradicts 'rfa:budget=4'" in both.output
    other = rfa(*RUN, "--out", str(tmp_path), "--aggregator", "krum", "--budget", "9")
    assert other.exit_code == 2
    assert "budget=9 is not for krum" in other.output


def test_the_paper_s_settings_are_those_of_the_name(tmp_path: Path) -> None:
    row = run(tmp_path, "--aggregator", "sgd:clip_norm=5")
    assert row["settings"]["training"]["local_steps"] == 1
    assert row["settings"]["training"]["batch_fraction"] == 0.1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rfa:steps=4", "rfa has no parameter 'steps', as in 'rfa:steps=4': it has budget, nu"),
        ("rfa:budget", "'budget' in 'rfa:budget' is no parameter: write name=value"),
        ("rfa:budget=0", "budget must be a whole number from 1 on"),
        ("nowhere:NAME", "nowhere cannot be imported"),
        ("tests.tiny:TASK", "must be a SumAggregator or a ClearAggregator"),
        ("tests.tiny:HeavyBall:speed=1", "has no parameter 'speed'"),
    ],
)
def test_a_wrong_text_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    for command in (RUN, ["plan"]):
        where = ["--out", str(tmp_path)] if command is RUN else []
        result = rfa(*command, "--aggregator", text, *where)
        assert result.exit_code == 2, result.output
        assert says in " ".join(result.stderr.split())
        assert "Traceback" not in result.output


SWEEP = """
x = "aggregator"
values = ["rfa:budget=1", "rfa:budget=4"]
[settings]
task = "tests.tiny:TASK"
calls = 8
[[lines]]
label = "quick"
learning_rate = 0.2
[[lines]]
label = "slow"
"""
LINES = """
[settings]
task = "tests.tiny:TASK"
calls = 8
[[lines]]
label = "four"
aggregator = "rfa:budget=4"
[[lines]]
label = "in groups"
aggregator = "fedavg:groups=2"
"""


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (SWEEP, {("rfa:budget=1", 8, 8), ("rfa:budget=4", 2, 8)}),
        (LINES, {("rfa:budget=4", 2, 8), ("fedavg:groups=2", 8, 8)}),
    ],
)
def test_a_sweep_has_them_in_its_values_and_its_lines(
    content: str, wanted: set[Any], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content)
    result = rfa("sweep", str(file), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    with Store(tmp_path / "out") as store:
        rows = store.runs()
    assert {(row["aggregator"], row["rounds"], row["oracle_calls"]) for row in rows} == wanted


def test_a_sweep_in_python_takes_objects() -> None:
    values = {"settings": {"task": TASK}, "lines": [{"aggregator": RFA(budget=4)}]}
    (cell,) = cells(make_sweep("s", values))
    assert cell.settings.aggregation == RFA(budget=4)


def test_the_arena_has_them_as_defenses(tmp_path: Path) -> None:
    defenses = ["--defense", "rfa:budget=4", "--defense", "rfa:budget=1,label=one"]
    how = ["--rounds", "2", "--attack", "alie:z=1.5", "--level", "0.2", "--out", str(tmp_path)]
    result = rfa("arena", TASK, *how, *defenses, "--json")
    assert result.exit_code == 0, result.output
    (level,) = json.loads(result.stdout)["levels"]
    assert {run["defense"] for run in level["runs"]} == {"rfa:budget=4", "one"}
    assert {run["attack"] for run in level["runs"]} == {"none", "alie:z=1.5"}
    with Store(tmp_path) as store:
        calls = {row["aggregator"]: row["oracle_calls"] for row in store.runs()}
    assert calls == {"rfa:budget=4": 8, "rfa:budget=1": 2}
    exhibit = load(tmp_path / "exhibits/arena-tests.tiny-TASK.json")
    assert "--attack alie:z=1.5 --defense rfa:budget=4" in exhibit.command


@pytest.mark.usefixtures("own")
def test_ones_own_run_in_the_clear_and_private_ones_under_secure_sums(tmp_path: Path) -> None:
    name = "own_aggregators:HalfStep:nu=0.5"
    lossy = ["--devices-per-round", "12", "--dropout-rate", "0.1"]
    clear = run(tmp_path, "--aggregator", "own_aggregators:Shortest")
    assert clear["oracle_calls"] == 3
    plain = run(tmp_path, "--aggregator", name)
    assert (
        plain["train_loss"] == run(tmp_path, "--aggregator", name[:-7], "--nu", "0.5")["train_loss"]
    )
    masked, unmasked = (
        run(tmp_path, "--aggregator", name, "--secure", secure, *lossy)
        for secure in ("on", "unmasked")
    )
    assert masked["model_sha256"] == unmasked["model_sha256"]
    grouped = [f"{name},groups=2", "--secure", "on", *lossy]
    assert run(tmp_path, "--aggregator", *grouped)["status"] == "finished"
    result = rfa(*RUN, "--aggregator", "own_aggregators:Shortest", "--secure", "on")
    assert result.exit_code == 2
    assert "own_aggregators:Shortest must see single updates" in " ".join(result.stderr.split())


@pytest.mark.usefixtures("own")
def test_ones_own_in_sweeps_the_arena_and_plans(tmp_path: Path) -> None:
    names = ["own_aggregators:HalfStep:nu=0.5", "own_aggregators:Shortest"]
    file, out = tmp_path / "mine.toml", ["--out", str(tmp_path / "out")]
    file.write_text(
        f'x = "aggregator"\nvalues = {json.dumps(names)}\n[settings]\ntask = "{TASK}"\nrounds = 2\n'
    )
    result = rfa("sweep", str(file), *out)
    assert result.exit_code == 0, result.output
    defenses = [word for name in names for word in ("--defense", name)]
    how = ["--rounds", "2", "--attack", "omniscient", "--level", "0.2", "--json", *out]
    result = rfa("arena", TASK, *defenses, *how)
    assert result.exit_code == 0, result.output
    (level,) = json.loads(result.stdout)["levels"]
    private = {worst["defense"]: worst["private"] for worst in level["worst"]}
    assert private == dict(zip(names, (True, False), strict=True))
    planned = json.loads(rfa("plan", "--aggregator", names[0], "--json").stdout)
    assert planned["parts"] == 1
    refused = rfa("plan", "--aggregator", names[1])
    assert refused.exit_code == 2
    assert "must see single updates" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("name", ["own_aggregators:HalfStep:nu=0.5", "own_aggregators:Shortest"])
def test_a_changed_aggregator_is_noticed(
    name: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["--aggregator", name]
    first = run(tmp_path / "out", *command)
    assert run(tmp_path / "out", *command)["model_sha256"] == first["model_sha256"]
    settings, options = tiny(aggregator=name), Options(tmp_path / "out")
    assert plan_work([settings], options).todo == []
    own.write_text(OWN + "# another version\n")
    stale = rfa(*RUN, *command, "--out", str(tmp_path / "out"))
    assert stale.exit_code == 2
    assert "changed since it was imported here" in " ".join(stale.output.split())
    monkeypatch.delitem(sys.modules, "own_aggregators")  # as in another process
    changed = rfa(*RUN, *command, "--out", str(tmp_path / "out"))
    assert changed.exit_code == 1
    assert "or your own code, has changed" in " ".join(changed.output.split())
    work = plan_work([settings], options)
    assert work.todo == [settings]
    (problem,) = do_work(work, options, Notes()).values()
    assert "your own code, has changed" in problem
