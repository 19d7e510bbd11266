"""A node's own budget: over all runs, whatever the server says, and what that does to a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict

from rfa.errors import InvalidValueError
from rfa.flower import OneStepRFA, Policy, RobustMod, SecureFedAvg, ServerModel, Terms, records
from rfa.flower.errors import NodesRefusedError, NodesSpentError
from rfa.privacy import NoisySum
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import FirstInput, FirstSum
from rfa.secagg.oracle import open_round
from tests.flower.grid import LocalGrid
from tests.flower.noisy import HONEST, NAMES, RHO, Z, asked, budget_of, opening_in, spent_by
from tests.flower.toy import DIM, NODES, app, model, options, with_nu


def own(rounds: float) -> Policy:
    """A budget of so many rounds of all nodes."""
    return Policy(epsilon=budget_of(rounds))


def grid_of(home: Path, policies: dict[int, Policy] | Policy, run: int = 7) -> LocalGrid:
    """Nodes that share a folder, and that their owners tell apart."""
    given = dict.fromkeys(NAMES, policies) if isinstance(policies, Policy) else policies
    grid = LocalGrid({node: app(node, home, policy=given.get(node)) for node in NAMES}, run=run)
    for node, context in grid.contexts.items():
        context.node_config["partition-id"] = node
    return grid


def strategy(**more: Any) -> OneStepRFA:
    return OneStepRFA(noise_multiplier=Z, **with_nu(terms=Terms(), **more))


def reasons(grid: LocalGrid) -> list[str]:
    return [str(reply.error.reason) for _, _, reply in grid.seen if reply.has_error()]


def masked_inputs(grid: LocalGrid) -> list[FirstInput]:
    """All masked inputs that left a node."""
    found: list[FirstInput] = []
    for _, request, reply in grid.seen:
        record: Any = {} if reply.has_error() else reply.content.config_records["rfa"]
        if isinstance(asked(request), FirstSum) and "reply" in record:
            message = decode(bytes(record["reply"]), 1 << 24)
            found += [message] if isinstance(message, FirstInput) else []
    return found


def test_a_budget_is_spent_over_all_runs_and_restarts(
    tmp_path: Path, said: pytest.LogCaptureFixture, trained: list[int]
) -> None:
    for run, rounds in ((7, 1), (8, 2)):  # each with mods of its own: the folder remembers
        done = strategy().start(grid_of(tmp_path, own(3.001), run), model(), rounds)
        assert len(done.train_metrics_clientapp) == rounds
    assert len(trained) == 3 * NODES
    assert spent_by(tmp_path, NAMES[0]) == pytest.approx(3 * RHO)
    third = grid_of(tmp_path, own(3.001), run=9)
    with pytest.raises(NodesSpentError, match=r"8 of 8 .*\(8 of them say so themselves\)"):
        strategy().start(third, model(), 3)
    assert len(trained) == 3 * NODES, "a node without a budget need not train"
    assert len(third.seen) == NODES, "the run ends at once"
    assert all(reason.startswith("PrivacySpentError: ") for reason in reasons(third))
    assert "8 nodes refuse because their own privacy budgets are spent" in said.text
    assert "Policy(epsilon=...)" in said.text
    assert spent_by(tmp_path, NAMES[0]) == pytest.approx(3 * RHO)


def test_a_node_that_comes_back_under_another_number_has_no_new_budget(tmp_path: Path) -> None:
    """Flower gives a SuperNode that starts anew another number, which is the server's to choose."""
    for first, run in ((0, 7), (50, 8)):
        apps = {node + first: app(node, tmp_path / str(node), policy=own(1.001)) for node in NAMES}
        grid = LocalGrid(apps, run=run)
        if run == 7:
            strategy().start(grid, model(), 1)
            continue
        with pytest.raises(NodesSpentError, match=r"8 of 8 nodes have no privacy budget left"):
            strategy().start(grid, model(), 1)
        assert not masked_inputs(grid)


