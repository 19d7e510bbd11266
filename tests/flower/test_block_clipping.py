"""Block clipping on Flower: radii that are learned over rounds, drop-outs, and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message
from numpy.typing import NDArray

from rfa.aggregators import BlockClipping
from rfa.errors import InvalidValueError
from rfa.flower import SecureStrategy
from rfa.flower.checkpoint import load_checkpoint
from rfa.radii import Radii, shorten_blocks
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstSum, OpenFirstSum, SumRequest
from tests.flower.grid import LocalGrid, Spoil
from tests.flower.toy import DIM, FIRST, NODES, model, nodes, options, step_of

ROUNDS, CLOSE = 4, 2e-5
LOST = FIRST


def strategy_of(size: int = 1, **more: Any) -> SecureStrategy:
    how = options(**{"weights": "equal", "fraction_evaluate": 0.0, **more})
    return SecureStrategy(BlockClipping(size=size), **how)


Asked = dict[bytes, bytes]
"""The radii of each round, by its session: two rounds may have the same radii."""


def request_of(request: Message) -> FirstSum | SumRequest | None:
    """What a node is asked for, if it is a sum."""
    records: Any = request.content.config_records
    record = records.get("rfa-first", records["rfa"])
    message = decode(record["request"]) if "request" in record else None
    if isinstance(message, OpenFirstSum):
        message = decode(message.first)
    return message if isinstance(message, FirstSum | SumRequest) else None


def noting(asked: Asked, lost: int | None = None) -> Spoil:
    """Note the radii of each round, and lose what one node answers to them."""

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        sum_request = request_of(request)
        if sum_request is None:
            return reply
        assert asked.setdefault(sum_request.session, sum_request.levels) == sum_request.levels
        return None if node == lost else reply

    return spoil


def in_one_coordinate(step: NDArray[Any]) -> NDArray[Any]:
    """A change of the first coordinate that is small beside the whole of an update."""
    changed = step.copy()
    changed[0] -= 4.0
    return changed


@pytest.mark.parametrize("lost", [None, LOST])
def test_the_model_moves_by_the_mean_of_clipped_coordinates(
    tmp_path: Path, lost: int | None
) -> None:
    """Radii are what the votes made of them; a lie in one coordinate, and a lost node."""
    asked: Asked = {}
    spoil = noting(asked, lost)
    grid = LocalGrid(nodes(tmp_path, {FIRST + 1: in_one_coordinate}), spoil)
    result = strategy_of().start(grid, model(), num_rounds=ROUNDS)
    assert len(asked) == ROUNDS
    assert len(set(asked.values())) > 1  # the votes move them
    wanted = np.zeros(DIM)
    for t, levels in enumerate(asked.values(), 1):
        steps = {node: step_of(node, t) for node in range(FIRST, FIRST + NODES) if node != lost}
        steps[FIRST + 1] = in_one_coordinate(steps[FIRST + 1])
        values = Radii(np.frombuffer(levels, np.uint8)).values
        wanted += np.mean([np.clip(step, -values, values) for step in steps.values()], axis=0)
    assert np.linalg.norm(result.arrays["w"].numpy() - wanted) < CLOSE


@pytest.mark.parametrize("lost", [None, LOST])
@pytest.mark.parametrize("size", [4, BlockClipping().size])
def test_blocks_are_shortened_and_weighted_by_examples(
    tmp_path: Path, size: int, lost: int | None
) -> None:
    """Two blocks of an update, or one, which is shorter than the default size."""
    asked: Asked = {}
    spoil = noting(asked, lost)
    result = strategy_of(size, weights="examples").start(
        LocalGrid(nodes(tmp_path), spoil), model(), num_rounds=ROUNDS
    )
    assert len(asked) == ROUNDS
    here = [node for node in range(FIRST, FIRST + NODES) if node != lost]
    wanted = np.zeros(DIM)
    for t, levels in enumerate(asked.values(), 1):
        radii = np.repeat(Radii(np.frombuffer(levels, np.uint8)).values, size)[:DIM]
        clipped = [radii * shorten_blocks(step_of(node, t) / radii, size) for node in here]
        wanted += np.average(clipped, axis=0, weights=[10 + node for node in here])
    assert np.linalg.norm(result.arrays["w"].numpy() - wanted) < CLOSE * np.linalg.norm(wanted)


def test_restarts_go_on_with_the_radii(tmp_path: Path) -> None:
    file = tmp_path / "server.npz"
    strategy_of(checkpoint=file).start(LocalGrid(nodes(tmp_path / "1")), model(), num_rounds=2)
    before = load_checkpoint(file, model(), BlockClipping(size=1)).aggregator
    asked: Asked = {}
    grid = LocalGrid(nodes(tmp_path / "2"), noting(asked))
    strategy_of(checkpoint=file).start(grid, model(), num_rounds=3)
    assert list(asked.values()) == [before.levels.tobytes()]


@pytest.mark.parametrize(
    "how",
    [{"max_share": 0.5}, {"noise_multiplier": 1.0}, {"epsilon": 8.0}, {"weights": "examples"}],
)
def test_what_does_not_go_with_it_is_said_at_once(how: dict[str, Any]) -> None:
    with pytest.raises((InvalidValueError, TypeError), match="block"):
        strategy_of(**how)
