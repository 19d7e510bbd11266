"""A server that lets each node train from something else gets no sum."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa.flower import (
    OneStepRFA,
    Policy,
    RobustMod,
    SecureFedAvg,
    SecureStrategy,
    ServerModel,
    Terms,
    oracles,
    records,
)
from rfa.flower.basis import run_of
from rfa.secagg.fixed_point import Total
from tests.flower.grid import LocalGrid
from tests.flower.toy import DIM, attempt, model, nodes, options, signing, step_of, with_nu

NODES = range(101, 109)
VICTIM = 104
DEAD = np.full(DIM, -1e30, np.float32)


class SplitGrid(LocalGrid):
    """A server that sends other models, or another config, to some nodes."""

    def __init__(
        self, apps: Any, models: dict[int, Any], config: dict[str, Any] | None = None
    ) -> None:
        super().__init__(apps)
        self.models, self.config = models, config or {}

    def _push(self, message: Message) -> str:
        node = message.metadata.dst_node_id
        if node in self.models and "arrays" in message.content:
            arrays = ArrayRecord({"w": Array(self.models[node])})
            given: Any = message.content["config"]
            changed = ConfigRecord({**given, **self.config})
            other = copy.copy(message)
            other.content = RecordDict({**message.content, "arrays": arrays, "config": changed})
            message = other
        return super()._push(message)


def trained(node: int, message: Message, rate: float = 1.0) -> Message:
    """What a node answers that has trained, by a model that does not learn when it is dead."""
    arrays: Any = message.content["arrays"]
    w = arrays["w"].numpy()
    after = w + rate * step_of(node, 1) if (np.abs(w) < 1e20).all() else w
    record = ArrayRecord({"w": Array(after.astype(np.float32))})
    found = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": record, "metrics": found}), reply_to=message)


def living(node: int, home: Path, policy: Policy) -> ClientApp:
    """An app that trains by its model alone."""
    client = ClientApp(mods=[RobustMod(policy, home, cap=1.0)])
    client.train()(lambda message, _context: trained(node, message))
    return client


def nothing(*_: object) -> None:
    """What a server that lies looks at."""


def told_apart(monkeypatch: pytest.MonkeyPatch, *, fast: bool) -> set[str]:
    """What nodes say that trained from something else than others, to a server that does not mind.

    Where they are told how the round begins with their work, they bind their keys to that and to
    what they trained from: none of them finds its keys, or those of others, in the roster.
    """
    monkeypatch.setattr("rfa.secagg.server.admission.check_device_keys", nothing)
    monkeypatch.setattr(SecureStrategy, "fast", fast)
    return {"MissingKeysError", "SignatureError"} if fast else {"OtherBasisError"}


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("server_model", ServerModel)
def test_a_dead_model_for_all_but_one_gives_no_sum(
    tmp_path: Path,
    server_model: ServerModel,
    fast: bool,
    opened: list[Total],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the sum, consistent and signed, would be that node's update."""
    errors = told_apart(monkeypatch, fast=fast)
    known = signing(tmp_path, NODES)
    policy = Policy(server_model=server_model)
    apps = {node: living(node, tmp_path / str(node), policy) for node in NODES}
    grid = SplitGrid(apps, {node: DEAD for node in NODES if node != VICTIM})
    strategy = OneStepRFA(
        **with_nu(
            fraction_evaluate=0.0,
            example_cap=1.0,
            terms=Terms(server_model=server_model),
            identities=known,
        )
    )
    assert not attempt(strategy, grid, model(), num_rounds=1).arrays["w"].numpy().any()
    assert not opened
    said = [str(reply.error.reason) for reply in refusals(grid)]
    assert len([text for text in said if text.partition(":")[0] in errors]) >= len(NODES) - 1


