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
from tests.flower.noisy import opening_in
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


def train(home: Path, count: int, lose: Lose | int, *, fast: bool, **more: Any) -> LocalGrid:
    """A round of training with histograms, in which requests are lost.

    Where a number of nodes is lost, these do not join: in a fast round their keys are none.
    """
    late = losing("OpenRound", lose) if isinstance(lose, int) else lose

    def spoil(node: int, request: Message, reply: Message) -> Message:
        if isinstance(lose, int) and node < FIRST + lose and opening_in(request):
            reply.content.config_records["rfa"]["reply"] = bytes(50)
        return reply

    grid = LocalGrid(nodes(home, count), spoil if fast else None, lose=late)
    how = {"fraction_evaluate": 0.0, "robust_metrics": LOSS, "terms": Terms()} | more
    strategy = OneStepRFA(**with_nu(**how))
    strategy.fast = fast
    attempt(strategy, grid, model(), 1)
    return grid


def losing(stage: str, lost: int) -> Lose:
    """The first nodes get no request of a stage, nor any after it."""
    gone: set[int] = set()

    def lose(node: int, request: Message) -> bool:
        if node < FIRST + lost and stage_of(request) == stage:
            gone.add(node)
        return node in gone

    return lose


STAGES = [("", True), ("FirstSum", True), ("", False), ("Roster", False), ("SumRequest", False)]
"""Where nodes are lost, and whether the round is fast; they do not join where none is named."""


@pytest.mark.parametrize(("stage", "fast"), STAGES)
@pytest.mark.parametrize(
    "count", [LEAST_NODES, 12, pytest.param(13, marks=pytest.mark.thorough), 15]
)
@pytest.mark.parametrize("lost", [0, 1, pytest.param(2, marks=pytest.mark.thorough), 3, 5])
def test_no_bins_are_opened_over_few_nodes(
    tmp_path: Path, opened: list[Total], *, stage: str, fast: bool, count: int, lost: int
) -> None:
    """Nodes that are ready and lost afterwards leave a smaller sum."""
    lose = losing(stage, lost) if stage else lost
    train(tmp_path, count, lose, fast=fast, stage_grace=0.0, stage_timeout=0.2)
    for total in opened:
        assert len(total.metrics) == PLAIN or total.sum.count >= LEAST_NODES
    if not lost:
        assert len(opened) == 1
        assert (len(opened[0].metrics) > PLAIN) == (count >= 12)  # 2 of 10 may drop out


@pytest.mark.parametrize("fast", [True, False])
def test_a_part_that_promises_too_few_says_so(
    tmp_path: Path, opened: list[Total], said: pytest.LogCaptureFixture, fast: bool
) -> None:
    grid = train(tmp_path, 12, 2, fast=fast)
    assert not opened
    assert "10 nodes joined, of which 8 may be left in a sum, and histograms" in said.text
    assert f"take {LEAST_NODES}" in said.text
    asked = {stage_of(request) for _, request, _ in grid.seen}
    assert not asked & {"FirstSum", "SumRequest"}
    overs: list[Any] = [
        request.content.config_records["rfa"].get("opened") for _, request, _ in grid.seen
    ]
    assert {word for word in overs if word is not None} == {False}


@pytest.mark.parametrize("fast", [True, False])
def test_without_histograms_such_a_part_has_its_sum(
    tmp_path: Path, opened: list[Total], fast: bool
) -> None:
    train(tmp_path, 12, 2, fast=fast, robust_metrics=None)
    assert [total.sum.count for total in opened] == [10]


@pytest.mark.parametrize("fast", [True, False])
def test_one_part_that_promises_too_few_costs_that_part(
    tmp_path: Path,
    fast: bool,
    opened: list[Total],
    said: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_order(devices: Sequence[int], parts: int) -> list[list[int]]:
        size = len(devices) // parts
        return [list(devices[place * size : (place + 1) * size]) for place in range(parts)]

    monkeypatch.setattr("rfa.flower.strategy.split", in_order)
    train(tmp_path, 24, 2, fast=fast, groups=2)
    assert [total.sum.count for total in opened] == [12]
    assert len(opened[0].metrics) > PLAIN
    assert "part 1 of 2 gives no sum: 10 nodes joined" in said.text


@pytest.mark.parametrize("count", [LEAST_NODES, 12])
def test_a_round_of_too_few_for_bins_is_opened_anew_without_them(
    tmp_path: Path, opened: list[Total], count: int
) -> None:
    """Nodes joined one with bins when they trained: its keys are in no roster."""
    grid = train(tmp_path, count, 0, fast=True)
    asked = [stage_of(request) for node, request, _ in grid.seen if node == FIRST]
    again = [] if count == 12 else ["OpenRound"]
    assert asked == ["", *again, "FirstSum", "Unmask"]
    assert [total.sum.count for total in opened] == [count]
