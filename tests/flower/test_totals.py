"""On Flower a sum holds the totals that the aggregator needs, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa.flower import OneStepRFA, Policy, RobustMod, SecureFedAvg, SecureStrategy
from rfa.secagg.messages.round import OpenRound, decode
from rfa.secagg.statistics import rows_of
from tests.flower.grid import LocalGrid
from tests.flower.toy import FIRST, NODES, model, nodes, options, step_of, with_nu


def sent(grid: LocalGrid, task: str) -> set[frozenset[str]]:
    """Which totals the rounds of a task asked for."""
    found: set[frozenset[str]] = set()
    for _, request, _ in grid.seen:
        record: Any = request.content.config_records["rfa"]
        opening = decode(record["request"]) if "request" in record else None
        if record["task"] == task and isinstance(opening, OpenRound):
            found.add(frozenset(row.name for row in rows_of(opening.statistics)) - {"count"})
    return found


@pytest.mark.parametrize(
    ("strategy", "needed"),
    [
        (OneStepRFA(**with_nu()), {"mass", "squares"}),
        (OneStepRFA(**options()), {"mass", "squares", "near"}),
        (SecureFedAvg(**options()), {"weight"}),
        (SecureFedAvg(weights="equal", **options()), set[str]()),
        (SecureFedAvg(weights="buckets", **options()), {"weight"}),
    ],
)
def test_means_of_metrics_take_no_total(
    tmp_path: Path, strategy: SecureStrategy, needed: set[str]
) -> None:
    grid = LocalGrid(nodes(tmp_path))
    result = strategy.start(grid, model(), num_rounds=1)
    assert sent(grid, "train") == {frozenset(needed)}
    assert sent(grid, "evaluate") == {frozenset()}
    assert result.train_metrics_clientapp
    assert result.evaluate_metrics_clientapp


def bare(node: int, home: Path) -> ClientApp:
    """An app without metrics."""
    client = ClientApp(mods=[RobustMod(Policy(), home)])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        arrays: Any = message.content["arrays"]
        after = (arrays["w"].numpy() + step_of(node, 1)).astype("float32")
        content = {"arrays": ArrayRecord({"w": Array(after)})}
        found = MetricRecord({"num-examples": 10 + node})
        return Message(RecordDict({**content, "metrics": found}), reply_to=message)

    return client


def test_without_metrics_a_median_takes_no_weight(tmp_path: Path) -> None:
    grid = LocalGrid({node: bare(node, tmp_path) for node in range(FIRST, FIRST + NODES)})
    result = OneStepRFA(fraction_evaluate=0.0, **with_nu()).start(grid, model(), num_rounds=1)
    assert sent(grid, "train") == {frozenset({"mass", "squares"})}
    assert result.arrays["w"].numpy().any()
    assert not result.train_metrics_clientapp
