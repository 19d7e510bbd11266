"""Runs: killed and gone on with, alike to the bit; and what they leave in the store."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.aggregators import AdaptiveRadius
from rfa.lab.datasets.cache import load
from rfa.lab.datasets.dataset import DataError
from rfa.lab.lock import LockedError, hold_lock
from rfa.lab.runs import run as running
from rfa.lab.runs.callback import Callback, RunView
from rfa.lab.runs.checkpoint import CheckpointError
from rfa.lab.runs.store import Store
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts
from tests.thorough import part_or_all
from tests.tiny import lax

COMMAND = [sys.executable, "-m", "rfa", "run", "tests.tiny:TASK", "--json", "--workers", "2"]


class Notes(Callback):
    """Keeps what it is told, and may interrupt the run after a round."""

    def __init__(self, interrupt: int = -1) -> None:
        self.interrupt, self.rounds, self.evaluations = interrupt, list[int](), list[Any]()

    def on_round(self, run: RunView, facts: Facts) -> None:
        self.rounds.append(run.round)
        if run.round == self.interrupt:
            raise KeyboardInterrupt

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


def do(out: Path, *callbacks: Callback, **values: Any) -> dict[str, Any]:
    how = {name: values.pop(name) for name in ("fresh", "checkpoint_every") if name in values}
    settings = Settings.where_taken(**{"task": "tests.tiny:TASK", **lax(values)})
    options = running.Options(out=out, workers=1, **how)
    return running.run(settings, options, callbacks)


def results(out: Path, run: str) -> list[Any]:
    """All numbers of a run that do not depend on the clock."""
    with Store(out) as store:
        rows = store.runs(run=run) + store.table("evaluations", run=run)
        rows += store.table("rounds", run=run)
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "started")}
        for row in rows
    ]


def test_what_a_run_leaves(tmp_path: Path) -> None:
    notes = Notes()
    authors: dict[str, Any] = {"nu": 1e-6, "start": "mean"}
    row = do(tmp_path, notes, corruption="omniscient", rho=0.2, rounds=10, **authors)
    assert (row["status"], row["rounds"], row["oracle_calls"]) == ("finished", 10, 30)
    assert row["corrupted_devices"] > 0
    assert [evaluation.round for evaluation in notes.evaluations] == [0, 4, 8, 10]
    assert row["test_accuracy"] == notes.evaluations[-1].test_accuracy
    assert row["honest_accuracy"] == notes.evaluations[-1].honest_accuracy
    assert row["honest_accuracy"] != row["test_accuracy"]
    assert len(json.loads(row["corrupted"])) == row["corrupted_devices"]
    with Store(tmp_path) as store:
        rounds = store.table("rounds", run=row["run"])
        evaluations = store.table("evaluations", run=row["run"])
    assert [r["round"] for r in rounds] == list(range(1, 11))
    assert all(len(json.loads(r["devices"])) == 8 for r in rounds)
    assert all(set(json.loads(r["corrupted"])) <= set(json.loads(r["devices"])) for r in rounds)
    assert all(abs(sum(json.loads(r["weights"])) - 1) < 1e-4 for r in rounds)
    assert all(r["oracle_calls"] == 3 and r["objective"] > 0 for r in rounds)
    assert [e["round"] for e in evaluations] == [0, 4, 8, 10]
    assert len(json.loads(evaluations[0]["device_accuracy"])) == 24
    assert [e["honest_worst_tenth"] for e in evaluations] == [
        evaluation.honest_worst_tenth for evaluation in notes.evaluations
    ]
    assert all(set(json.loads(r["corrupted"])) <= set(json.loads(row["corrupted"])) for r in rounds)
    assert json.loads(row["settings"])["attack"]["rho"] == 0.2
    assert row["version"]
    assert row["model_sha256"]


def test_the_names_of_devices_are_kept_once_for_the_same_data(tmp_path: Path) -> None:
    rows = [do(tmp_path, rounds=1, seed=seed) for seed in (1, 2)]
    few = do(tmp_path, rounds=1, devices=10)
    with Store(tmp_path) as store:
        names = [store.names(row["data"]) for row in rows]
        assert store.names(few["data"]) == names[0][:10]
        assert store.names("nothing") == []
    assert rows[0]["data"] == rows[1]["data"]
    assert sorted(names[0]) == [f"d{i:02}" for i in range(24)]


@pytest.mark.parametrize(
    "values",
    [
        {"corruption": "gaussian", "rho": 0.2},
        {"personalize": True, "proximal_mu": 1.0},
        {"worker_momentum": 0.9, "corruption": "sign-flip", "rho": 0.2},
        {"worker_momentum": 0.5, "secure": "unmasked", "dropout_rate": 0.1},
        {"server_optimizer": "adam", "server_learning_rate": 0.05, "server_momentum": 0.9},
        {"server_momentum": 0.5, "aggregator": "fedavg", "tail_average": True},
        {"aggregator": "rfa:groups=2", "corruption": "anti-median", "rho": 0.2},
        {"schedule": "sub-cohorts", "secure": "unmasked", "devices_per_round": 12},
        {"aggregator": "adaptive-clipping"},
        {"aggregator": "tests.tiny:HeavyBall:nu=0.2"},
    ],
)
def test_interrupted_and_gone_on_with_is_the_same_to_the_bit(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    whole = do(tmp_path / "whole", **values)
    for stop in (1, 5, 8, 11):
        with pytest.raises(KeyboardInterrupt):
            do(tmp_path / "parts", Notes(stop), checkpoint_every=3, **values)
    notes = Notes()
    again = do(tmp_path / "parts", notes, checkpoint_every=3, **values)
    assert notes.rounds[0] == 10  # from the checkpoint after round 9
    assert again["model_sha256"] == whole["model_sha256"]
    assert results(tmp_path / "parts", again["run"]) == results(tmp_path / "whole", whole["run"])


KEEPING = {"personal": ["--personalize"], "momentum": ["--worker-momentum", "0.9"]}


@pytest.mark.parametrize("keeps", KEEPING)
@part_or_all("kills", 2, 4)
def test_killed_at_random_moments_it_ends_the_same_to_the_bit(
    tmp_path: Path, keeps: str, kills: int
) -> None:
    arguments = [
        "--rounds",
        str(200 * kills),
        *KEEPING[keeps],
        "--corruption",
        "gaussian",
        "--rho",
        "0.1",
    ]
    command = [*COMMAND, *arguments, "--eval-every", "50"]
    whole = subprocess.run(  # noqa: S603
        [*command, "--out", str(tmp_path / "whole")], capture_output=True, text=True, check=True
    )
    command += ["--out", str(tmp_path / "parts")]
    chance = random.Random(5)  # noqa: S311
    for _ in range(kills):
        kill_on_its_way(command, tmp_path / "parts", chance.uniform(0, 0.12))
    last = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    one, parts = json.loads(whole.stdout), json.loads(last.stdout)
    assert parts["model_sha256"] == one["model_sha256"]
    assert results(tmp_path / "parts", parts["run"]) == results(tmp_path / "whole", one["run"])
    carried = [_carried(tmp_path / out) for out in ("parts", "whole")]
    assert carried[0] == carried[1]
    assert carried[0]["nu"] != AdaptiveRadius().nu, "the radius was learned"
    deadline = time.monotonic() + 60
    while _workers_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _workers_of(tmp_path)


def _carried(out: Path) -> dict[str, Any]:
    """What the aggregator of the one run there carries."""
    (path,) = out.glob("*/checkpoint.npz")
    with np.load(path) as content:
        return {
            name.removeprefix("aggregator."): content[name].tolist()
            for name in content
            if name.startswith("aggregator.")
        }


def kill_on_its_way(command: list[str], out: Path, later: float) -> None:
    """Start a run, and kill it so many seconds after its checkpoint has come further.

    A run that goes on writes the checkpoint that it read once more: that is no way yet.
    """
    before = _kept_round(out)
    process = subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    while _kept_round(out) == before:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    time.sleep(later)
    assert process.poll() is None, "the run was too short to be killed"
    process.kill()
    process.communicate()


def _kept_round(out: Path) -> int:
    """The round of the one checkpoint there; 0 where there is none."""
    for path in out.glob("*/checkpoint.npz"):
        with np.load(path) as content:
            return int(content["numbers"][0])
    return 0


def _workers_of(folder: Path) -> list[str]:
    """Worker processes that outlived the process that asked them (they map what devices keep)."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*/maps"):
        try:
            if str(folder) in process.read_text():
                found.append(str(process))
        except OSError:
            continue
    return found


