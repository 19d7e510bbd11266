"""The app in examples/flower-emnist, on a Flower grid in this process."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
pytest.importorskip("matplotlib", reason="draws characters: pip install 'rfa[lab]'")
pytest.importorskip("threadpoolctl", reason="comes with the lab: pip install 'rfa[lab]'")
pytest.importorskip("PIL", reason="draws characters: pip install 'rfa[lab]'")

from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp

from rfa.aggregators import build
from tests.flower.grid import LocalGrid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-emnist"
NODES, WRITERS, ROUNDS = 6, 12, 2


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the drawn characters; small matrices are best left to one thread."""
    limits: Any = importlib.import_module("threadpoolctl").threadpool_limits(1)
    with limits:
        yield tmp_path_factory.mktemp("cache")


def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cache: Path,
    home: Path,
    **changes: Any,
) -> list[float]:
    """The losses that the example prints, before the first round and after each."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    monkeypatch.setenv("RFA_CACHE", str(cache))
    monkeypatch.setenv("RFA_HOME", str(home))
    client: Any = importlib.import_module("flower_emnist.client_app")
    server: Any = importlib.import_module("flower_emnist.server_app")
    about = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))
    config = about["tool"]["flwr"]["app"]["config"]
    config |= {"writers": WRITERS, "num-server-rounds": ROUNDS, **changes}
    member: ClientApp = client.app
    apps = dict.fromkeys(range(101, 101 + NODES), member)
    grid = LocalGrid(apps)
    for part, node in enumerate(apps):
        split: Any = {"partition-id": part, "num-partitions": NODES}
        grid.contexts[node] = Context(7, node, split, RecordDict(), config)
    capsys.readouterr()
    server.app(grid, Context(7, 1, {}, RecordDict(), config))
    said = [line for line in capsys.readouterr().out.splitlines() if "accuracy" in line]
    assert [line.split(":")[0] for line in said] == [f"round {t}" for t in range(ROUNDS + 1)]
    return [float(re.findall("loss ([^,]+)", line)[0]) for line in said]


@pytest.mark.parametrize("corruption", ["huge", "omniscient", "nan"])
def test_rfa_learns_where_fedavg_breaks(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cache: Path,
    tmp_path: Path,
    corruption: str,
) -> None:
    attack: Any = {"corruption": corruption, "corrupted": 1}
    robust = run(monkeypatch, capsys, cache, tmp_path, strategy="rfa", **attack)
    broken = run(monkeypatch, capsys, cache, tmp_path, strategy="fedavg", **attack)
    assert robust[0] == broken[0]
    assert robust[-1] < robust[0] - 0.5
    assert not broken[-1] <= broken[0]  # it is larger, or not a number


@pytest.mark.parametrize(
    "strategy", ["one-step", "secure-fedavg", "centered-clipping:clip_norm=2,budget=1"]
)
def test_the_other_strategies_learn_without_corruption(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cache: Path,
    tmp_path: Path,
    strategy: str,
) -> None:
    losses = run(monkeypatch, capsys, cache, tmp_path, strategy=strategy)
    assert losses[-1] < losses[0] - 0.5


def test_no_node_has_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cache: Path,
    tmp_path: Path,
) -> None:
    limits: Any = {"max-share": 0.4}
    losses = run(monkeypatch, capsys, cache, tmp_path, **limits)
    assert losses[-1] < losses[0] - 0.5


def test_a_budget_brings_noise(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cache: Path,
    tmp_path: Path,
) -> None:
    """A generous one leaves a model; one that is worth something hardly moves that of so few nodes.

    The clip norm is learned under noise, from a small one on, so that two rounds do not learn much.
    """
    generous = run(
        monkeypatch, capsys, cache, tmp_path / "a", strategy="secure-fedavg", epsilon=1e6
    )
    private = run(monkeypatch, capsys, cache, tmp_path / "b", strategy="secure-fedavg", epsilon=8.0)
    assert generous[-1] < generous[0] - 0.15
    assert private[-1] > generous[0] - 0.05


@pytest.mark.thorough
def test_the_command_prints_the_accuracies_of_the_readme(cache: Path) -> None:
    """All ten rounds of ten nodes: with a thread a core one took 198 s on a busy machine."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(EXAMPLE.parent / "compare.py"), str(EXAMPLE)],
        env={**os.environ, "RFA_CACHE": str(cache), "FLWR_TELEMETRY_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"^\| .+ \| ([\d.]+) % \| ([\d.]+) % \|$", done.stdout, re.MULTILINE)
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    written = [
        re.findall(rf"^\| `{row}`.+\| ([\d.]+) \| ([\d.]+) \|$", readme, re.MULTILINE)
        for row in ("none", "omniscient")
    ]
    for found, (said,) in zip(printed, written, strict=True):
        assert list(map(float, found)) == pytest.approx(list(map(float, said)), abs=5.0)


def test_the_texts_of_the_readme_are_aggregators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    server: Any = importlib.import_module("flower_emnist.server_app")
    about = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))
    config = about["tool"]["flwr"]["app"]["config"]
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    texts = re.findall(r"^\| `([a-z-]+:[^`]+)` \|", readme, re.MULTILINE)
    assert len(texts) == 5
    for text in texts:
        strategy = server.choose_strategy({**config, "strategy": text})
        assert strategy.aggregator == build(text)
    with pytest.raises(ValueError, match="must see single updates"):
        server.choose_strategy({**config, "strategy": "krum"})
