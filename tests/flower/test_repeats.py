"""Runs that are done again: what works, what is refused, and the attack that still fails.

The attack: two sums about the same inputs, over nodes of which one is in the first sum alone, or
has another input in the second. Their difference is what that node added. A repeat is a sum over
the same nodes with the same inputs, and has no difference.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa.flower import (
    RFA,
    NodesRefusedError,
    OneStepRFA,
    Policy,
    RobustMod,
    SecureFedAvg,
    ServerModel,
    Terms,
    create_identity,
    read_identities,
)
from rfa.flower.errors import NothingDoneError
from rfa.secagg.fixed_point import Total
from tests.flower.grid import LocalGrid
from tests.flower.test_one_sum import stage_of
from tests.flower.toy import FIRST, NODES, app, attempt, model, nodes, options, step_of, with_nu

NAMES = list(range(FIRST, FIRST + NODES))
VICTIM = NAMES[3]


def nothing(*_: object) -> None:
    """What a check does that is switched off."""


def train_only(**more: Any) -> SecureFedAvg:
    return SecureFedAvg(fraction_evaluate=0.0, **options(**more))


def evaluate_only(**more: Any) -> SecureFedAvg:
    return SecureFedAvg(fraction_train=0.0, **options(**more))


def killed_after_the_sum(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], object], error: type[BaseException]
) -> None:
    """A server that ends when it has the sum, and has not written it down."""

    def die(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("rfa.flower.play.moved", die)
        with pytest.raises(error):
            start()


def test_a_second_run_of_a_seeded_app_fails_at_once_and_says_what_to_do(tmp_path: Path) -> None:
    """It did nothing before, and ended as a success."""
    train_only().start(LocalGrid(nodes(tmp_path)), model(), 3)
    again = LocalGrid(nodes(tmp_path), run=8)
    with pytest.raises(NodesRefusedError, match=r"let it depend on context\.run_id") as caught:
        train_only().start(again, model(), 3)
    assert "all 8 nodes refuse: nodes 101, 102, 103, 104, 105 and 3 more" in str(caught.value)
    assert not caught.value.result.arrays["w"].numpy().any()
    assert len(again.seen) == 2 * NODES  # training, and that the round is over


@pytest.mark.parametrize("budget", [1, 3])
def test_a_server_that_ends_between_a_sum_and_its_checkpoint_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int, opened: list[Total]
) -> None:
    """With an app that always has the same update: the very same sums are taken again."""
    strategy = RFA(
        budget=budget, fraction_evaluate=0.0, **with_nu(checkpoint=tmp_path / "server.npz")
    )
    first = LocalGrid(nodes(tmp_path))
    killed_after_the_sum(
        monkeypatch, lambda: strategy.start(first, model(), 2), ConnectionAbortedError
    )
    lost = list(opened)
    again = RFA(
        budget=budget, fraction_evaluate=0.0, **with_nu(checkpoint=strategy.options.checkpoint)
    )
    result = again.start(LocalGrid(nodes(tmp_path), run=8), model(), 2)
    assert list(result.train_metrics_clientapp) == [1, 2]
    assert len(lost) == budget
    for one, other in zip(lost, opened[budget:], strict=False):
        assert np.array_equal(one.sum.push, other.sum.push)  # integer for integer
        assert (one.statistics, one.metrics) == (other.statistics, other.metrics)
    unbroken = RFA(budget=budget, fraction_evaluate=0.0, **with_nu())
    wanted = unbroken.start(LocalGrid(nodes(tmp_path / "other")), model(), 2)
    assert np.linalg.norm(result.arrays["w"].numpy() - wanted.arrays["w"].numpy()) < 1e-5


def test_a_server_that_ends_again_and_again_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in range(3):
        grid = LocalGrid(nodes(tmp_path), run=run + 1)
        strategy = train_only(checkpoint=tmp_path / "server.npz")
        killed_after_the_sum(
            monkeypatch, lambda s=strategy, g=grid: s.start(g, model(), 1), ConnectionAbortedError
        )
    result = train_only(checkpoint=tmp_path / "server.npz").start(
        LocalGrid(nodes(tmp_path), run=8), model(), 1
    )
    assert list(result.train_metrics_clientapp) == [1]


def test_an_app_with_randomness_goes_on_after_that_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def anew(node: int, t: int) -> Any:
        return step_of(node, t + 7)

    strategy = train_only(checkpoint=tmp_path / "server.npz")
    grid = LocalGrid(nodes(tmp_path))
    killed_after_the_sum(
        monkeypatch, lambda: strategy.start(grid, model(), 1), ConnectionAbortedError
    )
    monkeypatch.setattr("tests.flower.toy.step_of", anew)
    result = train_only(checkpoint=tmp_path / "server.npz").start(
        LocalGrid(nodes(tmp_path), run=8), model(), 1
    )
    assert list(result.train_metrics_clientapp) == [1]


def crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over all nodes that the server has lost, as it says."""
    strategy = train_only(checkpoint=tmp_path / "server.npz")
    grid = LocalGrid(nodes(tmp_path))
    killed_after_the_sum(
        monkeypatch, lambda: strategy.start(grid, model(), 1), ConnectionAbortedError
    )