def test_a_run_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    first = do(tmp_path, rounds=3)
    notes = Notes()
    assert do(tmp_path, notes, rounds=3) == first
    assert notes.rounds == []
    fresh = do(tmp_path, notes, rounds=3, fresh=True)
    assert notes.rounds == [1, 2, 3]
    assert fresh["model_sha256"] == first["model_sha256"]


def test_two_processes_with_the_same_run_do_not_harm_each_other(tmp_path: Path) -> None:
    command = [*COMMAND, "--rounds", "60", "--out", str(tmp_path)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(2)
    ]
    ends = [(process.communicate(), process.returncode) for process in both]
    done = [out for (out, _), code in ends if code == 0]
    told = [err for (_, err), code in ends if code == 4]
    assert len(done) + len(told) == 2
    assert done
    assert all("being run by another process" in err for err in told)
    assert {json.loads(out)["model_sha256"] for out in done} == {
        do(tmp_path / "alone", rounds=60)["model_sha256"]
    }


def test_a_locked_run_is_named(tmp_path: Path) -> None:
    do(tmp_path, rounds=1)
    name = Store(tmp_path).runs()[0]["run"]
    with hold_lock(tmp_path / name / "lock", LockedError(name)):
        done = subprocess.run(  # noqa: S603
            [*COMMAND, "--rounds", "1", "--out", str(tmp_path)],
            check=False,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 4
    assert "is being run by another process" in done.stderr
    assert done.stdout == ""


def test_a_run_that_diverges_ends_early(tmp_path: Path) -> None:
    by_loss = do(tmp_path, aggregator="fedavg", corruption="omniscient", rho=0.2, learning_rate=2.0)
    assert by_loss["status"] == "diverged"
    assert by_loss["rounds"] < 12
    by_norm = do(tmp_path, max_norm=1e-6, max_rejected=3)
    assert (by_norm["status"], by_norm["rounds"], by_norm["rejected_rounds"]) == ("diverged", 3, 3)
    told = do(
        tmp_path,
        aggregator="fedavg",
        corruption="omniscient",
        rho=0.2,
        learning_rate=2.0,
        divergence_factor=0,
    )
    assert told["status"] == "finished"


def test_other_data_under_a_checkpoint_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path, Notes(5), checkpoint_every=2)

    def other(*arguments: Any, **options: Any) -> Any:
        population = load(*arguments, **options)
        return dataclasses.replace(population, x=population.x + 1)

    monkeypatch.setattr("rfa.lab.tasks.task.load", other)
    with pytest.raises(
        CheckpointError, match=r"the data, or your own code, has changed since .* --fresh"
    ):
        do(tmp_path, checkpoint_every=2)