def test_nodes_in_one_folder_that_nothing_tells_apart_share_a_budget(tmp_path: Path) -> None:
    """They may be one that has come back: what is spent is counted too much, never too little."""
    apps = {node: app(node, tmp_path, policy=own(NODES + 0.01)) for node in NAMES}
    grid = LocalGrid(apps)
    done = strategy().start(grid, model(), 3)
    assert sorted(done.train_metrics_clientapp) == [1, 2], "in the second they refuse"
    assert len(masked_inputs(grid)) == NODES


def test_a_run_goes_on_with_those_who_have_a_budget_left(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    poor = dict.fromkeys(NAMES[:3], own(1.001))
    grid = grid_of(tmp_path, poor)
    done = strategy().start(grid, model(), 3)
    assert sorted(done.train_metrics_clientapp) == [1, 2, 3]
    assert "3 nodes refuse because their own privacy budgets are spent" in said.text
    assert said.text.count("is not ready: PrivacySpentError") == 3, "they are asked once"
    for node in NAMES:
        assert spent_by(tmp_path, node) > 0
        assert (spent_by(tmp_path, node) > 1.5 * RHO) == (node not in poor)


def test_a_run_ends_when_too_few_have_a_budget_left(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    grid = grid_of(tmp_path, dict.fromkeys(NAMES[:5], own(2.001)))
    done = strategy().start(grid, model(), 9)
    assert max(done.train_metrics_clientapp) == 3, "in the third round they refuse"
    assert "the run ends before round 4, and the model is kept: 5 of 8 nodes" in said.text
    assert done.arrays["w"].numpy().any()


def test_a_round_without_noise_is_refused_before_the_app_does_anything(
    tmp_path: Path, trained: list[int]
) -> None:
    grid = grid_of(tmp_path, own(5))
    with pytest.raises(NodesRefusedError, match="train without noise"):
        SecureFedAvg(fraction_evaluate=0.0, **options()).start(grid, model(), 1)
    assert not trained
    assert len(reasons(grid)) == NODES
    assert all(reason.startswith("WeakTermsError: train without noise") for reason in reasons(grid))


def test_an_evaluation_is_refused(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, own(5))
    with pytest.raises(NodesRefusedError, match="evaluate without noise"):
        SecureFedAvg(fraction_train=0.0, **options()).start(grid, model(), 1)
    assert len(reasons(grid)) == NODES
    assert all("evaluate without noise" in reason for reason in reasons(grid))


@pytest.mark.parametrize("task", ["train", "evaluate"])
@pytest.mark.parametrize(
    "lie",
    [
        {"task": "evaluate"},
        {"weights": "examples"},
        {"robust": ["loss"], "bounds": [0.0, 1.0], "bins": 8},
        {"noise": float("inf")},
        {"noise": float("nan")},
        {"noise": -1.0},
        {"noise": 1},
    ],
)
def test_noise_is_no_excuse_for_exact_sums(tmp_path: Path, task: str, lie: dict[str, Any]) -> None:
    """A server says that there will be noise, and asks for something that has none."""
    record = records.Work("train", 200.0, "num-examples", weights="equal", noise=Z).record()
    for name, value in lie.items():
        record[name] = value
    content = RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 1})})
    content["rfa"] = record
    grid = grid_of(tmp_path, own(5))
    message = Message(content, dst_node_id=NAMES[0], message_type=task)
    (reply,) = grid.send_and_receive([message])
    assert reply.has_error()


def lying(monkeypatch: pytest.MonkeyPatch, **lies: Any) -> None:
    """A server whose rounds are not what it told nodes before they trained."""

    def opened(number: int, terms: Terms, **how: Any) -> OpenRound:
        return open_round(number, terms, **{**how, **lies})

    monkeypatch.setattr("rfa.flower.oracles.open_round", opened)


def test_a_round_that_turns_out_to_have_no_noise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying(monkeypatch, noise=0.0)
    grid = grid_of(tmp_path, own(5))
    with pytest.raises(NodesRefusedError, match="a round without noise"):
        strategy().start(grid, model(), 1)
    assert not masked_inputs(grid)
    assert len(reasons(grid)) == NODES
    assert all(reason.startswith("WeakTermsError: a round without") for reason in reasons(grid))


