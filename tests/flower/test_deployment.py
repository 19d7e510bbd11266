"""Runs on a real SuperLink and SuperNodes: one of them is killed, others are not let in."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from rfa.aggregators import RFA, OneStepRFA
from rfa.flower import Terms, create_identity
from rfa.numerics.plain_oracle import PlainOracle
from rfa.secagg import Contribution, Moment, Stage, UnmaskedOracle, open_round
from tests.flower.deployment.deployed import numbers
from tests.flower.deployment.deployed.numbers import CAP, DIM, NU, Model
from tests.flower.federation import Federation

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(),
    reason="needs /proc, by which a deployment finds its last processes: Linux",
)

APP = Path(__file__).parent / "deployment"
NODES = 5
BUDGET = 2
TERMS = Terms(honest_per_query=0)
VICTIM = 2
STAGE_TIMEOUT = 40.0
"""Seconds that a dead SuperNode costs; one that lives answers in 10, or 20 on a busy machine."""
PATIENCE = 120.0
"""Seconds to wait where nobody is killed: no longer than it takes, also on a busy machine."""
STAGES = ["Work", "FirstSum", "Unmask 0", "SumRequest 1", "Unmask 1"]
AGAIN = ["Work", "FirstSum", "Roster 2", "SumRequest 2", "Unmask 2", "SumRequest 3", "Unmask 3"]
"""What a node is asked where all answer the first sum, and where one does not."""
AHEAD = ["Work", "Unmask 0", "SumRequest 1", "Unmask 1"]
"""Where the nodes are those of the round before: the first sum comes with the work."""


def update(w: Model, partition: int, t: int) -> Model:
    return numbers.train(w, partition, t) - w


def weight(partition: int) -> float:
    return numbers.examples(partition) / CAP


def ring_round(w: Model, t: int, lost: dict[int, Moment]) -> Model:
    """The model after a round of the sum without masks, where some are lost."""
    parts = {i: Contribution(update(w, i, t), weight(i)) for i in range(NODES)}
    opening = open_round(t, TERMS, queries=BUDGET, dim=DIM, fast=True)
    oracle = UnmaskedOracle(opening, TERMS, parts, lost=lost)
    result, _ = RFA(nu=NU, budget=BUDGET)([oracle], DIM)
    return (w + result.point).astype(np.float32)


def check_sums(report: Any, t: int, partitions: Iterable[int], steps: int) -> None:
    """As many sums in a round as there are steps, each over these nodes, and their mean loss."""
    weights = {i: weight(i) for i in partitions}
    told = [(total["count"], total["weight"]) for total in report["sums"][t - 1]]
    assert told == [(len(weights), pytest.approx(sum(weights.values())))] * steps
    mean = sum(weights[i] * numbers.loss(i, t) for i in weights) / sum(weights.values())
    assert report["metrics"][str(t)] == {"loss": pytest.approx(mean)}


def distance(report: Any, wanted: Model) -> float:
    """How far off a model is, as a share of its length."""
    return float(np.linalg.norm(np.array(report) - wanted) / np.linalg.norm(wanted))


def diary(federation: Federation, i: int) -> list[dict[str, Any]]:
    """What SuperNode i was asked, in order."""
    text = (federation.home(i) / "diary.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def kept(path: Path) -> set[str]:
    """What is in the store of a device, by name."""
    with closing(sqlite3.connect(path)) as store:
        return {name for (name,) in store.execute("SELECT name FROM kept")}


def check_devices(federation: Federation) -> None:
    """No device refused anything, or left an update behind or anything in Flower's context."""
    for i, node in federation.node_ids.items():
        entries = diary(federation, i)
        assert [entry["refused"] for entry in entries] == [None] * len(entries)
        assert {entry["state"] for entry in entries} == {0}
        (store,) = federation.home(i).glob(f"flower/*/{node}.train")
        assert "memory" in kept(store)
        assert "contribution" not in kept(store)


@pytest.mark.deployment
def test_a_supernode_is_killed_in_the_middle_of_a_stage(tmp_path: Path) -> None:
    """One that was asked the first query is lost to the round; its successor joins the next two."""
    result, reached = tmp_path / "result.json", tmp_path / "reached"
    environments: list[dict[str, str]] = [{} for _ in range(NODES)]
    environments[VICTIM] = {"RFA_TEST_HANG": f"FirstSum@{reached}"}
    with Federation(tmp_path, NODES, environments=environments) as federation:
        run = federation.start(
            APP, result=str(result), rounds=3, budget=BUDGET, stage_timeout=STAGE_TIMEOUT
        )
        federation.until(reached.exists, 180, "the first query")
        before = federation.node_ids[VICTIM]
        federation.kill(VICTIM)
        assert federation.revive(VICTIM) != before
        outcome = run.wait(600)
        assert outcome.completed, outcome.text

        report = json.loads(result.read_text())
        others = [i for i in range(NODES) if i != VICTIM]
        w = ring_round(numbers.first_model(), 1, {VICTIM: Moment(0, Stage.ROSTER)})
        w = ring_round(ring_round(w, 2, {}), 3, {})
        assert distance(report["w"], w) < 1e-6
        check_sums(report, 1, others, BUDGET)
        for t in (2, 3):
            check_sums(report, t, range(NODES), BUDGET)
        for i in others:
            assert [entry["name"] for entry in diary(federation, i)] == [*AGAIN, *STAGES, *AHEAD]
        names = [entry["name"] for entry in diary(federation, VICTIM)]
        assert names == ["Work", *STAGES, *AHEAD]
        check_devices(federation)


def write_identities(federation: Federation) -> Path:
    """Gives every SuperNode an identity and the list of all."""
    publics = {
        str(node): create_identity(federation.home(i)) for i, node in federation.node_ids.items()
    }
    lists = [federation.home(i) / "identities.json" for i in federation.node_ids]
    for path in lists:
        path.write_text(json.dumps(publics))
    return lists[0]


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.deployment)])
def test_tls_and_authentication(tmp_path: Path, *, again: bool) -> None:
    """Over TLS, with registered SuperNodes that do not trust the server and sign their keys.

    A second run of the same name is refused by all.
    """
    result = tmp_path / "result.json"
    with Federation(tmp_path, NODES, tls=True) as federation:
        known = write_identities(federation)
        patience = {"train_timeout": PATIENCE, "stage_timeout": PATIENCE}
        run = federation.start(APP, result=str(result), identities=str(known), **patience)
        outsider = federation.admits_outsider()
        assert not outsider.admitted
        assert "Exit Code: 305" in outsider.text  # the SuperLink does not take it
        outcome = run.wait(400)
        assert outcome.completed, outcome.text

        report, w = json.loads(result.read_text()), numbers.first_model()
        weights = np.array([weight(i) for i in range(NODES)])
        oracle = PlainOracle(np.array([update(w, i, 1) for i in range(NODES)]), weights)
        step, _ = OneStepRFA(nu=NU)([oracle], DIM)
        assert distance(report["w"], (w + step.point).astype(np.float32)) < 1e-6
        check_sums(report, 1, range(NODES), 1)
        stages = ["Work", "FirstSum", "Unmask 0"]
        for i in range(NODES):
            assert [entry["name"] for entry in diary(federation, i)] == stages
        check_devices(federation)

        if again:
            second = federation.run(APP, 400, result=str(result), identities=str(known), **patience)
            assert second.status == "finished:failed", second.text
            assert "all 5 nodes refuse: nodes" in second.text
            assert "let it depend on context.run_id" in second.text