def test_another_version_does_not_go_on_with_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path, Notes(5), checkpoint_every=2)
    monkeypatch.setattr(running, "VERSION", "99")
    with pytest.raises(CheckpointError, match="was begun by version"):
        do(tmp_path, checkpoint_every=2)


@pytest.mark.parametrize("damage", ["lost", "cut"])
@pytest.mark.parametrize(
    ("keeps", "values"),
    [("personal", {"personalize": True}), ("momentum", {"worker_momentum": 0.9})],
)
def test_kept_vectors_that_are_not_complete_are_noticed(
    tmp_path: Path, keeps: str, values: dict[str, Any], damage: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path, Notes(5), checkpoint_every=2, **values)
    (path,) = tmp_path.glob("*/*.f32")
    assert path.stem == keeps
    if damage == "lost":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=rf"{keeps}\.f32 is not complete: .* --fresh"):
        do(tmp_path, checkpoint_every=2, **values)
    fresh = do(tmp_path, fresh=True, **values)
    assert fresh["model_sha256"] == do(tmp_path / "other", **values)["model_sha256"]


def test_without_momentum_nothing_is_kept_and_no_bit_changes(tmp_path: Path) -> None:
    plain, none = (do(tmp_path / str(len(more)), **more) for more in ({}, {"worker_momentum": 0}))
    assert none["run"] == plain["run"]
    assert none["model_sha256"] == plain["model_sha256"]
    assert not list(tmp_path.glob("*/*/*.f32"))
    momentum = do(tmp_path, worker_momentum=1e-30)
    assert momentum["model_sha256"] == plain["model_sha256"], "m_i = Delta_i as beta goes to 0"
    assert do(tmp_path, worker_momentum=0.5)["model_sha256"] != plain["model_sha256"]


def test_where_the_results_are_lost_a_run_starts_anew(tmp_path: Path) -> None:
    whole = do(tmp_path)
    for path in tmp_path.glob("runs.sqlite*"):
        path.unlink()
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path, Notes(1))
    again = do(tmp_path)
    assert (again["status"], again["rounds"]) == ("finished", 12)
    assert again["model_sha256"] == whole["model_sha256"]


def test_missing_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RFA_DATA", raising=False)
    with pytest.raises(DataError, match="rfa data get emnist"):
        running.run(Settings.of("emnist-linear"), running.Options(tmp_path))


@pytest.mark.parametrize("aggregator", ["rfa", "rfa-one-step"])
def test_runs_with_masks_and_without_are_the_same_to_the_bit(
    tmp_path: Path, aggregator: str
) -> None:
    how: dict[str, Any] = {
        "aggregator": aggregator,
        "start": "current",
        "nu": 0.1,
        "rounds": 6,
        "devices_per_round": 8,
        "dropout_rate": 0.08,
        "eval_every": 2,
    }
    rows = {kind: do(tmp_path, secure=kind, **how) for kind in ("unmasked", "on")}
    assert rows["unmasked"]["run"] != rows["on"]["run"]
    for name in ("model_sha256", "test_accuracy", "oracle_calls", "stopped_rounds", "certificate"):
        assert rows["unmasked"][name] == rows["on"][name]
    assert 0 < rows["on"]["certificate"] < 1


def test_a_secure_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    how: dict[str, Any] = {"secure": "on", "dropout_rate": 0.1, "rounds": 6, "devices_per_round": 8}
    whole = do(tmp_path / "whole", checkpoint_every=2, **how)
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path / "parts", Notes(interrupt=3), checkpoint_every=2, **how)
    parts = do(tmp_path / "parts", checkpoint_every=2, **how)
    assert parts["model_sha256"] == whole["model_sha256"]
    assert results(tmp_path / "parts", parts["run"]) == results(tmp_path / "whole", whole["run"])
