"""Flower's simulation engine (Ray) runs the same apps: `make simulation`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
pytest.importorskip("ray", reason="needs Ray: make simulation")

from tests.flower.processes import MARK, free_ports, kill_marked

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-emnist"
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.simulation
Environment = dict[str, str]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    """An environment of its own for Flower, whose processes are gone at the end."""
    (port,) = free_ports(1)
    yield {
        **os.environ,
        MARK: str(tmp_path),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(tmp_path / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "RFA_HOME": str(tmp_path / "home"),
    }
    kill_marked(str(tmp_path))


def call(environment: Environment, *command: str) -> str:
    """What a command prints."""
    done = subprocess.run(  # noqa: S603
        [str(BIN / command[0]), *command[1:]],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=400,
        check=True,
    )
    return done.stdout


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
