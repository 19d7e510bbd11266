"""What nodes were sent is bound into the sum: a server that sends each another model gets none."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

from rfa.flower import (
    OneStepRFA,
    Policy,
    RobustMod,
    SecureFedAvg,
    ServerModel,
    Terms,
    basis,
    create_identity,
    read_identities,
    records,
)
from rfa.flower.basis import UnequalMessagesError, basis_of, common_basis
from rfa.oracle import Sum
from rfa.secagg.oracle import SecureOracle
from tests.flower.grid import LocalGrid
from tests.flower.toy import DIM, model, nodes, options, step_of, with_nu

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


def living(node: int, home: Path, policy: Policy) -> ClientApp:
    """An app whose model does not learn when it is dead."""
    client = ClientApp(mods=[RobustMod(policy, home, cap=1.0)])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        arrays: Any = message.content["arrays"]
        w = arrays["w"].numpy()
        after = w if (w < -1e20).all() else w + step_of(node, 1)
        record = ArrayRecord({"w": Array(after.astype(np.float32))})
        found = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": record, "metrics": found}), reply_to=message)

    return client


def signed(home: Path) -> dict[int, bytes]:
    publics = {str(node): create_identity(home / str(node)) for node in NODES}
    for node in NODES:
        (home / str(node) / "identities.json").write_text(json.dumps(publics))
    return dict(read_identities(home / str(VICTIM) / "identities.json"))


@pytest.mark.parametrize("server_model", ServerModel)
def test_a_dead_model_for_all_but_one_gives_no_sum(
    tmp_path: Path, server_model: ServerModel, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the sum, consistent and signed, would be that node's update."""
    known = signed(tmp_path)
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
    caplog.set_level(logging.INFO)
    assert not strategy.start(grid, model(), num_rounds=1).arrays["w"].numpy().any()
    assert caplog.text.count("OtherBasisError") >= len(NODES) - 1


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[Sum]:
    """All sums that the server opens."""
    opened: list[Sum] = []
    ask = SecureOracle.__call__

    def recorded(self: SecureOracle, v: Any, nu: float) -> Sum:
        opened.append(ask(self, v, nu))
        return opened[-1]

    monkeypatch.setattr(SecureOracle, "__call__", recorded)
    return opened


def test_other_models_for_each_node_give_no_evaluation(tmp_path: Path, sums: list[Sum]) -> None:
    grid = SplitGrid(nodes(tmp_path), {node: np.full(DIM, node, np.float32) for node in NODES})
    result = SecureFedAvg(fraction_train=0.0, **options()).start(grid, model(), num_rounds=1)
    assert not result.evaluate_metrics_clientapp
    assert not sums
    assert sum("OtherBasisError" in str(reply.error.reason) for reply in refusals(grid)) == 8


def refusals(grid: LocalGrid) -> list[Message]:
    return [reply for _, _, reply in grid.seen if reply.has_error()]


def test_what_stands_for_an_update_in_an_evaluation_is_zero(
    tmp_path: Path, sums: list[Sum]
) -> None:
    """It is multiplied by a secret weight: numbers that the server knows would tell the weights.

    With a digest of the model there, and other models for each of 8 nodes, one sum was 8 equations
    in 8 example counts.
    """
    grid = LocalGrid(nodes(tmp_path))
    result = SecureFedAvg(fraction_train=0.0, **options()).start(grid, model(), num_rounds=1)
    assert result.evaluate_metrics_clientapp
    (total,) = sums
    assert total.push.tolist() == [0.0] * records.STAND_IN


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


def test_the_config_is_bound_too(tmp_path: Path, sums: list[Sum]) -> None:
    zeros = np.zeros(DIM, np.float32)
    config = {"learning-rate": 0.0}
    grid = SplitGrid(nodes(tmp_path), {node: zeros for node in NODES if node != VICTIM}, config)
    strategy = SecureFedAvg(fraction_evaluate=0.0, **options())
    strategy.start(grid, model(), 1, train_config=ConfigRecord({"learning-rate": 0.1}))
    assert not sums


class Unequal(SecureFedAvg):
    """A strategy that wants each node to train another way."""

    def configure_train(self, *arguments: Any, **named: Any) -> Iterable[Message]:
        for message in super().configure_train(*arguments, **named):
            node = message.metadata.dst_node_id
            config = ConfigRecord({"server-round": 1, "node": node})
            arrays = message.content["arrays"]
            content = RecordDict({"arrays": arrays, "config": config})
            yield Message(content, dst_node_id=node, message_type="train")


