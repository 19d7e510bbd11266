"""Rounds that begin with their first sum: nodes sent their keys in the round before."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from click.testing import CliRunner
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa import aggregators
from rfa.cli.main import main
from rfa.flower import (
    RFA,
    OneStepRFA,
    Policy,
    RobustMod,
    SecureFedAvg,
    SecureStrategy,
    ServerModel,
    Terms,
    records,
)
from rfa.flower.app_calls import App
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstInput
from rfa.secagg.weights import EXAMPLE_CAP
from tests.flower import toy
from tests.flower.grid import LocalGrid, Lose
from tests.flower.noisy import NAMES, RHO, Z, spent_by
from tests.flower.toy import FIRST, LAX, NODES, TARGET, model, nodes, signing, with_nu

MANY = 12


def grid_of(home: Path, count: int = MANY, **how: Any) -> LocalGrid:
    """So many nodes, each in a folder of its own."""
    names = range(FIRST, FIRST + count)
    return LocalGrid({node: toy.app(node, home / str(node)) for node in names}, **how)


def exchanges(grid: LocalGrid, node: int = FIRST) -> list[int]:
    """The messages to a node in each round."""
    counts = Counter(int(request.metadata.group_id) for to, request, _ in grid.seen if to == node)
    return [counts[t] for t in sorted(counts)]


def begins(request: Message) -> bool:
    """Whether a first sum travels with a message."""
    return request.has_content() and records.FIRST in request.content


def in_round(request: Message, t: int) -> bool:
    return request.metadata.group_id == str(t)


def answers(grid: LocalGrid, t: int, task: str = "train") -> list[str]:
    """What nodes answered to the messages that ask for work in a round."""
    found: list[str] = []
    for _, request, reply in grid.seen:
        work = request.has_content() and "cap" in request.content.config_records["rfa"]
        if work and in_round(request, t) and request.metadata.message_type == task:
            record: Any = {} if reply.has_error() else reply.content.config_records["rfa"]
            kind = type(decode(record["reply"])).__name__ if "reply" in record else "Ready"
            found.append(str(reply.error.reason).split(":")[0] if reply.has_error() else kind)
    return found


@pytest.mark.parametrize(
    ("strategy", "evaluates", "first", "then"),
    [
        (OneStepRFA, False, 3, 2),
        (OneStepRFA, True, 6, 4),
        (RFA, False, 7, 6),
        (RFA, True, 10, 8),
        (SecureFedAvg, True, 6, 4),
    ],
)
def test_the_messages_to_a_node_in_a_round(
    tmp_path: Path, strategy: type[SecureStrategy], evaluates: bool, first: int, then: int
) -> None:
    grid = LocalGrid(nodes(tmp_path))
    given = toy.options() if strategy is SecureFedAvg else with_nu()
    more: dict[str, Any] = {"budget": 3} if strategy is RFA else {}
    made = strategy(fraction_evaluate=float(evaluates), **given, **more)
    result = made.start(grid, model(), num_rounds=3)
    assert exchanges(grid) == [first, then, then]
    assert len(result.train_metrics_clientapp) == 3
    assert len(result.evaluate_metrics_clientapp) == 3 * evaluates
    assert answers(grid, 1) == ["AdvertiseKeys"] * NODES
    assert answers(grid, 2) == answers(grid, 3) == ["FirstInput"] * NODES


def test_the_model_is_that_of_rounds_with_keys_of_their_own(tmp_path: Path) -> None:
    """But for the random choices in rounding."""
    models: list[Any] = []
    for name, ahead in (("ahead", True), ("anew", False)):
        strategy = OneStepRFA(**with_nu())
        if not ahead:
            strategy.ahead.keep = lambda *_: None  # type: ignore[method-assign]
        grid = LocalGrid(nodes(tmp_path / name))
        result = strategy.start(grid, model(), num_rounds=4)
        models.append(result.arrays["w"].numpy())
        assert exchanges(grid)[1:] == [4 if ahead else 6] * 3
    assert np.abs(models[0] - models[1]).max() < 1e-5
    assert np.abs(models[0] / 4 - TARGET).max() < 0.3


def test_a_run_in_a_loop_keeps_the_keys_and_one_on_another_grid_does_not(
    tmp_path: Path, trained: list[int]
) -> None:
    strategy, grid = OneStepRFA(**with_nu(fraction_evaluate=0.0)), LocalGrid(nodes(tmp_path))
    arrays = model()
    for wanted in (3, 2, 2):
        grid.seen.clear()
        arrays = strategy.start(grid, arrays, num_rounds=1).arrays
        assert exchanges(grid) == [wanted]
    other = LocalGrid(nodes(tmp_path / "other"), run=8)
    strategy.start(other, arrays, num_rounds=2)
    assert exchanges(other) == [3, 2]
    assert len(trained) == 5 * NODES


def test_nodes_without_keys_refuse_before_they_train(tmp_path: Path, trained: list[int]) -> None:
    strategy, grid = OneStepRFA(**with_nu(fraction_evaluate=0.0)), LocalGrid(nodes(tmp_path))
    strategy.start(grid, model(), num_rounds=1)
    for file in (tmp_path / "flower" / "7").glob("*.train"):
        file.unlink()
    trained.clear()
    grid.seen.clear()
    strategy.start(grid, model(), num_rounds=1)
    assert answers(grid, 1)[:NODES] == ["NoKeysAheadError"] * NODES
    assert sorted(trained) == sorted(grid.apps), "once, when they are asked anew"


def test_what_travels_with_the_work_is_not_seen_by_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    real = App.__call__

    def call(self: App, message: Message) -> Message:
        inner = App(lambda bare, context: self.call_next(noted(bare), context), self.context)
        return real(inner, message)

    def noted(bare: Message) -> Message:
        seen.append(set(bare.content))
        return bare

    monkeypatch.setattr(App, "__call__", call)
    grid = LocalGrid(nodes(tmp_path))
    OneStepRFA(**with_nu(fraction_evaluate=0.0)).start(grid, model(), num_rounds=2)
    assert any(begins(request) for _, request, _ in grid.seen)
    assert seen == [{"arrays", "config"}] * (2 * NODES)


def lose_first_of(*gone: int, t: int = 2, task: str = "train") -> Lose:
    """Some nodes never get the message that a round begins with."""
    return lambda node, request: (
        node in gone
        and begins(request)
        and in_round(request, t)
        and request.metadata.message_type == task
    )


def test_a_node_that_does_not_answer_costs_a_second_roster(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, lose=lose_first_of(104))
    strategy = OneStepRFA(**with_nu(fraction_evaluate=0.0))
    result = strategy.start(grid, model(), num_rounds=4, timeout=0.5)
    assert len(result.train_metrics_clientapp) == 4
    # the second roster: two more; then 104 has no keys, and all are asked for theirs
    assert exchanges(grid) == [3, 4, 3, 2]
    assert np.abs(result.arrays["w"].numpy() / 4 - TARGET).max() < 0.3


def test_too_many_that_do_not_answer_are_asked_anew_and_train_once_more(tmp_path: Path) -> None:
    gone = (104, 105, 106, 107, 108)
    grid = grid_of(tmp_path, lose=lose_first_of(*gone))
    strategy = OneStepRFA(**with_nu(fraction_evaluate=0.0))
    result = strategy.start(grid, model(), num_rounds=4, timeout=0.5)
    assert len(result.train_metrics_clientapp) == 4
    assert exchanges(grid) == [3, 5, 3, 3], "the message, that it is over, and a round"
    assert answers(grid, 2) == ["FirstInput"] * (MANY - len(gone)) + ["AdvertiseKeys"] * MANY
    assert np.abs(result.arrays["w"].numpy() / 4 - TARGET).max() < 0.3


def test_it_is_tried_again_where_it_works_more_often_than_not(tmp_path: Path) -> None:
    gone = (104, 105, 106, 107, 108)
    grid = grid_of(tmp_path, lose=lose_first_of(*gone, t=4))
    strategy = OneStepRFA(**with_nu(fraction_evaluate=0.0))
    strategy.start(grid, model(), num_rounds=6, timeout=0.5)
    assert exchanges(grid) == [3, 2, 2, 5, 2, 2]


def test_a_node_that_lost_its_keys_says_so_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flwr")
    logging.getLogger("flwr").propagate = True
    home = tmp_path / "105" / "flower" / "7"

    def on_round(t: int, *_: Any) -> None:
        for file in home.glob("105.train*"):
            file.unlink()

    grid = grid_of(tmp_path)
    strategy = OneStepRFA(on_round=on_round, **with_nu(fraction_evaluate=0.0))
    result = strategy.start(grid, model(), num_rounds=3)
    assert len(result.train_metrics_clientapp) == 3
    assert Counter(answers(grid, 2)) == {"FirstInput": MANY - 1, "NoKeysAheadError": 1}
    assert "has sent none ahead at all: used, lost or never asked" in caplog.text


def test_all_that_lost_their_keys_are_asked_anew(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)

    def on_round(t: int, *_: Any) -> None:
        for node in grid.apps:
            for file in (tmp_path / str(node) / "flower" / "7").glob("*"):
                file.unlink()

    strategy = OneStepRFA(on_round=on_round, **with_nu(fraction_evaluate=0.0))
    result = strategy.start(grid, model(), num_rounds=2)
    assert answers(grid, 2) == ["NoKeysAheadError"] * MANY + ["AdvertiseKeys"] * MANY
    assert len(result.train_metrics_clientapp) == 2


@pytest.mark.parametrize("odd", [1, MANY])
def test_nodes_with_other_metrics_than_before(tmp_path: Path, odd: int) -> None:
    """One of them is not in the sum, as ever; if all have others, they are asked anew."""
    names = range(FIRST, FIRST + MANY)
    grid = grid_of(tmp_path)

    def on_round(t: int, *_: Any) -> None:
        if t == 1:
            for node in list(names)[:odd]:
                grid.apps[node] = toy.app(node, tmp_path / str(node), more=1.0)

    strategy = OneStepRFA(on_round=on_round, **with_nu(fraction_evaluate=0.0))
    result = strategy.start(grid, model(), num_rounds=2)
    assert set(result.train_metrics_clientapp[2]) == {"loss"} | ({"more"} if odd > 1 else set())
    anew = MANY if odd > 1 else 0
    assert Counter(answers(grid, 2)) == Counter(FirstInput=MANY, AdvertiseKeys=anew)


def test_names_of_metrics_count_and_not_their_number_alone(tmp_path: Path) -> None:
    """A node whose one metric has another name has masked it: its input is in no sum."""
    grid = grid_of(tmp_path)

    def on_round(t: int, *_: Any) -> None:
        grid.apps[104] = renamed(104, tmp_path / "104")

    strategy = OneStepRFA(on_round=on_round, **with_nu(fraction_evaluate=0.0))
    result = strategy.start(grid, model(), num_rounds=2)
    assert answers(grid, 2) == ["FirstInput"] * MANY
    weights = {node: 10 + node for node in grid.apps if node != 104}
    mean = sum(node * weight for node, weight in weights.items()) / sum(weights.values())
    assert result.train_metrics_clientapp[2]["loss"] == pytest.approx(mean, rel=1e-6)
    assert exchanges(grid)[1] == 4


def renamed(node: int, home: Path) -> ClientApp:
    """The toy's app with its metric under another name."""
    client = ClientApp(mods=[RobustMod(LAX, home)])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        arrays: Any = message.content["arrays"]
        record = ArrayRecord({"w": Array((arrays["w"].numpy() + TARGET).astype(np.float32))})
        found = MetricRecord({"num-examples": 10 + node, "cost": 1.0})
        return Message(RecordDict({"arrays": record, "metrics": found}), reply_to=message)

    return client


