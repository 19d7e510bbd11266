"""What a run with noise keeps: no server that is killed, or goes on, has charged too little."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message

from rfa.errors import InvalidValueError
from rfa.flower import OneStepRFA, records
from rfa.flower.checkpoint import load_checkpoint
from rfa.flower.errors import RunFailedError
from rfa.flower.metrics import MetricLayout
from rfa.flower.parts import Cohort, PartOracle
from rfa.flower.privacy import MOST_GROWTH, SERVER
from rfa.flower.spending import Spending
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.noise import noisy_sum
from tests.flower.grid import LocalGrid
from tests.flower.noisy import NAMES, RHO, Z, kind_of, spent_by
from tests.flower.toy import NODES, model, nodes, with_nu
from tests.secagg.party import SMALL, party


def test_a_second_roster_is_charged_no_less_than_nodes_charge_themselves() -> None:
    """With so little noise its sum costs less than the first, which nodes were charged before."""
    table = party(10, noise=2.3e-5, fast=True, lost={5: Moment(0, Stage.ROSTER)})
    cohort = Cohort("train", 1, tuple(table.devices), MetricLayout((), ()), 3, bytes(32))
    oracle = PartOracle(table.oracle(), cohort)
    planned = oracle.rho
    assert oracle(np.zeros(3), 1.5).count == 9
    second = noisy_sum(table.opening, SMALL.without(SMALL.parameters(10), 1))
    assert second is not None
    assert second.rho < planned
    own = {table.devices[name].spent_rho for name in table.devices if name != 5}
    assert own == {planned}
    assert oracle.rho == planned


def test_a_run_that_has_spent_its_budget_goes_on_to_nothing(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    how: dict[str, Any] = {"checkpoint": tmp_path / "server.npz", **with_nu()}
    first = OneStepRFA(epsilon=2.0, **how).start(LocalGrid(nodes(tmp_path)), model(), 2)
    grid = LocalGrid(nodes(tmp_path), run=8)
    again = OneStepRFA(epsilon=2.0, **how).start(grid, model(), 4)
    assert not grid.seen
    assert np.array_equal(again.arrays["w"].numpy(), first.arrays["w"].numpy())
    assert "the run ends before round 3" in said.text


def test_rounds_without_noise_are_not_covered_later(tmp_path: Path) -> None:
    how: dict[str, Any] = {"checkpoint": tmp_path / "server.npz", **with_nu(fraction_evaluate=0.0)}
    OneStepRFA(**how).start(LocalGrid(nodes(tmp_path / "a")), model(), 1)
    grid = LocalGrid(nodes(tmp_path / "b"))
    with pytest.raises(InvalidValueError, match="were without noise, so that no epsilon holds"):
        OneStepRFA(epsilon=8.0, **how).start(grid, model(), 2)
    assert not grid.seen


def test_a_run_with_noise_that_went_on_without_has_no_epsilon(tmp_path: Path) -> None:
    how: dict[str, Any] = {"checkpoint": tmp_path / "server.npz", **with_nu(fraction_evaluate=0.0)}
    OneStepRFA(noise_multiplier=Z, **how).start(LocalGrid(nodes(tmp_path / "a")), model(), 1)

    def die(node: int, request: Message, reply: Message) -> Message:
        if kind_of(request) == "Unmask":  # before the round is done, and in no checkpoint
            raise KeyboardInterrupt
        return reply

    with pytest.raises(KeyboardInterrupt):
        OneStepRFA(**how).start(LocalGrid(nodes(tmp_path / "b"), die), model(), 2)
    with pytest.raises(InvalidValueError, match="were without noise"):
        OneStepRFA(noise_multiplier=Z, **how).start(LocalGrid(nodes(tmp_path)), model(), 3)


def serve(home: Path, file: Path, requests: int, lost: int = 0) -> None:
    """A server that is killed when so many replies of nodes have come; one may be lost."""
    seen: list[int] = []

    def spoil(node: int, request: Message, reply: Message) -> Message:
        seen.append(node)
        if len(seen) == requests:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    def lose(node: int, message: Message) -> bool:
        return node == lost and kind_of(message) == "FirstSum"

    strategy = OneStepRFA(noise_multiplier=Z, checkpoint=file, **with_nu())
    strategy.start(LocalGrid(nodes(home), spoil, lose=lose), model(), num_rounds=2)


LEFT = NODES - 1
KILLS = {
    "before a sum is asked for": (NODES - 2, 0),
    "when all keys are there": (NODES, 0),
    "while inputs come": (NODES + 4, 0),
    "when all are there": (2 * NODES, 0),
    "while the sum is opened": (2 * NODES + 6, 0),
    "while the next inputs come, with the training": (3 * NODES + 4, 0),
    "while the next sum is opened": (4 * NODES + 1, 0),
    "before the last checkpoint": (5 * NODES, 0),
    "while a second roster is dealt for": (NODES + LEFT + 3, NAMES[2]),
    "while the inputs come anew": (NODES + 2 * LEFT + 3, NAMES[2]),
    "while their sum is opened": (NODES + 3 * LEFT + 3, NAMES[2]),
}
"""After how many replies of eight nodes, whose round is three stages, or five with a loss.

