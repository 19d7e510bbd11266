"""One's own aggregator, in a file of one's own, wherever rfa takes one."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rfa.cli.main import main

MINE = '''
from dataclasses import dataclass

import numpy as np

from rfa.aggregators import Layout, SumAggregator
from rfa.aggregators.clear import ClearAggregator
from rfa.oracle import next_sum


@dataclass(frozen=True)
class TwoSteps(SumAggregator[None]):
    """The steps of RFA, written once more."""

    nu: float = 0.5

    @property
    def statistics(self):
        return frozenset({"mass", "squares"})

    def layout(self, devices):
        return Layout(queries=2)

    def aggregate(self, oracles, dim, state):
        v = np.zeros(dim)
        for step in range(2):
            total = next_sum(oracles[0], v, self.nu, first=step == 0)
            if total is None:  # devices left after the first sum, which stands
                break
            v = v + self.nu * total.push / total.mass
        return v


@dataclass(frozen=True)
class Memory:
    rounds: int = 0


class Patient(SumAggregator[Memory]):
    """One step over each of two parts, longer from round to round."""

    def init(self):
        return Memory()

    def layout(self, devices):
        return Layout(parts=2)

    def aggregate(self, oracles, dim, state):
        sums = [oracle(np.zeros(dim), 1.0) for oracle in oracles]
        step = sum(total.push for total in sums) / sum(total.mass for total in sums)
        return min(1.0, 0.2 * (1 + state.rounds)) * step

    def next_state(self, oracles, state):
        return Memory(state.rounds + 1)


class Shortest(ClearAggregator):
    """The mean of the shorter half of the updates."""

    def aggregate(self, points, weights):
        order = np.argsort(np.linalg.norm(points, axis=1))
        return points[order[: (len(order) + 1) // 2]].mean(axis=0)


class Broken(Patient):
    def aggregate(self, oracles, dim, state):
        return {}["nothing"]


PATIENT = Patient()
'''
NAME = "mine_of_a_user"
RUN = ("tests.tiny:TASK", "--rounds", "6", "--workers", "1", "--devices-per-round", "12")
RULE_OFF = ("--honest-per-query", "0")
ATTACK = ("--corruption", "omniscient", "--rho", "0.2")


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / f"{NAME}.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[1]}")
    importlib.invalidate_caches()
    yield importlib.import_module(NAME)
    sys.modules.pop(NAME)


def rfa(*arguments: str) -> Any:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def run(tmp_path: Path, aggregator: str, *options: str) -> Any:
    out = ("--json", "--out", str(tmp_path / "out"))
    return rfa("run", *RUN, "--aggregator", aggregator, *options, *out)


@pytest.mark.parametrize(
    "secure",
    [
        (),
        ("--secure", "unmasked", "--dropout-rate", "0.1", *RULE_OFF),
        ("--secure", "on", "--dropout-rate", "0.1", *RULE_OFF),
    ],
    ids=["off", "unmasked", "on"],
)
def test_a_private_one_runs_as_if_it_were_built_in(tmp_path: Path, secure: Any) -> None:
    """Written like RFA it gives the same model; in the clear up to the order of additions."""
    one = run(tmp_path, f"{NAME}:TwoSteps:nu=0.25", *ATTACK, *secure)
    two = run(tmp_path, "rfa:budget=2,nu=0.25,early_stop=0", *ATTACK, *secure)
    assert one["oracle_calls"] == two["oracle_calls"]
    assert one["train_loss"] == pytest.approx(two["train_loss"], rel=1e-4)
    if secure:
        assert one["model_sha256"] == two["model_sha256"]


def test_a_private_one_with_parts_and_state_is_the_same_in_every_mode(tmp_path: Path) -> None:
    secure = ("--dropout-rate", "0.1", *RULE_OFF, *ATTACK)
    masked = run(tmp_path, f"{NAME}:PATIENT", "--secure", "on", *secure)
    plain = run(tmp_path, f"{NAME}:Patient", "--secure", "unmasked", *secure)
    assert masked["model_sha256"] == plain["model_sha256"]
    assert masked["stopped_rounds"] < 6


def test_what_it_carries_survives_an_interruption(tmp_path: Path) -> None:
    """Steps grow with the rounds, so a state that was lost would show."""
    whole = run(tmp_path, f"{NAME}:Patient")
    short = rfa(
        *("run", *RUN[:1], "--rounds", "3", *RUN[3:], "--aggregator", f"{NAME}:Patient"),
        *("--json", "--checkpoint-every", "1", "--out", str(tmp_path / "parts")),
    )
    from rfa.aggregators.base import unpack_state  # noqa: PLC0415

    with np.load(tmp_path / "parts" / short["run"] / "checkpoint.npz") as saved:
        arrays = {
            name.removeprefix("aggregator."): saved[name]
            for name in saved.files
            if name.startswith("aggregator.")
        }
    module: Any = importlib.import_module(NAME)
    assert unpack_state(module.PATIENT, arrays) == module.Memory(3)
    assert whole["rounds"] == 6


def test_a_clear_one_runs_and_is_refused_under_secure_sums(tmp_path: Path) -> None:
    row = run(tmp_path, f"{NAME}:Shortest", *ATTACK)
    assert row["aggregator"] == f"{NAME}:Shortest"
    assert row["test_accuracy"] > 0.6
    arguments = ["run", *RUN, "--aggregator", f"{NAME}:Shortest", "--secure", "on"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "must see single updates" in result.output


@pytest.mark.parametrize("secure", ["off", "unmasked"])
def test_one_that_fails_is_named_with_its_place(tmp_path: Path, secure: str) -> None:
    arguments = ["run", *RUN, "--aggregator", f"{NAME}:Broken", "--secure", secure]
    result = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert f"aggregator {NAME}:Broken failed in round 1: KeyError: 'nothing'" in result.output
    assert f"({NAME}.py, line " in result.output


def test_both_in_a_sweep(tmp_path: Path) -> None:
    sweep = tmp_path / "mine.toml"
    sweep.write_text(f"""