@pytest.mark.parametrize("fast", [True, False])
def test_other_models_for_each_node_give_no_evaluation(
    tmp_path: Path, opened: list[Total], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = told_apart(monkeypatch, fast=fast)
    grid = SplitGrid(nodes(tmp_path), {node: np.full(DIM, node, np.float32) for node in NODES})
    result = attempt(SecureFedAvg(fraction_train=0.0, **options()), grid, model(), num_rounds=1)
    assert not result.evaluate_metrics_clientapp
    assert not opened
    said = [str(reply.error.reason).partition(":")[0] for reply in refusals(grid)]
    assert len([name for name in said if name in errors]) == 8


def refusals(grid: LocalGrid) -> list[Message]:
    return [reply for _, _, reply in grid.seen if reply.has_error()]


def test_what_stands_for_an_update_in_an_evaluation_is_zero(
    tmp_path: Path, opened: list[Total]
) -> None:
    """It is multiplied by a secret weight: numbers that the server knows would tell the weights.

    With a digest of the model there, and other models for each of 8 nodes, one sum was 8 equations
    in 8 example counts.
    """
    grid = LocalGrid(nodes(tmp_path))
    result = SecureFedAvg(fraction_train=0.0, **options()).start(grid, model(), num_rounds=1)
    assert result.evaluate_metrics_clientapp
    (total,) = opened
    assert total.sum.push.tolist() == [0.0] * records.STAND_IN


@pytest.mark.parametrize("dim", [0, 2, 2**40])
def test_nodes_do_not_choose_the_length_of_an_evaluation(tmp_path: Path, dim: int) -> None:
    """A majority of them neither ends the run, nor is waited for."""

    def lie(node: int, request: Message, reply: Message) -> Message | None:
        record: Any = reply.content.config_records["rfa"]
        if "dim" in record and node < 106:
            record["dim"] = dim
        return reply

    grid = LocalGrid(nodes(tmp_path), lie)
    strategy = SecureFedAvg(fraction_train=0.0, **options(terms=Terms(0.0, 0.0)))
    result = strategy.start(grid, model(), num_rounds=1)
    metrics = result.evaluate_metrics_clientapp[1]
    assert 10.6 < float(str(metrics["accuracy"])) < 10.8


def test_the_config_is_bound_too(tmp_path: Path, opened: list[Total]) -> None:
    zeros = np.zeros(DIM, np.float32)
    config = {"learning-rate": 0.0}
    grid = SplitGrid(nodes(tmp_path), {node: zeros for node in NODES if node != VICTIM}, config)
    strategy = SecureFedAvg(fraction_evaluate=0.0, **options())
    attempt(strategy, grid, model(), 1, train_config=ConfigRecord({"learning-rate": 0.1}))
    assert not opened


def easily_led(node: int, home: Path) -> ClientApp:
    """An app that trains by what is not in its config, too, and takes the server for malicious."""
    policy = Policy(server_model=ServerModel.MALICIOUS)
    client = ClientApp(mods=[RobustMod(policy, home, cap=1.0)])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        first: Any = next(iter(message.content.config_records.values()))
        rate = float(first.get("rate", 1.0)) * float(str(context.run_config.get("rate", 1.0)))
        return trained(node, message, rate if message.metadata.group_id == "1" else 0.0)

    @client.train("warmup")
    def warmup(message: Message, context: Context) -> Message:
        return trained(node, message, 0.0)

    return client


class LeadingGrid(LocalGrid):
    """A server that lets all nodes but one train to nothing by what is not in a config."""

    def __init__(self, apps: Any, how: str) -> None:
        super().__init__(apps, spoil=self._forge)
        self.how, self.claimed = how, b""
        for node, context in self.contexts.items() if "run config" in how else ():
            context.run_config = {"rate": 1.0 if node == VICTIM else 0.0}

    def _push(self, message: Message) -> str:
        node = message.metadata.dst_node_id
        if "arrays" not in message.content:
            return super()._push(message)
        message = copy.deepcopy(message)
        if self.how == "order":
            one = {"on": ConfigRecord({"rate": 1.0}), "off": ConfigRecord({"rate": 0.0})}
            configs: Any = one if node == VICTIM else dict(reversed(one.items()))
            message.content = RecordDict({**configs, **message.content})
        elif self.how == "personal":
            if node != VICTIM:
                self._ruin(message)
            message.content.config_records["rfa"]["personal"] = "x"
        elif node != VICTIM and self.how == "group":
            message.metadata.group_id = "9"
        elif node != VICTIM and self.how == "action":
            message.metadata.__dict__["_message_type"] = "train.warmup"
        return super()._push(message)

    def _ruin(self, message: Message) -> None:
        """Other work before, over which no sum is asked for."""
        first = copy.deepcopy(message)
        first.content.config_records["config"]["rate"] = 1e30
        first.content.config_records["rfa"]["personal"] = "x"
        super()._push(first)

    def _forge(self, node: int, request: Message, reply: Message) -> Message:
        """Let all nodes seem to have the run config of most, or that of the victim."""
        wanted = {"run config, of most": NODES[0], "run config, of one": VICTIM}.get(self.how)
        if wanted and not reply.has_error() and "run" in reply.content.config_records["rfa"]:
            config = self.contexts[wanted].run_config
            reply.content.config_records["rfa"]["run"] = run_of(config)
        return reply


def lead(home: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> LeadingGrid:
    """A round of a server that leads nodes, and says that all were sent what the victim was."""
    known = signing(home, NODES)
    grid = LeadingGrid({node: easily_led(node, home / str(node)) for node in NODES}, how)
    honest = oracles.common_sent

    def as_victim(messages: Any, told: Any) -> bytes:
        content = copy.deepcopy(messages[0][1].content)
        if how == "order":
            on, off = ConfigRecord({"rate": 1.0}), ConfigRecord({"rate": 0.0})
            content = RecordDict({"on": on, "off": off, **content})
        if how == "personal":
            content.config_records["rfa"]["personal"] = "x"
        return honest(
            [(VICTIM, Message(content, dst_node_id=VICTIM, message_type="train", group_id="1"))],
            told,
        )

    monkeypatch.setattr(oracles, "common_sent", as_victim)
    terms = Terms(server_model=ServerModel.MALICIOUS)
    more = with_nu(fraction_evaluate=0.0, example_cap=1.0, terms=terms, identities=known)
    attempt(OneStepRFA(**more), grid, model(), num_rounds=1)
    return grid


RUNS = ["run config", "run config, of most", "run config, of one"]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("how", [*RUNS, "group", "action", "order", "personal"])
def test_all_but_one_cannot_be_led_to_train_to_nothing(
    tmp_path: Path, how: str, fast: bool, opened: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the sum, which all nodes sign, is the update of the one."""
    errors = told_apart(monkeypatch, fast=fast)
    grid = lead(tmp_path, how, monkeypatch)
    reasons = " ".join(str(reply.error.reason) for reply in refusals(grid))
    assert not opened
    expected = {"personal": {"RobustMod(personal=...) allows them"}, "run config": {""}}
    assert any(text in reasons for text in expected.get(how, errors))


def test_nodes_that_are_not_led_give_a_sum(
    tmp_path: Path, opened: list[Total], monkeypatch: pytest.MonkeyPatch
) -> None:
    lead(tmp_path, "", monkeypatch)
    assert [total.sum.count for total in opened] == [len(NODES)]