def test_less_noise_than_was_claimed_is_charged_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge follows from the opening, which the noise follows from, and from nothing else."""
    lying(monkeypatch, noise=Z / 4)
    rho = NoisySum(NODES, HONEST, Z / 4, DIM, near=False).rho
    grid = grid_of(tmp_path, own(3))
    with pytest.raises(NodesSpentError):
        strategy().start(grid, model(), 1)
    assert rho > 3 * RHO
    assert not masked_inputs(grid)
    assert all(reason.startswith("PrivacySpentError: ") for reason in reasons(grid))
    assert spent_by(tmp_path, NAMES[0]) == 0
    rich = grid_of(tmp_path, own(20), run=8)
    strategy().start(rich, model(), 1)
    assert len(masked_inputs(rich)) == NODES
    assert spent_by(tmp_path, NAMES[0], 8) == pytest.approx(rho)


class SplitNoise(LocalGrid):
    """A server that opens the round for one node with other noise than for all others."""

    victim, noise = NAMES[3], 100 * Z

    def _push(self, message: Message) -> str:
        opening = opening_in(message)
        if message.metadata.dst_node_id == self.victim and opening:
            other = dataclasses.replace(opening, noise=self.noise)
            message.content.config_records["rfa"]["opening"] = other.encode()
        return super()._push(message)


@pytest.mark.parametrize("noise", [100 * Z, Z / 2, 0.0])
def test_nodes_that_were_told_other_noise_are_in_no_sum(tmp_path: Path, noise: float) -> None:
    """Keys and masks are bound to the opening: who has another one is in no cohort."""
    apps = {node: app(node, tmp_path) for node in NAMES}
    grid = SplitNoise(apps)
    grid.noise = noise
    running = strategy()
    done = running.start(grid, model(), 1)
    inputs = {
        node
        for node, request, reply in grid.seen
        if isinstance(asked(request), FirstSum) and not reply.has_error()
    }
    assert inputs == set(NAMES) - {grid.victim}
    assert any(reason.startswith("MissingKeysError") for reason in reasons(grid))
    assert spent_by(tmp_path, grid.victim) == 0
    assert done.arrays["w"].numpy().any()


def test_a_wary_node_with_a_budget_weighs_all_alike(tmp_path: Path) -> None:
    policy = Policy(epsilon=8.0, server_model=ServerModel.MALICIOUS)
    mod = RobustMod(policy, tmp_path, cap=200.0)
    mod.check_work(records.Work("train", 200.0, "num-examples", weights="equal", noise=Z))
    with pytest.raises(records.RecordError, match="give the same on both sides"):
        mod.check_work(records.Work("train", 200.0, "num-examples"))


@pytest.mark.parametrize(
    "wrong", [{"weights": "examples"}, {"robust_metrics": {"loss": (0.0, 1.0)}}]
)
def test_demands_that_do_not_go_with_a_budget_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=r"budget of epsilon=8 .* equal weights"):
        RobustMod(Policy(epsilon=8.0), **wrong)
    assert RobustMod(Policy(epsilon=8.0)).weights == "equal"
    assert RobustMod().weights == "examples"


def test_a_ledger_is_kept_without_a_budget_too(tmp_path: Path) -> None:
    """So that a budget that is set later knows what was spent before."""
    strategy().start(grid_of(tmp_path, Policy()), model(), 2)
    assert spent_by(tmp_path, NAMES[0]) == pytest.approx(2 * RHO)
    grid = grid_of(tmp_path, own(2.5), run=8)
    with pytest.raises(NodesSpentError):
        strategy().start(grid, model(), 1)


def test_noise_is_fresh_in_every_round_and_on_every_node(tmp_path: Path) -> None:
    """The same update, rounding aside, is never sent with the same noise."""
    first, second = (
        SecureFedAvg(clip_norm=10.0, noise_multiplier=Z, **options()).start(
            LocalGrid({node: app(node, tmp_path / name) for node in NAMES}), model(), 1
        )
        for name in ("a", "b")
    )
    away = np.linalg.norm(first.arrays["w"].numpy() - second.arrays["w"].numpy())
    assert away > 0.1