def test_other_nodes_than_before_send_their_keys_with_the_work(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    new = FIRST + MANY

    def on_round(t: int, *_: Any) -> None:
        if t == 1:
            other = grid_of(tmp_path, MANY + 1)
            grid.apps[new], grid.contexts[new] = other.apps[new], other.contexts[new]

    strategy = OneStepRFA(on_round=on_round, **with_nu(fraction_evaluate=0.0))
    strategy.start(grid, model(), num_rounds=3)
    assert exchanges(grid) == [3, 3, 2]
    assert exchanges(grid, new) == [3, 2]


def test_another_number_of_sums_takes_keys_of_its_own(tmp_path: Path) -> None:
    strategy = SecureStrategy(
        aggregators.RFA(budget=2, nu=0.5), **toy.options(fraction_evaluate=0.0)
    )
    grid = grid_of(tmp_path)

    def on_round(t: int, *_: Any) -> None:
        strategy.aggregator = aggregators.RFA(budget=2 if t == 2 else 1, nu=0.5)

    strategy.options = dataclasses.replace(strategy.options, on_round=on_round)
    strategy.start(grid, model(), num_rounds=4)
    assert exchanges(grid) == [5, 3, 5, 3]


def test_parts_and_a_malicious_server_send_keys_with_the_work(tmp_path: Path) -> None:
    groups = SecureStrategy(
        aggregators.Groups(aggregators.Mean(), 3), **toy.options(fraction_evaluate=0.0)
    )
    grid = grid_of(tmp_path / "groups", 15)
    groups.start(grid, model(), num_rounds=2)
    assert exchanges(grid) == [3, 3]
    home, names = tmp_path / "signed", list(NAMES)
    identities = signing(home, names)
    wary = Policy(server_model=ServerModel.MALICIOUS, honest_per_query=0)
    signed = LocalGrid({node: toy.app(node, home / str(node), policy=wary) for node in names})
    terms = Terms(server_model=ServerModel.MALICIOUS, honest_per_query=0)
    given = toy.options(fraction_evaluate=0.0, terms=terms, identities=identities)
    given["example_cap"] = EXAMPLE_CAP
    result = OneStepRFA(nu=0.5, **given).start(signed, model(), 2)
    assert exchanges(signed) == [3, 3]
    assert len(result.train_metrics_clientapp) == 2


def test_nodes_are_charged_once_a_round(tmp_path: Path) -> None:
    strategy = OneStepRFA(noise_multiplier=Z, **with_nu(fraction_evaluate=0.0))
    grid = LocalGrid(nodes(tmp_path))
    strategy.start(grid, model(), num_rounds=3)
    assert exchanges(grid) == [3, 2, 2]
    for node in NAMES:
        assert spent_by(tmp_path, node) == pytest.approx(3 * RHO, rel=1e-12)
        assert strategy.privacy.spending.charges.of(node) == pytest.approx(3 * RHO, rel=1e-9)


def test_a_node_that_masked_and_was_not_heard_is_charged(tmp_path: Path) -> None:
    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        return None if node == 104 and begins(request) else reply

    strategy = OneStepRFA(noise_multiplier=Z, **with_nu(fraction_evaluate=0.0))
    grid = LocalGrid(nodes(tmp_path), spoil=spoil)
    strategy.start(grid, model(), num_rounds=2, timeout=0.5)
    charges = strategy.privacy.spending.charges
    for node in NAMES:
        assert charges.of(node) >= spent_by(tmp_path, node) * (1 - 1e-12)
        assert spent_by(tmp_path, node) > 1.9 * RHO


def test_histograms_are_in_the_first_sum(tmp_path: Path) -> None:
    bounds = {"loss": (96.0, 128.0)}
    strategy = OneStepRFA(robust_metrics=bounds, **with_nu(fraction_evaluate=0.0))
    grid = grid_of(tmp_path, 14)
    result = strategy.start(grid, model(), num_rounds=2)
    assert exchanges(grid) == [3, 2]
    first, second = (dict(result.train_metrics_clientapp[t]) for t in (1, 2))
    assert first == second
    assert len(first) > 1


def test_personal_parameters_go_on(tmp_path: Path) -> None:
    strategy = OneStepRFA(personal="mine", **with_nu(fraction_evaluate=0.0))
    grid = LocalGrid(nodes(tmp_path))
    strategy.start(grid, model(), num_rounds=2)
    assert exchanges(grid) == [3, 2]
    assert len(list((tmp_path / "flower" / "personal" / "mine").iterdir())) == NODES


def test_a_model_that_did_not_change_is_evaluated_as_a_repeat(tmp_path: Path) -> None:
    """Round 2 trains nothing: its evaluation repeats that of round 1, which takes an opening."""

    def lose(node: int, request: Message) -> bool:
        training = request.metadata.message_type == "train"
        return training and in_round(request, 2) and node > FIRST

    grid = grid_of(tmp_path, lose=lose)
    strategy = OneStepRFA(**with_nu())
    result = strategy.start(grid, model(), num_rounds=3, timeout=0.5)
    assert set(result.train_metrics_clientapp) == {1, 3}
    assert dict(result.evaluate_metrics_clientapp[2]) == dict(result.evaluate_metrics_clientapp[1])
    assert set(answers(grid, 2, "evaluate")[:MANY]) == {"SpentUpdateError"}
    assert len(result.evaluate_metrics_clientapp) == 3


def test_a_run_that_goes_on_from_a_checkpoint_has_no_keys(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    grid = grid_of(tmp_path)
    OneStepRFA(checkpoint=file, **with_nu()).start(grid, model(), num_rounds=2)
    grid.seen.clear()
    OneStepRFA(checkpoint=file, **with_nu()).start(grid, model(), num_rounds=4)
    assert exchanges(grid) == [6, 4]


def test_receipts_of_such_rounds_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RFA_HOME", str(tmp_path / "server"))
    folder = tmp_path / "receipts"
    strategy = OneStepRFA(receipts=folder, **with_nu(fraction_evaluate=0.0))
    gone = (104, 105, 106, 107, 108)
    grid = grid_of(tmp_path, lose=lose_first_of(*gone, t=3))
    strategy.start(grid, model(), num_rounds=4, timeout=0.5)
    assert exchanges(grid) == [3, 2, 5, 2]
    files = sorted(map(str, folder.glob("*.rfa")))
    done = CliRunner().invoke(main, ["verify", *files])
    assert done.exit_code == 0, done.output
    assert len(files) == 4


def test_a_message_that_comes_twice_is_masked_once(tmp_path: Path) -> None:
    """With another model in it, too: the keys are gone with the first."""
    twice: list[Message] = []

    def spoil(node: int, request: Message, reply: Message) -> Message:
        if node == 104 and begins(request) and not twice:
            twice.extend((reply, grid.apps[node](other_model(request), grid.contexts[node])))
        return reply

    grid = grid_of(tmp_path, spoil=spoil)
    result = OneStepRFA(**with_nu(fraction_evaluate=0.0)).start(grid, model(), num_rounds=2)
    first, second = twice
    record: Any = first.content.config_records["rfa"]
    assert isinstance(decode(record["reply"]), FirstInput)
    assert second.has_error()
    assert len(result.train_metrics_clientapp) == 2


def other_model(message: Message) -> Message:
    """The same message about a model whose last digit is another."""
    arrays: Any = message.content["arrays"]
    changed = ArrayRecord({"w": Array(arrays["w"].numpy() + np.float32(1e-3))})
    content = RecordDict({**message.content, "arrays": changed})
    other = Message(content, dst_node_id=104, message_type="train", group_id="2", ttl=10.0)
    other.metadata.__dict__["_message_id"] = "twice"
    other.metadata.__dict__["_src_node_id"] = 1
    return other


def test_a_node_that_was_sent_another_model_masks_nothing(tmp_path: Path) -> None:
    """What it starts from is not what the first sum is about."""
    grid = grid_of(tmp_path)
    real = grid.apps[104]

    def split(message: Message, context: Any) -> Message:
        if begins(message):
            content = other_model(message).content
            message.content = content
        return real(message, context)

    grid.apps[104] = split  # type: ignore[assignment]
    OneStepRFA(**with_nu(fraction_evaluate=0.0)).start(grid, model(), num_rounds=2)
    assert Counter(answers(grid, 2)) == {"FirstInput": MANY - 1, "OtherBasisError": 1}