title = "mine"
[settings]
task = "tests.tiny:TASK"
rounds = 3
corruption = "omniscient"
rho = 0.2
[[lines]]
label = "private"
aggregator = "{NAME}:TwoSteps:nu=0.5"
secure = "unmasked"
honest_per_query = 0
[[lines]]
label = "clear"
aggregator = "{NAME}:Shortest"
""")
    result = CliRunner().invoke(main, ["sweep", str(sweep), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    shown = CliRunner().invoke(main, ["runs", "--json", "--out", str(tmp_path / "out")])
    names = {row["aggregator"] for row in json.loads(shown.stdout)}
    assert names == {f"{NAME}:TwoSteps:nu=0.5", f"{NAME}:Shortest"}


def test_both_in_the_arena(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main,
        [
            *("arena", "tests.tiny:TASK", "--rounds", "3", "--level", "0.2"),
            *("--attack", "omniscient", "--attack", "alie:z=1.5"),
            *("--defense", "rfa", "--defense", f"{NAME}:TwoSteps:nu=0.5,label=my steps"),
            *("--defense", f"{NAME}:Shortest", "--out", str(tmp_path / "out")),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "my steps" in result.output
    shown = CliRunner().invoke(main, ["runs", "--json", "--out", str(tmp_path / "out")])
    rows = json.loads(shown.stdout)
    assert {row["corruption"] for row in rows} == {"none", "omniscient", "alie:z=1.5"}
    assert {row["status"] for row in rows} == {"finished"}


def test_a_private_one_is_planned(tmp_path: Path) -> None:
    mine_plan = rfa("plan", "--aggregator", f"{NAME}:TwoSteps", "--json")
    assert (
        mine_plan["traffic"]
        == rfa("plan", "--aggregator", "rfa:budget=2,nu=0.5", "--json")["traffic"]
    )
    assert rfa("plan", "--aggregator", f"{NAME}:PATIENT", "--json")["parts"] == 2
    result = CliRunner().invoke(main, ["plan", "--aggregator", f"{NAME}:Shortest"])
    assert result.exit_code == 2
    assert "must see single updates" in result.output


def test_a_private_one_on_flower_as_an_object_and_by_name(mine: Any, tmp_path: Path) -> None:
    """A node is lost in the middle of the second round; the third has all of them again."""
    pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
    from flwr.app import Array, ArrayRecord, Message  # noqa: PLC0415

    from rfa.flower.strategy import SecureStrategy  # noqa: PLC0415
    from tests.flower import toy  # noqa: PLC0415
    from tests.flower.grid import LocalGrid  # noqa: PLC0415

    def lose(node: int, request: Message, reply: Message) -> Message | None:
        gone = node == toy.FIRST and request.metadata.group_id == "2"
        return None if gone and "arrays" not in request.content else reply

    models: list[Any] = []
    for number, aggregator in enumerate((mine.TwoSteps(nu=0.5), f"{NAME}:TwoSteps:nu=0.5")):
        grid = LocalGrid(toy.nodes(tmp_path / f"home{number}"), lose)
        strategy = SecureStrategy(
            aggregator, stage_timeout=1.0, fraction_evaluate=0.0, terms=toy.FEW_HONEST
        )
        arrays = ArrayRecord({"w": Array(np.zeros(toy.DIM, np.float32))})
        result = strategy.start(grid, arrays, num_rounds=3)
        models.append(result.arrays["w"].numpy())
    assert np.allclose(models[0], models[1], atol=1e-5), "rounding is random on a real device"
    assert np.linalg.norm(models[0] - 3 * toy.TARGET) < 3
