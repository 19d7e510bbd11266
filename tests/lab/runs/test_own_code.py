"""No stale numbers: a run's identity covers every module of the user's own that it uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rfa.lab.runs.jobs import do_work, plan_work
from rfa.lab.runs.run import Options
from tests.lab.runs.test_jobs import Notes, tiny

ROOT = Path(__file__).parents[3]
HELPER = "def factor():\n    return -{}\n"
PLUG = {
    "corruption": """
from rfa.lab.attacks.corruption import corrupts_updates

@corrupts_updates
def plug(attack):
    import helper
    return helper.factor() * attack.updates[attack.corrupted]
""",
    "aggregator": """
from rfa.aggregators.clear import ClearAggregator
import helper

class plug(ClearAggregator):
    def aggregate(self, points, weights):
        return -points.mean(axis=0) / helper.factor()
""",
    "task": """
import dataclasses
from helper import factor
from tests.tiny import TASK

plug = dataclasses.replace(TASK, prepare=lambda x: x / -factor())
""",
}


def write(folder: Path, kind: str, factor: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "plug.py").write_text(PLUG[kind])
    (folder / "helper.py").write_text(HELPER.format(factor))


def rfa_run(folder: Path, kind: str, *more: str) -> subprocess.CompletedProcess[str]:
    """`rfa run` in a process of its own, which finds the user's modules in its directory."""
    task = "plug:plug" if kind == "task" else "tests.tiny:TASK"
    command = [sys.executable, "-m", "rfa", "run", task, "--json", "--workers", "1", "--rounds"]
    command += ["3", "--out", "out", *more]
    command += [] if kind == "task" else [f"--{kind}", "plug:plug"]
    command += ["--rho", "0.3"] if kind == "corruption" else []
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(  # noqa: S603
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def numbers(result: subprocess.CompletedProcess[str]) -> Any:
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["model_sha256"]


@pytest.mark.parametrize("kind", PLUG)
def test_a_run_whose_helper_changed_is_refused_and_fresh_gives_new_numbers(
    kind: str, tmp_path: Path
) -> None:
    write(tmp_path, kind, "2")
    before = numbers(rfa_run(tmp_path, kind))
    assert numbers(rfa_run(tmp_path, kind)) == before, "nothing changed"
    write(tmp_path, kind, "3.75")
    refused = rfa_run(tmp_path, kind)
    assert refused.returncode == 1
    assert "your own code, has changed" in " ".join(refused.stderr.split())
    assert numbers(rfa_run(tmp_path, kind, "--fresh")) != before


def test_a_sweep_does_not_take_a_run_with_another_helper_for_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "corruption", "2")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    out, settings = tmp_path / "out", tiny(corruption="plug:plug", rho=0.3)
    options = Options(out)
    assert do_work(plan_work([settings], options), options, Notes()) == {}
    assert plan_work([settings], options).todo == []
    write(tmp_path, "corruption", "3.75")
    work = plan_work([settings], options)
    assert work.todo == [settings]
    (problem,) = do_work(work, options, Notes()).values()
    assert "your own code, has changed" in problem
    assert do_work(work, Options(out, fresh=True), Notes()) == {}