def test_a_strategy_that_sends_nodes_different_things_is_told_why(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path))
    said = r"nodes \d+ and \d+ are sent different records 'config': all nodes of a round must be"
    with pytest.raises(UnequalMessagesError, match=said):
        Unequal(fraction_evaluate=0.0, **options()).start(grid, model(), num_rounds=1)
    assert not grid.seen


def content(**changes: Any) -> RecordDict:
    arrays = {"a": np.arange(6, dtype=np.float32), "b": np.ones(2, np.float32)}
    records_of: dict[str, Any] = {
        "arrays": ArrayRecord({name: Array(value) for name, value in arrays.items()}),
        "config": ConfigRecord({"rate": 0.5, "steps": 3, "on": True, "name": "x", "list": [1, 2]}),
        "rfa": records.Work("train", 100.0, "num-examples", "mine").record(),
    }
    return RecordDict(records_of | changes)


def configs(**changes: Any) -> RecordDict:
    return content(config=ConfigRecord({**dict(content().config_records["config"]), **changes}))


def arrays(*named: tuple[str, Any], record: str = "arrays") -> RecordDict:
    there = {key: value for key, value in content().items() if key != "arrays"}
    given = ArrayRecord({name: Array(np.asarray(value)) for name, value in named})
    return RecordDict({**there, record: given})


A, B = ("a", np.arange(6, dtype=np.float32)), ("b", np.ones(2, np.float32))
WORK: Any = records.Work("train", 100.0, "num-examples", "mine")
OTHERS: dict[str, RecordDict] = {
    "task": content(rfa=replace(WORK, task="evaluate").record()),
    "cap": content(rfa=replace(WORK, cap=101.0).record()),
    "weight": content(rfa=replace(WORK, weight="n").record()),
    "personal": content(rfa=replace(WORK, personal="").record()),
    "a value": configs(rate=float(np.nextafter(0.5, 1))),
    "an int for a float": configs(rate=1),
    "a float for an int": configs(steps=3.0),
    "an int for a bool": configs(on=1),
    "a text for a number": configs(steps="3"),
    "bytes for a text": configs(name=b"x"),
    "one more key": configs(more=""),
    "another key": content(config=ConfigRecord({"Rate": 0.5})),
    "a list split": configs(list=[12]),
    "no list": configs(list=[]),
    "a record more": content(other=ConfigRecord({})),
    "metrics": content(other=MetricRecord({})),
    "the name of a record": arrays(A, B, record="model"),
    "a number": arrays(A, ("b", np.array([1, np.nextafter(np.float32(1), np.float32(2))]))),
    "the order": arrays(B, A),
    "a name": arrays(A, ("c", B[1])),
    "a shape": arrays(("a", A[1].reshape(2, 3)), B),
    "a type": arrays(A, ("b", np.ones(2, np.int32))),
    "one less": arrays(A),
    "two records": RecordDict({**arrays(A), "more": ArrayRecord({"b": Array(B[1])})}),
}


def test_a_basis_is_of_everything_that_is_sent() -> None:
    found = {name: basis_of(other) for name, other in OTHERS.items()} | {"": basis_of(content())}
    assert len(set(found.values())) == len(found)
    assert basis_of(content()) == basis_of(arrays(A, B))


@pytest.mark.parametrize("name", OTHERS)
def test_a_basis_is_the_same_at_both_ends(name: str) -> None:
    sent = OTHERS[name]
    received = recorddict_from_proto(recorddict_to_proto(sent))
    assert basis_of(received) == basis_of(sent)
    again = RecordDict(dict(reversed(list(sent.items()))))
    assert basis_of(again) == basis_of(sent)


def test_the_model_is_read_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    digest = basis.model_digest

    def counted(*parts: bytes | memoryview) -> bytes:
        read.append(1)
        return digest(*parts)

    monkeypatch.setattr(basis, "model_digest", counted)
    shared, own = content(), [RecordDict(dict(content().items())) for _ in range(3)]
    for each in own:
        each["arrays"] = shared["arrays"]
    messages = [
        (node, Message(each, dst_node_id=node, message_type="train"))
        for node, each in enumerate([shared, shared, *own])
    ]
    assert common_basis(messages, lambda content: content) == basis_of(shared)
    assert len(read) == 2  # and once for the comparison