The second one is two stages."""


@pytest.mark.parametrize(("requests", "lost"), KILLS.values(), ids=KILLS)
def test_a_server_that_is_killed_has_never_charged_too_little(
    tmp_path: Path, requests: int, lost: int
) -> None:
    file = tmp_path / "server.npz"
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(tmp_path, file, requests, lost)
    )
    server.start()
    server.join()
    assert server.exitcode == -signal.SIGKILL
    aggregator = OneStepRFA(**with_nu()).aggregator
    kept = load_checkpoint(file, model(), aggregator).spending.charges
    own = {node: spent_by(tmp_path, node) for node in NAMES}
    assert all(kept.of(node) >= own[node] * (1 - 1e-12) for node in NAMES)
    assert kept.largest <= 2 * RHO * (1 + 1e-12)
    strategy = OneStepRFA(noise_multiplier=Z, checkpoint=file, **with_nu())
    with contextlib.suppress(RunFailedError):  # where a node has no other update than before
        strategy.start(LocalGrid(nodes(tmp_path, {}), run=8), model(), num_rounds=3)
    after = strategy.privacy.spending.charges
    assert all(after.of(node) >= spent_by(tmp_path, node) * (1 - 1e-12) for node in NAMES)


def test_after_a_crash_the_rounds_that_are_left_have_more_noise(tmp_path: Path) -> None:
    """The round that was lost was charged; all others are played, within the budget."""
    file = tmp_path / "server.npz"
    strategy = OneStepRFA(epsilon=4.0, checkpoint=file, **with_nu())

    def die(node: int, request: Message, reply: Message) -> Message:
        if request.metadata.group_id == "2" and records.FIRST in request.content:
            raise KeyboardInterrupt
        return reply

    grid = LocalGrid(nodes(tmp_path / "a"), die)
    with pytest.raises(KeyboardInterrupt):
        strategy.start(grid, model(), num_rounds=4)
    first = strategy.privacy.multiplier
    again = OneStepRFA(epsilon=4.0, checkpoint=file, **with_nu())
    result = again.start(LocalGrid(nodes(tmp_path / "b")), model(), num_rounds=4)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3, 4]
    assert 1 < again.privacy.multiplier / first < MOST_GROWTH
    assert 3.9 < float(str(result.train_metrics_clientapp[4][SERVER])) <= 4.0


@pytest.mark.parametrize("how", [{"noise_multiplier": Z}, {"epsilon": 4.0}])
def test_after_a_crash_nodes_that_find_the_same_updates_go_on(
    tmp_path: Path, how: dict[str, Any], said: pytest.LogCaptureFixture
) -> None:
    """Sums with noise are no repeats, and nobody is told that updates are those from before."""
    file, second = tmp_path / "server.npz", "2"

    def die(node: int, request: Message, reply: Message) -> Message:
        if request.metadata.group_id == second and kind_of(request) == "Unmask":
            raise KeyboardInterrupt  # when all inputs have left
        return reply

    strategy = OneStepRFA(checkpoint=file, **how, **with_nu())
    with pytest.raises(KeyboardInterrupt):
        strategy.start(LocalGrid(nodes(tmp_path), die), model(), num_rounds=4)
    before = spent_by(tmp_path, NAMES[0])
    again = OneStepRFA(checkpoint=file, **how, **with_nu())
    grid = LocalGrid(nodes(tmp_path), run=8)
    result = again.start(grid, model(), num_rounds=4)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3, 4]
    assert "abstains" not in said.text
    assert all("again" not in reply.content["rfa"] for _, _, reply in grid.seen)
    own, kept = spent_by(tmp_path, NAMES[0]), again.privacy.spending.charges.of(NAMES[0])
    assert own > 1.8 * before, "two rounds were charged, one for nothing; three come to that"
    assert kept == pytest.approx(own)


def test_spending_survives_its_file() -> None:
    spending = Spending(multiplier=1.5).charged({2**63 + 5: 0.1, 7: 1 / 3}).played(0.1, 4, 8)
    spending = spending.played(0.1, 4, 8).played(0.2, 4, 8)
    assert [each.count for each in spending.rounds] == [2, 1]
    assert Spending.unpack(json.loads(json.dumps(spending.pack()))) == spending
