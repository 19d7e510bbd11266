"""Flower's simulation engine (Ray) runs the same apps: `make simulation`."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
pytest.importorskip("ray", reason="needs Ray: make simulation")

from tests.flower.processes import PROGRAMS, simulation_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-emnist"
SEEDED = Path(__file__).parent / "deployment"
pytestmark = pytest.mark.simulation
Environment = dict[str, str]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    with simulation_environment(tmp_path) as environment:
        yield environment


def call(environment: Environment, *command: str) -> str:
    """What a command prints."""
    done = subprocess.run(  # noqa: S603
        [str(PROGRAMS / command[0]), *command[1:]],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=400,
        check=True,
    )
    return done.stdout


def seeded(environment: Environment, result: Path, nodes: int) -> str:
    """What a run of an app says that has no randomness."""
    config = f'result="{result}" rounds=2 budget=2'
    return call(
        environment,
        *("flwr", "run", str(SEEDED), "local", "--stream", "--run-config", config),
        *("--federation-config", f"num-supernodes={nodes} client-resources-num-cpus=1"),
    )


def test_a_seeded_run_is_done_again_and_leaves_nothing(
    environment: Environment, tmp_path: Path
) -> None:
    """On the real engine: no mark, vault or list of a run is there for the next one."""
    home = Path(environment["RFA_HOME"])
    home.mkdir()
    reports: list[dict[str, Any]] = []
    for run in range(2):
        result = tmp_path / f"{run}.json"
        said = seeded(environment, result, nodes=5)
        assert result.exists(), said
        reports.append(json.loads(result.read_text()))
        assert [path.name for path in home.iterdir()] == ["diary.jsonl"]
    assert reports[0]["metrics"] == reports[1]["metrics"]
    assert np.allclose(reports[0]["w"], reports[1]["w"], atol=1e-5)
    diary = [json.loads(line) for line in (home / "diary.jsonl").read_text().splitlines()]
    assert {entry["refused"] for entry in diary} == {None}


def test_too_few_nodes_end_a_run_at_once(environment: Environment, tmp_path: Path) -> None:
    """By default a simulation has two; a run waited for others that never come."""
    Path(environment["RFA_HOME"]).mkdir()
    began = time.monotonic()
    said = seeded(environment, tmp_path / "result.json", nodes=2)
    assert "2 nodes in this simulation, 4 are needed for 2 secure sums" in said
    assert '--federation-config "num-supernodes=4"' in said
    assert not (tmp_path / "result.json").exists()
    assert time.monotonic() - began < 120
    # flwr run ends with exit code 0 all the same: docs/flower.md says how to ask
    (run,) = re.findall(r"started run (\d+)", said)
    listed = json.loads(
        call(environment, "flwr", "list", "local", "--run-id", run, "--format", "json")
    )
    assert listed["runs"][0]["status"] == "finished:failed"
    assert "4 are needed for 2 secure sums" in listed["runs"][0]["status-details"]


def test_the_example_stands_where_fedavg_breaks(environment: Environment) -> None:
    losses: dict[str, list[float]] = {}
    for strategy in ("rfa", "fedavg"):
        nodes = "num-supernodes=6 client-resources-num-cpus=1"
        config = f"strategy='{strategy}' corruption='omniscient' corrupted=1 writers=12 "
        config += "num-server-rounds=2"
        said = call(
            environment,
            *("flwr", "run", str(EXAMPLE), "local", "--stream", "--federation-config", nodes),
            *("--run-config", config),
        )
        losses[strategy] = [float(loss) for loss in re.findall(r"round \d: loss ([^,]+)", said)]
    assert len(losses["rfa"]) == len(losses["fedavg"]) == 3
    assert losses["rfa"][-1] < losses["rfa"][0] - 0.5
    assert not losses["fedavg"][-1] <= losses["fedavg"][0]


def test_a_small_example_stands_an_attacker(environment: Environment) -> None:
    said = call(
        environment,
        *("flwr", "run", str(EXAMPLE.parent / "flower-numpy"), "local", "--stream"),
        *("--federation-config", "num-supernodes=6 client-resources-num-cpus=1"),
        *("--run-config", "attacker=0 num-server-rounds=2"),
    )
    accuracies = [float(each) for each in re.findall(r"round \d: accuracy ([\d.]+) %", said)]
    assert len(accuracies) == 3
    assert accuracies[-1] > accuracies[0] + 30


def test_a_run_of_the_lab_is_the_same_to_the_bit(environment: Environment, tmp_path: Path) -> None:
    settings = "--secure on --start current --nu 0.1 --corruption omniscient --rho 0.2 "
    settings += "--honest-per-query 0"
    sizes = "--devices 20 --devices-per-round 8 --rounds 2 --eval-every 1"
    command = ["rfa", "run", "glyphs-linear", *settings.split(), *sizes.split(), "--json"]
    here = json.loads(call(environment, *command, "--out", str(tmp_path / "lab")))
    there = json.loads(
        call(environment, *command, "--out", str(tmp_path / "flower"), "--engine", "flower")
    )
    assert there["model_sha256"] == here["model_sha256"]
    assert there["test_accuracy"] == here["test_accuracy"]
