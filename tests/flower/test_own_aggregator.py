"""A private aggregator of one's own on Flower: with state, several queries, parts, drop-outs."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message

from rfa._types import Vector
from rfa.aggregators import RFA, Layout, SumAggregator
from rfa.errors import OracleStoppedError
from rfa.flower import SecureStrategy, records
from rfa.flower.checkpoint import load_checkpoint
from rfa.numerics.plain_oracle import PlainOracle
from rfa.oracle import RecordingOracle, Sum, SumOracle
from rfa.radii import Radius
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstSum, SumRequest
from tests.flower.grid import LocalGrid, Spoil
from tests.flower.toy import DIM, app, attempt, model, options, step_of

NAMES = list(range(101, 113))
PARTS = [NAMES[first::3] for first in range(3)]
FEW = NAMES[:6]
ROUNDS, LOSING_ROUND, LOST = 4, 2, 105
CLOSE = 2e-5
"""How far whole numbers may be off: the rounding of two sums in each of four rounds."""


@dataclass(frozen=True)
class Momentum:
    """What `HeavyBall` carries: a direction, empty at first, and how often it was asked."""

    direction: Any = field(default_factory=lambda: np.zeros(0))
    rounds: int = 0


@dataclass(frozen=True)
class HeavyBall(SumAggregator[Momentum]):
    """Two clipped steps from where the last round points to, and some of its direction more."""

    nu: float = 0.2
    keep: float = 0.3

    def init(self) -> Momentum:
        """No direction yet."""
        return Momentum()

    def layout(self, devices: int) -> Layout:
        """Two queries."""
        return Layout(queries=2)

    def aggregate(self, oracles: Sequence[RecordingOracle], dim: int, state: Momentum) -> Vector:
        """Two steps from there."""
        (oracle,) = oracles
        v = ahead = self.keep * (state.direction if state.rounds else np.zeros(dim))
        for _ in range(2):
            total = oracle(v, self.nu)
            v = v + self.nu * total.push / total.need("mass")
        return v + ahead

    def next_state(self, oracles: Sequence[RecordingOracle], state: Momentum) -> Momentum:
        """The direction of the first of the two sums."""
        total = oracles[0].previous
        assert total is not None
        return Momentum(total.push / total.need("weight"), state.rounds + 1)


@dataclass(frozen=True)
class ByMass(SumAggregator[Momentum]):
    """The steps of three parts, each weighted by its mass and by how many rounds there were."""

    def init(self) -> Momentum:
        """No direction yet."""
        return Momentum()

    def layout(self, devices: int) -> Layout:
        """Three parts at the same time."""
        return Layout(parts=3)

    def aggregate(self, oracles: Sequence[RecordingOracle], dim: int, state: Momentum) -> Vector:
        """The mean of the steps of the parts that give a sum."""
        push, mass = np.zeros(dim), 0.0
        for oracle in oracles:
            with contextlib.suppress(OracleStoppedError):
                total = oracle(np.zeros(dim), 1.0)
                push, mass = push + total.push, mass + total.need("mass")
        return push / mass / (1 + state.rounds)

    def next_state(self, oracles: Sequence[RecordingOracle], state: Momentum) -> Momentum:
        """One round more."""
        return dataclasses.replace(state, rounds=state.rounds + 1)


@pytest.fixture(autouse=True)
def known_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def split(devices: Sequence[int], parts: int) -> list[list[int]]:
        return PARTS if parts == len(PARTS) else [sorted(devices)]

    monkeypatch.setattr("rfa.flower.strategy.split", split)


def asks_for_a_sum(message: Message) -> bool:
    record: Any = message.content.config_records["rfa"]
    if records.FIRST in message.content:  # with the work, to nodes that have sent their keys
        return True
    return "request" in record and isinstance(decode(record["request"]), FirstSum | SumRequest)


def losing(which: int) -> Spoil:
    """A node does not answer the sums of a round: it is lost to the round, and comes back."""
    rounds = {"done": 0}

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        record: Any = request.content.config_records["rfa"]
        if node == LOST and "cap" in record:
            rounds["done"] += 1
        gone = node == LOST and rounds["done"] == which and asks_for_a_sum(request)
        return None if gone else reply

    return spoil


def grid_of(home: Path, losing_round: int = 0, names: Sequence[int] = FEW) -> LocalGrid:
    return LocalGrid({node: app(node, home) for node in names}, losing(losing_round))


def strategy_of(aggregator: SumAggregator[Any], **more: Any) -> SecureStrategy:
    return SecureStrategy(aggregator, fraction_evaluate=0.0, **options(**more))


def oracle_of(part: Sequence[int], t: int) -> SumOracle:
    """The sums of a part without masks; none if it is empty."""

    def stopped(v: Vector, nu: Radius) -> Sum:
        msg = "too few devices"
        raise OracleStoppedError(msg)

    if not part:
        return stopped
    updates = np.array([step_of(node, t) for node in part], np.float32)
    return PlainOracle(updates, np.array([(10.0 + node) / 200 for node in part]))


def plain(
    aggregator: SumAggregator[Any], rounds: Sequence[Sequence[Sequence[int]]]
) -> tuple[Vector, Any]:
    """The model and the state after rounds over some parts each, without Flower or masks."""
    w, state = np.zeros(DIM), aggregator.init()
    for t, parts in enumerate(rounds, 1):
        oracles = [oracle_of(part, t) for part in parts]
        result, state = aggregator(oracles, DIM, state)
        w = w + result.point
    return w, state


STAYED = [[FEW]] * ROUNDS
WITH_A_LOSS = [[[node for node in FEW if (node, t) != (LOST, 2)]] for t in range(1, ROUNDS + 1)]


def test_it_gives_what_it_gives_over_updates_in_the_clear(tmp_path: Path) -> None:
    """A node drops out of a round."""
    strategy = strategy_of(HeavyBall())
    grid = grid_of(tmp_path, LOSING_ROUND)
    result = strategy.start(grid, model(), num_rounds=ROUNDS, timeout=1)
    wanted, _ = plain(HeavyBall(), WITH_A_LOSS)
    assert np.linalg.norm(result.arrays["w"].numpy() - wanted) < CLOSE
    stayed, _ = plain(HeavyBall(), STAYED)
    assert np.linalg.norm(wanted - stayed) > 100 * CLOSE
    queries = [node for node, request, _ in grid.seen if asks_for_a_sum(request)]
    assert queries.count(NAMES[0]) == 2 * ROUNDS + 1  # the first sum without the lost node anew
    assert queries.count(LOST) == 2 * (ROUNDS - 1)


def test_it_goes_on_with_its_state_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "server.npz"
    aggregator = HeavyBall()
    for done in (2, ROUNDS):
        strategy = strategy_of(aggregator, checkpoint=file)
        grid = grid_of(tmp_path / str(done), LOSING_ROUND if done == 2 else 0)
        strategy.start(grid, model(), num_rounds=done, timeout=1)
    wanted, state = plain(aggregator, WITH_A_LOSS)
    kept = load_checkpoint(file, model(), aggregator)
    assert np.linalg.norm(kept.arrays["w"].numpy() - wanted) < CLOSE
    assert kept.aggregator.rounds == state.rounds == ROUNDS
    assert np.linalg.norm(kept.aggregator.direction - state.direction) < CLOSE
    forgetful, _ = plain(HeavyBall(keep=0.0), WITH_A_LOSS)
    assert np.linalg.norm(wanted - forgetful) > 100 * CLOSE


def test_a_round_without_a_sum_leaves_its_state(tmp_path: Path) -> None:
    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        return None if asks_for_a_sum(request) else reply

    file = tmp_path / "server.npz"
    strategy = strategy_of(HeavyBall(), checkpoint=file)
    strategy.start(grid_of(tmp_path / "a"), model(), num_rounds=1)
    before = load_checkpoint(file, model(), HeavyBall()).aggregator
    silent = LocalGrid({node: app(node, tmp_path / "b") for node in FEW}, spoil)
    attempt(strategy, silent, model(), num_rounds=2)
    after = load_checkpoint(file, model(), HeavyBall())
    assert (after.round, after.aggregator.rounds) == (2, 1)
    assert np.array_equal(after.aggregator.direction, before.direction)


@pytest.mark.parametrize("lost", [0, LOSING_ROUND])
def test_its_parts_have_sums_of_their_own(tmp_path: Path, lost: int) -> None:
    """A part of four bears no loss: the aggregator hears of it, and does without the part."""
    grid = grid_of(tmp_path, lost, NAMES)
    result = strategy_of(ByMass()).start(grid, model(), num_rounds=2)
    left = [[] if lost and LOST in part else part for part in PARTS]
    wanted, _ = plain(ByMass(), [PARTS, left])
    assert np.linalg.norm(result.arrays["w"].numpy() - wanted) < CLOSE
    queries = [node for node, request, _ in grid.seen if asks_for_a_sum(request)]
    assert sorted([*queries, *([LOST] if lost else [])]) == sorted(2 * NAMES)


def test_a_checkpoint_of_another_aggregator_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.npz"
    strategy_of(HeavyBall(), checkpoint=file).start(grid_of(tmp_path), model(), num_rounds=1)
    strategy, grid = strategy_of(RFA(), checkpoint=file), grid_of(tmp_path / "other")
    with pytest.raises(ValueError, match=r"is not a state of RFA.*: remove it to start over"):
        strategy.start(grid, model(), num_rounds=2)
    assert not grid.seen


def test_it_is_named_by_its_module() -> None:
    strategy = SecureStrategy(f"{__name__}:HeavyBall:nu=3,keep=0.5", **options())
    assert strategy.aggregator == HeavyBall(nu=3, keep=0.5)


def test_more_queries_than_it_says_end_the_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @dataclass(frozen=True)
    class Greedy(HeavyBall):
        def layout(self, devices: int) -> Layout:
            return Layout()

    logging.getLogger("flwr").propagate = True
    result = attempt(strategy_of(Greedy()), grid_of(tmp_path), model(), num_rounds=1)
    assert not result.arrays["w"].numpy().any()
    assert "round 1 is skipped, and the model is kept: all 1 masked sums" in caplog.text


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_an_aggregate_that_is_not_finite_leaves_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: float
) -> None:
    """As in the lab; 1e300 is no number of the model's float32."""

    @dataclass(frozen=True)
    class Broken(HeavyBall):
        def aggregate(
            self, oracles: Sequence[RecordingOracle], dim: int, state: Momentum
        ) -> Vector:
            super().aggregate(oracles, dim, state)
            return np.full(dim, value)

    logging.getLogger("flwr").propagate = True
    file = tmp_path / "server.npz"
    strategy = strategy_of(Broken(), checkpoint=file)
    result = attempt(strategy, grid_of(tmp_path), model(), num_rounds=1)
    assert not result.arrays["w"].numpy().any()
    assert not load_checkpoint(file, model(), Broken()).arrays["w"].numpy().any()
    assert "round 1 is skipped, and the model is kept: the aggregate of Broken" in caplog.text