def after_the_crash(apps: dict[int, ClientApp], tmp_path: Path, **more: Any) -> LocalGrid:
    """What the server gets when it takes the sum again."""
    grid = LocalGrid(apps, run=8, **more)
    strategy = train_only(checkpoint=tmp_path / "server.npz")
    assert not attempt(strategy, grid, model(), 1).train_metrics_clientapp
    return grid


@pytest.mark.parametrize("server_checks", [True, False])
def test_no_sum_is_repeated_without_one_of_its_nodes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: list[Total],
    caplog: pytest.LogCaptureFixture,
    server_checks: bool,
) -> None:
    """The attack: the difference would be the update of the node that is missing."""
    logging.getLogger("flwr").propagate = True
    crash(tmp_path, monkeypatch)
    if not server_checks:
        monkeypatch.setattr("rfa.flower.oracles.check_repeat", nothing)
    apps = {node: each for node, each in nodes(tmp_path).items() if node != VICTIM}
    grid = after_the_crash(apps, tmp_path)
    assert len(opened) == 1
    if server_checks:
        assert "the difference of the two would reveal one of them" in caplog.text
        asked = {stage_of(request) for _, request, _ in grid.seen}
        assert not asked & {"FirstSum", "SumRequest"}
    else:
        assert "this sum is not over the devices of the first one" in caplog.text


@pytest.mark.parametrize("fast", [True, False])
def test_no_sum_is_repeated_if_a_node_is_lost_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Total], fast: bool
) -> None:
    """In a fast round it may be regrouped without the node, and is still not opened."""
    crash(tmp_path, monkeypatch)
    monkeypatch.setattr(SecureFedAvg, "fast", fast)
    stage = "FirstSum" if fast else "SumRequest"

    def lose(node: int, request: Message) -> bool:
        return node == VICTIM and stage_of(request) == stage

    grid = after_the_crash(nodes(tmp_path), tmp_path, lose=lose)
    asked = {stage_of(request) for _, request, _ in grid.seen}
    assert asked >= {"Roster", "SumRequest", "Unmask"}
    assert len(opened) == 1


def test_no_sum_is_repeated_if_the_input_of_a_node_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Total]
) -> None:
    """The difference would be how it changed. It is not in the round, and so nothing is opened."""
    crash(tmp_path, monkeypatch)
    apps = nodes(tmp_path, {VICTIM: lambda step: step + 1})
    after_the_crash(apps, tmp_path)
    assert len(opened) == 1


@pytest.mark.parametrize("changed", ["loss", "num-examples"])
def test_no_sum_is_repeated_if_a_metric_or_a_weight_of_a_node_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Total], changed: str
) -> None:
    crash(tmp_path, monkeypatch)
    metrics: dict[str, Any] = {changed: 77}
    apps = nodes(tmp_path) | {VICTIM: app(VICTIM, tmp_path, **metrics)}
    after_the_crash(apps, tmp_path)
    assert len(opened) == 1


def test_no_sum_is_repeated_at_another_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Total]
) -> None:
    """Two sums about the same updates at two radii can single one out."""
    how: dict[str, Any] = with_nu(checkpoint=tmp_path / "server.npz")
    strategy, grid = OneStepRFA(fraction_evaluate=0.0, **how), LocalGrid(nodes(tmp_path))
    killed_after_the_sum(
        monkeypatch, lambda: strategy.start(grid, model(), 1), ConnectionAbortedError
    )
    file = how["checkpoint"]
    other = OneStepRFA(fraction_evaluate=0.0, **options(checkpoint=file, nu=0.25))
    attempt(other, LocalGrid(nodes(tmp_path), run=8), model(), 1)
    assert len(opened) == 1


def test_without_the_rules_the_difference_is_the_update_of_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[Total]
) -> None:
    """What the rules are for: the same attack on devices that keep no marks."""
    for run, names in enumerate((NAMES, [node for node in NAMES if node != VICTIM])):
        apps = {node: app(node, tmp_path / str(run)) for node in names}
        train_only().start(LocalGrid(apps), model(), 1)
    first, second = opened
    found = 100 * (first.sum.push - second.sum.push)  # a mean's pushes are updates by the clip norm
    true = (10 + VICTIM) / 200 * step_of(VICTIM, 1)
    assert np.linalg.norm(found - true) < 1e-3 * np.linalg.norm(true)


def test_a_server_that_lost_nothing_is_told_of_no_repeat(tmp_path: Path) -> None:
    train_only().start(LocalGrid(nodes(tmp_path)), model(), 1)
    again = LocalGrid(nodes(tmp_path), run=8)
    attempt(train_only(), again, model(), 1)
    assert not [1 for _, _, reply in again.seen if "again" in reply.content.config_records["rfa"]]


