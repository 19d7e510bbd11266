"""What nodes were sent is bound into the sum: a server that sends each another model gets none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from rfa.flower import (
    Policy,
    RobustMod,
    SecureFedAvg,
    ServerModel,
    basis,
    records,
)
from rfa.flower.basis import (
    UnequalMessagesError,
    basis_of,
    common_sent,
    model_of,
    run_of,
    sent_of,
)
from rfa.secagg.weights import EXAMPLE_CAP
from tests.flower.grid import LocalGrid
from tests.flower.toy import model, nodes, options


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


def message_with(
    content: RecordDict, message_type: str = "train", group: str = "1", node: int = 5
) -> Message:
    LocalGrid({})  # a message needs a run
    return Message(content, dst_node_id=node, message_type=message_type, group_id=group)


def sent(content: RecordDict) -> bytes:
    return sent_of(message_with(content), content)


def turned(record: Any) -> Any:
    """A record, or all of them, in the other order."""
    return type(record)(dict(reversed(list(record.items()))))


ORDERS: dict[str, RecordDict] = {
    "of records": turned(content()),
    "of keys": content(config=turned(content()["config"])),
    "of two configs": RecordDict({"b": ConfigRecord({"c": 1}), "a": ConfigRecord({"c": 2})}),
    "of two configs, by name": RecordDict(
        {"a": ConfigRecord({"c": 2}), "b": ConfigRecord({"c": 1})}
    ),
}


def test_a_basis_is_of_everything_that_is_sent() -> None:
    all_of_them = {**OTHERS, **ORDERS, "": content()}
    found = {name: sent(other) for name, other in all_of_them.items()}
    assert len(set(found.values())) == len(found)
    assert sent(content()) == sent(RecordDict(dict(content().items())))


def test_a_basis_is_of_the_type_and_the_group_of_a_message() -> None:
    others = [("train", "1"), ("train.warmup", "1"), ("evaluate", "1"), ("train", "2")]
    assert len({sent_of(message_with(content(), *other), content()) for other in others}) == 4
    assert sent_of(message_with(content(), node=6), content()) == sent(content())


def test_a_basis_is_of_the_run_config_whatever_order_it_comes_in() -> None:
    config: dict[str, Any] = {"rate": 0.5, "steps": 3, "name": "x"}
    others: list[dict[str, Any]] = [{}, {**config, "rate": 0.25}, {**config, "steps": 3.0}, config]
    assert len({basis_of(sent(content()), run_of(other)) for other in others}) == len(others)
    assert run_of(dict(reversed(config.items()))) == run_of(config)


@pytest.mark.parametrize("name", [*OTHERS, *ORDERS])
def test_a_basis_is_the_same_at_both_ends(name: str) -> None:
    """Flower keeps the order of records and keys, over gRPC and as objects."""
    message = message_with({**OTHERS, **ORDERS}[name], "train.warmup")
    for received in (message_from_proto(message_to_proto(message)), through_objects(message)):
        assert sent_of(received, received.content) == sent_of(message, message.content)


def through_objects(message: Message) -> Message:
    """A message as it comes out of Flower's store of objects."""
    stored = {name: it.deflate() for name, it in get_all_nested_objects(message).items()}
    return cast("Message", inflate_object_from_contents(message.object_id, stored))


def test_a_model_under_other_names_and_types_has_one_mark() -> None:
    w = np.array([1.5, -2.0, 0.0], np.float32)
    one = model_of(arrays(("w", w)))
    same = [
        arrays(("0", w)),
        arrays(("w", w), record="model"),
        arrays(("w", w.astype(np.float64))),
        arrays(("w", w.reshape(3, 1))),
        arrays(("a", w[:1]), ("b", w[1:])),
        arrays(("w", w * np.array([1, 1, -1], np.float32))),
        arrays(("w", w), ("seen", np.array(7))),
    ]
    assert {model_of(each) for each in same} == {one}
    assert model_of(arrays(("w", np.nextafter(w, np.float32(9))))) != one
    assert model_of(RecordDict()) != one


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
    assert common_sent(messages, lambda content: content) == sent_of(messages[0][1], shared)
    assert len(read) == 2  # and once for the comparison


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (message_with(content(), "train.warmup"), "types of message, or groups"),
        (message_with(content(), group="2"), "types of message, or groups"),
        (message_with(turned(content())), "orders of records"),
        (message_with(configs(rate=0.1)), "records 'config'"),
    ],
)
def test_what_differs_between_nodes_is_named(other: Message, said: str) -> None:
    messages = [(5, message_with(content())), (6, other)]
    with pytest.raises(UnequalMessagesError, match=f"nodes 5 and 6 are sent different {said}"):
        common_sent(messages, lambda content: content)


def test_the_app_gets_its_run_config_by_name(tmp_path: Path) -> None:
    """Flower's transfer has no order for it, and the digest none: an order would tell more."""
    seen: list[list[str]] = []
    client = ClientApp(mods=[RobustMod(folder=tmp_path)])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        seen.append(list(context.run_config))
        raise NotImplementedError

    grid = LocalGrid({101: client}, run_config={"b": 1, "a": 2})
    work = records.Work("train", 1.0, "num-examples").record()
    sent = RecordDict({"arrays": model(), "rfa": work})
    grid.push_messages([Message(sent, dst_node_id=101, message_type="train")])
    assert seen == [["a", "b"]]


def test_personal_parameters_that_the_device_names_are_allowed() -> None:
    policy = Policy(server_model=ServerModel.MALICIOUS)
    work = records.Work("train", EXAMPLE_CAP, "num-examples", "mine")
    RobustMod(policy, personal="mine").check_work(work)
    RobustMod(policy, personal="mine").check_work(replace(work, personal=""))
    RobustMod(Policy()).check_work(work)
    for own in ("", "other"):
        with pytest.raises(records.RecordError, match="personal parameters 'mine' are asked for"):
            RobustMod(policy, personal=own).check_work(work)
