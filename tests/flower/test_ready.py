"""What nodes say they have: no majority of them makes the server allocate what it did not ask."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict

from rfa.flower import RFA, records
from rfa.flower.metrics import LONGEST, MetricLayout
from rfa.secagg.messages.opening import MAX_METRICS
from tests.flower.grid import LocalGrid
from tests.flower.toy import attempt, model, nodes, with_nu


def saying(**lie: Any) -> Any:
    """A grid's hook by which most nodes say something else about what they have."""

    def spoil(node: int, request: Message, reply: Message) -> Message:
        record: Any = {} if reply.has_error() else reply.content.config_records["rfa"]
        if node > 102 and "dim" in record:
            record.update(lie)
        return reply

    return spoil


@pytest.mark.parametrize("dim", [1 << 40, (1 << 63) - 1, 1 << 31, 0, 7])
@pytest.mark.parametrize("task", ["train", "evaluate"])
def test_a_length_that_most_nodes_agree_on_is_still_not_theirs_to_say(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dim: int, task: str
) -> None:
    logging.getLogger("flwr").propagate = True
    grid = LocalGrid(nodes(tmp_path), saying(dim=dim))
    only = {"fraction_train": float(task == "train"), "fraction_evaluate": float(task != "train")}
    result = attempt(RFA(**only, **with_nu()), grid, model(), num_rounds=1)
    assert not result.evaluate_metrics_clientapp
    assert not result.train_metrics_clientapp
    assert f"its update has {dim} numbers, and" in caplog.text


@pytest.mark.parametrize(
    ("names", "sizes", "why"),
    [
        (["a"], [1 << 40], "most 256 are summed"),
        (["a"], [(1 << 63) - 1], "most 256 are summed"),
        ([f"{i:04}" for i in range(300)], [0] * 300, "make 600 numbers, and at most 256"),
        (["a", "a"], [0, 0], "without duplicates"),
        (["b", "a"], [0, 0], "in order"),
        (["a" * (LONGEST + 1)], [0], "257 letters"),
        (["a"], [True], "does not say what it has"),
        (["a"], [-1], "does not say what it has"),
        (["a"], [0, 0], "does not say what it has"),
        (["a"], [0.5], "does not say what it has"),
    ],
)
def test_metrics_that_cannot_be_summed_are_refused_before_anything_is_allocated(
    names: list[str], sizes: list[Any], why: str
) -> None:
    LocalGrid({})
    record = ConfigRecord({"names": names, "sizes": sizes, "dim": 6, "run": bytes(32)})
    message = Message(RecordDict({"rfa": record}), dst_node_id=5, message_type="train")
    with pytest.raises(records.RecordError, match=why):
        records.read_ready(message, 6)


def test_an_app_with_too_many_metrics_is_told_so_on_its_device(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path, many=[1.0] * 300))
    attempt(RFA(fraction_evaluate=0.0, **with_nu()), grid, model(), num_rounds=1)
    reasons = {str(reply.error.reason) for _, _, reply in grid.seen if reply.has_error()}
    (reason,) = reasons
    assert "make 303 numbers, and at most 256 are summed" in reason


def test_as_many_metrics_as_there_may_be_have_no_fault() -> None:
    """Behind each comes a weight."""
    names = tuple(f"{index:04}" for index in range(MAX_METRICS // 2))
    assert not MetricLayout(names, (0,) * len(names)).fault
    assert not MetricLayout(("a",), (MAX_METRICS - 1,)).fault
    assert MetricLayout(("a",), (MAX_METRICS,)).fault