def test_a_saved_model_is_evaluated_again(tmp_path: Path) -> None:
    """By another run, under another number, with the same metrics."""
    first = evaluate_only().start(LocalGrid(nodes(tmp_path)), model(), 1)
    again = evaluate_only().start(LocalGrid(nodes(tmp_path), run=8), model(), 2)
    assert list(again.evaluate_metrics_clientapp) == [1, 2]
    for metrics in again.evaluate_metrics_clientapp.values():
        assert metrics == first.evaluate_metrics_clientapp[1]


def test_a_model_that_training_left_is_evaluated_again(tmp_path: Path) -> None:
    trained = SecureFedAvg(**options()).start(LocalGrid(nodes(tmp_path)), model(), 2)
    again = evaluate_only().start(LocalGrid(nodes(tmp_path), run=8), trained.arrays, 1)
    assert again.evaluate_metrics_clientapp[1] == trained.evaluate_metrics_clientapp[2]


def wavering(node: int, home: Path) -> ClientApp:
    """An app whose evaluation has another accuracy each time."""
    client, seen = ClientApp(mods=[RobustMod(folder=home)]), list[int]()

    @client.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        seen.append(1)
        found = MetricRecord({"num-examples": 10 + node + len(seen), "accuracy": len(seen) / 10})
        return Message(RecordDict({"metrics": found}), reply_to=message)

    return client


def test_an_evaluation_that_comes_out_otherwise_tells_what_it_told_first(
    tmp_path: Path, opened: list[Total]
) -> None:
    """On other processors losses have other digits; a repeat has those of the first time."""
    apps = {node: wavering(node, tmp_path) for node in NAMES}
    first = evaluate_only().start(LocalGrid(apps), model(), 1)
    again = evaluate_only().start(LocalGrid(apps, run=8), model(), 1)
    assert again.evaluate_metrics_clientapp == first.evaluate_metrics_clientapp
    assert opened[0].metrics == opened[1].metrics


def test_no_model_is_evaluated_again_without_one_of_the_nodes(
    tmp_path: Path, opened: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: the difference would be the accuracy and the examples of one node."""
    evaluate_only().start(LocalGrid(nodes(tmp_path)), model(), 1)
    apps = {node: each for node, each in nodes(tmp_path).items() if node != VICTIM}
    with pytest.raises(NothingDoneError, match="evaluate it over all of those nodes"):
        evaluate_only().start(LocalGrid(apps, run=8), model(), 1)
    monkeypatch.setattr("rfa.flower.oracles.check_repeat", nothing)
    with pytest.raises(NodesRefusedError):
        evaluate_only().start(LocalGrid(apps, run=9), model(), 1)
    assert len(opened) == 1


def test_nodes_that_have_not_evaluated_a_model_do_so_without_those_that_have(
    tmp_path: Path, opened: list[Total]
) -> None:
    everyone = {node: app(node, tmp_path) for node in range(FIRST, FIRST + 14)}
    few = dict(list(everyone.items())[:4])
    evaluate_only().start(LocalGrid(few), model(), 1)
    evaluate_only().start(LocalGrid(everyone, run=8), model(), 1)
    assert [total.sum.count for total in opened] == [4, 10]


def test_devices_that_do_not_trust_the_server_repeat_nothing(
    tmp_path: Path, opened: list[Total]
) -> None:
    """Who is in a sum is the server's word."""
    names = NAMES[:6]
    for node in names:
        create_identity(tmp_path / str(node))
    known = {str(node): create_identity(tmp_path / str(node)) for node in names}
    for node in names:
        listed = str(known).replace("'", '"')
        (tmp_path / str(node) / "identities.json").write_text(listed)
    policy = Policy(server_model=ServerModel.MALICIOUS)
    apps: dict[int, ClientApp] = {}
    for node in names:
        client = ClientApp(mods=[RobustMod(policy, tmp_path / str(node), cap=200.0)])

        @client.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            found = MetricRecord({"num-examples": 10, "accuracy": 0.5})
            return Message(RecordDict({"metrics": found}), reply_to=message)

        apps[node] = client
    identities = read_identities(tmp_path / str(names[0]) / "identities.json")
    terms = Terms(server_model=ServerModel.MALICIOUS)
    strategy = evaluate_only(terms=terms, identities=identities)
    strategy.start(LocalGrid(apps), model(), 1)
    with pytest.raises(NodesRefusedError, match="it abstains"):
        strategy.start(LocalGrid(apps, run=8), model(), 1)
    assert len(opened) == 1


def test_all_nodes_that_refuse_in_the_middle_of_a_run_end_it_with_what_there_is(
    tmp_path: Path,
) -> None:
    """Once may be bad luck; twice in a row it will not get better."""

    def nan_from(node: int, t: int) -> Any:
        return step_of(node, t) * (np.nan if t > 2 else 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.flower.toy.step_of", nan_from)
        grid = LocalGrid(nodes(tmp_path))
        with pytest.raises(NodesRefusedError) as caught:
            train_only().start(grid, model(), 9)
    assert list(caught.value.result.train_metrics_clientapp) == [1, 2]
    assert caught.value.result.arrays["w"].numpy().any()
    rounds = {int(message.metadata.group_id) for _, message, _ in grid.seen}
    assert rounds == {1, 2, 3, 4}
