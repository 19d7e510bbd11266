"""What the mod does not do, and what it says of it: nothing that is private."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Context, Message, RecordDict

from rfa.flower import RobustMod, records
from rfa.flower.storage import DeviceStorage
from tests.flower.grid import LocalGrid
from tests.flower.toy import app


def call(mod: RobustMod, kind: str, content: RecordDict | None = None) -> tuple[Message, bool]:
    """What a mod answers to a message, and whether it let the app see it."""
    LocalGrid({})
    message = Message(content or RecordDict(), dst_node_id=5, message_type="train")
    message.metadata.__dict__.update(_message_type=kind, _message_id="1", _src_node_id=1)
    context = Context(run_id=7, node_id=5, node_config={}, state=RecordDict(), run_config={})
    seen: list[Message] = []

    def train(message: Message, context: Context) -> Message:
        seen.append(message)
        return Message(RecordDict(), reply_to=message)

    return mod(message, context, train), bool(seen)


@pytest.mark.parametrize(
    "kind",
    [
        *("get_parameters", "get_properties", "reconnect", "system"),
        *("train", "train.mine", "evaluate", "evaluate.mine"),
    ],
)
def test_only_queries_reach_the_app(tmp_path: Path, kind: str) -> None:
    """A legacy app would answer get_parameters with its model, after training on its data."""
    reply, seen = call(RobustMod(folder=tmp_path), kind)
    assert not seen
    assert reply.has_error()
    assert "nothing in the clear" in str(reply.error.reason)


@pytest.mark.parametrize("kind", ["query", "query.mine"])
def test_queries_reach_the_app(tmp_path: Path, kind: str) -> None:
    reply, seen = call(RobustMod(folder=tmp_path), kind)
    assert seen
    assert not reply.has_error()


@pytest.mark.parametrize("error", [ZeroDivisionError, OSError, KeyError, RecursionError])
@pytest.mark.parametrize("where", ["storage", "vault"])
def test_the_text_of_an_unexpected_error_stays_on_the_device(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
    where: str,
) -> None:
    logging.getLogger("flwr").propagate = True

    def fail(*_: Any) -> DeviceStorage:
        text = "patient 4711"
        raise error(text)

    monkeypatch.setattr(RobustMod, where, fail)
    content = records.Stage("train", b"").content()
    reply, _ = call(RobustMod(folder=tmp_path), "train", content)
    assert reply.error.reason == f"{error.__name__}: the log of the node says more"
    assert "patient 4711" in caplog.text


def test_a_folder_that_cannot_be_is_not_described(tmp_path: Path) -> None:
    """Neither its path nor what the system says of it."""
    (tmp_path / "file").touch()
    grid = LocalGrid({5: app(5, tmp_path / "file" / "folder")})
    content = records.Stage("train", b"").content()
    (reply,) = grid.send_and_receive([Message(content, dst_node_id=5, message_type="train")])
    assert str(tmp_path) not in str(reply.error.reason)
