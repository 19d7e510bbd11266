"""On Flower a sum holds the totals that the aggregator needs, and no others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from rfa.flower import OneStepRFA, SecureFedAvg, SecureStrategy
from rfa.flower.metrics import layout_of
from rfa.secagg.statistics import rows_of
from tests.flower.grid import LocalGrid
from tests.flower.noisy import opening_in
from tests.flower.toy import model, nodes, options, with_nu


def sent(grid: LocalGrid, task: str) -> set[frozenset[str]]:
    """Which totals the rounds of a task asked for."""
    found: set[frozenset[str]] = set()
    for _, request, _ in grid.seen:
        record: Any = request.content.config_records["rfa"]
        if record["task"] == task and (opening := opening_in(request)):
            found.add(frozenset(row.name for row in rows_of(opening.statistics)) - {"count"})
    return found


@pytest.mark.parametrize(
    ("strategy", "needed"),
    [
        (OneStepRFA(**with_nu()), {"mass", "squares"}),
        (OneStepRFA(**options()), {"mass", "squares", "near"}),
        (SecureFedAvg(**options()), {"weight"}),
        (SecureFedAvg(weights="equal", **options()), set[str]()),
        (SecureFedAvg(weights="buckets", **options(example_cap=256.0)), {"weight"}),
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


def test_a_metric_that_one_node_alone_has_is_a_limit() -> None:
    """Those of the others are not finite: the total is of one node, and so is the weight."""
    layout = layout_of({"auc": 0.0})
    rows = [layout.row({"auc": math.nan}, weight) for weight in (0.5, 0.25, 1.0)]
    rows.append(layout.row({"auc": 0.75}, 0.125))
    total, weight = map(sum, zip(*rows, strict=True))
    assert (total / weight, weight) == (0.75, 0.125)
