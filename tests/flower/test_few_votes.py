"""Histograms of metrics are over enough nodes, however many are lost on the way to the sum."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message
from flwr.clientapp import ClientApp

from rfa.flower import OneStepRFA, Terms
from rfa.flower.histograms import LEAST_NODES
from rfa.secagg.fixed_point import Total
from tests.flower.grid import LocalGrid, Lose
from tests.flower.test_one_sum import stage_of
from tests.flower.toy import FIRST, app, attempt, model, with_nu

LOSS = {"loss": (96.0, 128.0)}
PLAIN = 3
"""The numbers without a histogram: a metric, the weight behind it, and who is above the cap."""


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What the strategy logs."""
    logging.getLogger("flwr").propagate = True
    caplog.set_level(logging.INFO, "flwr")
    return caplog


def nodes(home: Path, count: int) -> dict[int, ClientApp]:
    return {node: app(node, home) for node in range(FIRST, FIRST + count)}


def train(home: Path, count: int, lose: Lose, rounds: int = 1, **more: Any) -> LocalGrid:
    """Rounds of training with histograms, in which requests are lost."""
    grid = LocalGrid(nodes(home, count), lose=lose)
    how = {"fraction_evaluate": 0.0, "robust_metrics": LOSS, "terms": Terms()} | more
    attempt(OneStepRFA(**with_nu(**how)), grid, model(), rounds)
    return grid


def losing(stage: str, lost: int) -> Lose:
    """The first nodes get no request of a stage, nor any after it."""
    gone: set[int] = set()

    def lose(node: int, request: Message) -> bool:
        if node < FIRST + lost and stage_of(request) == stage:
            gone.add(node)
        return node in gone

    return lose


@pytest.mark.parametrize("stage", ["OpenRound", "Roster", "SumRequest"])
@pytest.mark.parametrize("count", [LEAST_NODES, 12, 13, 15])
@pytest.mark.parametrize("lost", [0, 1, 2, 3, 5])
def test_no_bins_are_opened_over_few_nodes(
    tmp_path: Path, opened: list[Total], stage: str, count: int, lost: int
) -> None:
    """Nodes that are ready and lost afterwards leave a smaller sum."""
    train(tmp_path, count, losing(stage, lost), stage_grace=0.0, stage_timeout=0.2)
    for total in opened:
        assert len(total.metrics) == PLAIN or total.sum.count >= LEAST_NODES
    if not lost:
        assert len(opened) == 1
        assert (len(opened[0].metrics) > PLAIN) == (count >= 12)  # 2 of 10 may drop out


def test_a_part_that_promises_too_few_says_so(
    tmp_path: Path, opened: list[Total], said: pytest.LogCaptureFixture
) -> None:
    grid = train(tmp_path, 12, losing("OpenRound", 2))
    assert not opened
    assert "10 nodes joined, of whom 8 may be left in a sum, and histograms" in said.text
    assert f"take {LEAST_NODES}" in said.text
    asked = {stage_of(request) for _, request, _ in grid.seen}
    assert "SumRequest" not in asked
    overs: list[Any] = [
        request.content.config_records["rfa"].get("opened") for _, request, _ in grid.seen
    ]
    assert {word for word in overs if word is not None} == {False}


def test_without_histograms_such_a_part_has_its_sum(tmp_path: Path, opened: list[Total]) -> None:
    train(tmp_path, 12, losing("OpenRound", 2), robust_metrics=None)
    assert [total.sum.count for total in opened] == [10]


def test_one_part_that_promises_too_few_costs_that_part(
    tmp_path: Path,
    opened: list[Total],
    said: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_order(devices: Sequence[int], parts: int) -> list[list[int]]:
        size = len(devices) // parts
        return [list(devices[place * size : (place + 1) * size]) for place in range(parts)]

    monkeypatch.setattr("rfa.flower.strategy.split", in_order)
    train(tmp_path, 24, losing("OpenRound", 2), groups=2)
    assert [total.sum.count for total in opened] == [12]
    assert len(opened[0].metrics) > PLAIN
    assert "part 1 of 2 gives no sum: 10 nodes joined" in said.text
