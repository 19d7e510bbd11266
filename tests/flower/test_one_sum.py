"""An update, or an evaluation of a model, is in one sum: what a device does about another."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message

from rfa.flower import SecureFedAvg, records
from rfa.secagg.messages.decoding import decode
from tests.flower.grid import LocalGrid
from tests.flower.toy import DIM, attempt, model, nodes, options


def stage_of(message: Message) -> str:
    """The name of the message of the secure sum in a request or a reply; nothing if none is."""
    record: Any = {} if message.has_error() else message.content.config_records["rfa"]
    data = record.get("request") or record.get("reply")
    return type(decode(data)).__name__ if data else ""


def test_an_update_is_in_one_sum_though_the_request_to_open_it_is_lost(tmp_path: Path) -> None:
    """Others opened the sum: without that node in the next one, the difference would be its."""
    grid = LocalGrid(
        nodes(tmp_path), lose=lambda node, to: node == 103 and stage_of(to) == "Unmask"
    )
    strategy = SecureFedAvg(fraction_evaluate=0.0, **options())
    assert strategy.start(grid, model(), 1).train_metrics_clientapp
    again = LocalGrid(nodes(tmp_path), run=8)
    attempt(strategy, again, model(), 1)
    joined = [node for node, _, reply in again.seen if stage_of(reply) == "AdvertiseKeys"]
    assert not joined


@pytest.mark.parametrize(
    ("lost", "opened", "fast"),
    [
        ("FirstSum", False, True),
        ("Unmask", True, True),
        ("SumRequest", False, False),
        ("Unmask", True, False),
    ],
)
def test_after_a_round_that_opened_nothing_an_update_may_be_brought_again(
    tmp_path: Path, lost: str, opened: bool, fast: bool
) -> None:
    """Or one bad round would lock out an app that always has the same update."""
    told: list[Any] = []

    def lose(node: int, request: Message) -> bool:
        told.append(request.content.config_records["rfa"].get("opened"))
        return node < 106 and stage_of(request) == lost

    strategy = SecureFedAvg(fraction_evaluate=0.0, **options())
    strategy.fast = fast
    first = attempt(strategy, LocalGrid(nodes(tmp_path), lose=lose), model(), 1)
    assert not first.train_metrics_clientapp
    assert {word for word in told if word is not None} == {opened}
    again = attempt(strategy, LocalGrid(nodes(tmp_path), run=8), model(), 1)
    assert bool(again.train_metrics_clientapp) == (not opened)


def told(grid: LocalGrid, node: int) -> list[Any]:
    """What a node told the server, without the session and the bytes of keys."""
    replies = [
        (request.content.config_records["rfa"], reply)
        for name, request, reply in grid.seen
        if name == node and "over" not in request.content.config_records["rfa"]
    ]
    return [
        (
            stage_of(reply),
            reply.error if reply.has_error() else "",
            records.read_ready(reply, DIM) if "cap" in asked else None,
        )
        for asked, reply in replies
    ]


def test_the_server_is_not_told_that_an_update_is_the_one_from_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the data of a device changed is its own business: it abstains as others do."""
    logging.getLogger("flwr").propagate = True
    strategy = SecureFedAvg(fraction_evaluate=0.0, **options())
    strategy.start(LocalGrid(nodes(tmp_path)), model(), 1)
    spent = LocalGrid(nodes(tmp_path), run=8)
    attempt(strategy, spent, model(), 1)
    assert "in a sum with this very update before" in caplog.text
    broken = LocalGrid(nodes(tmp_path / "other", {103: lambda step: step * float("nan")}))
    strategy.start(broken, model(), 1)
    assert told(spent, 103) == told(broken, 103)
    assert [stage for stage, _, _ in told(broken, 103)] == ["Abstain"]


def test_of_two_runs_at_once_one_evaluates_a_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both have the same first model evaluated, and one has a node more: its metrics."""
    logging.getLogger("flwr").propagate = True
    apps, inner = nodes(tmp_path), list[LocalGrid]()

    def start(grid: LocalGrid) -> bool:
        strategy = SecureFedAvg(fraction_train=0.0, **options())
        return bool(attempt(strategy, grid, model(), 1).evaluate_metrics_clientapp)

    def lose(_: int, request: Message) -> bool:
        if stage_of(request) == "FirstSum" and not inner:  # all nodes are ready, and joined
            inner.append(LocalGrid({node: app for node, app in apps.items() if node != 108}, run=8))
            assert start(inner[0])
        return False

    outer = LocalGrid(apps, lose=lose)
    assert not start(outer)
    sent = [node for node, _, reply in outer.seen if stage_of(reply) == "FirstInput"]
    assert sent == [108]
    assert "leaves the round: device" in caplog.text
    reasons = {reply.error.reason for _, _, reply in outer.seen if reply.has_error()}
    assert reasons == {"OutOfStageError: FirstSum is asked of a device that has left the round"}
