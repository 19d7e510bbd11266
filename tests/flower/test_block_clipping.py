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
from rfa.flower import OneStepRFA, SecureStrategy
from rfa.flower.checkpoint import load_checkpoint
from rfa.radii import Radii
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstSum, SumRequest
from tests.flower.grid import LocalGrid
from tests.flower.toy import DIM, FIRST, TARGET, model, nodes, options

ROUNDS = 12
BAD = (FIRST, FIRST + 1)


def strategy_of(**more: Any) -> SecureStrategy:
    return SecureStrategy(BlockClipping(size=1), fraction_evaluate=0.0, **options(**more))


def in_one_coordinate(step: NDArray[Any]) -> NDArray[Any]:
    """A change of the first coordinate that is small beside the whole of an update."""
    changed = step.copy()
    changed[0] -= 4.0
    return changed


def test_radii_are_learned_and_a_change_of_one_coordinate_is_clipped(tmp_path: Path) -> None:
    """Two of eight nodes pull one coordinate back: by their share of its radius, and no more."""
    ends: dict[str, Any] = {}
    lies = dict.fromkeys(BAD, in_one_coordinate)
    file = tmp_path / "server.npz"
    blocks = strategy_of(checkpoint=file, weights="equal")
    grid = LocalGrid(nodes(tmp_path / "a", lies))
    ends["blocks"] = blocks.start(grid, model(), num_rounds=ROUNDS).arrays["w"].numpy()
    state = load_checkpoint(file, model(), BlockClipping(size=1)).aggregator
    assert np.median(np.abs(np.log2(Radii(state.levels).values / TARGET))) < 1
    plain = OneStepRFA(fraction_evaluate=0.0, **options(weights="equal"))
    grid = LocalGrid(nodes(tmp_path / "b", lies))
    ends["median"] = plain.start(grid, model(), num_rounds=ROUNDS).arrays["w"].numpy()
    shares = {name: float(w[0] / w[1]) for name, w in ends.items()}
    honest = TARGET[0] / TARGET[1]
    assert shares["blocks"] > honest / 2
    assert shares["median"] < shares["blocks"] - honest / 4


def test_a_node_that_drops_out_leaves_the_sum_of_the_others(tmp_path: Path) -> None:
    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        record: Any = request.content.config_records["rfa"]
        asked = "request" in record and isinstance(decode(record["request"]), FirstSum | SumRequest)
        return None if node == FIRST and asked else reply

    file = tmp_path / "server.npz"
    strategy = strategy_of(checkpoint=file)
    grid = LocalGrid(nodes(tmp_path), spoil)
    result = strategy.start(grid, model(), num_rounds=3)
    w: Any = result.arrays["w"].numpy()
    assert w.shape == (DIM,)
    assert (w > 0).all()
    assert len(load_checkpoint(file, model(), BlockClipping(size=1)).aggregator.levels) == DIM


def test_restarts_go_on_with_the_radii(tmp_path: Path) -> None:
    file = tmp_path / "server.npz"
    strategy_of(checkpoint=file).start(LocalGrid(nodes(tmp_path / "1")), model(), num_rounds=2)
    before = load_checkpoint(file, model(), BlockClipping(size=1)).aggregator
    asked: list[bytes] = []

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        record: Any = request.content.config_records["rfa"]
        message = decode(record["request"]) if "request" in record else None
        if isinstance(message, FirstSum | SumRequest):
            asked.append(message.levels)
        return reply

    grid = LocalGrid(nodes(tmp_path / "2"), spoil)
    strategy_of(checkpoint=file).start(grid, model(), num_rounds=3)
    assert set(asked) == {before.levels.tobytes()}


@pytest.mark.parametrize("how", [{"max_share": 0.5}, {"noise_multiplier": 1.0}, {"epsilon": 8.0}])
def test_what_does_not_go_with_it_is_said_at_once(how: dict[str, Any]) -> None:
    with pytest.raises((InvalidValueError, TypeError), match="block"):
        strategy_of(**how)
