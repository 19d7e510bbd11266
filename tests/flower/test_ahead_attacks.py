"""Attacks on rounds that begin with their first sum: nodes that fail, lie, or have other keys."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from rfa.flower import OneStepRFA
from rfa.flower.transport import GridExchange
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.fixed_point import Total
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import UnmaskShares
from tests.flower.grid import LocalGrid
from tests.flower.noisy import NAMES, RHO, Z, spent_by
from tests.flower.test_ahead import (
    MANY,
    answers,
    begins,
    exchanges,
    grid_of,
    in_round,
    lose_first_of,
)
from tests.flower.toy import NODES, model, nodes, with_nu

LOST = (ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED, ErrorCode.UNKNOWN)
"""What Flower says of a node whose reply it does not have, whatever the node did before."""

GONE = (104, 105, 106, 107, 108)
"""Too many of twelve for a second roster without them."""


def train_only(**more: Any) -> OneStepRFA:
    return OneStepRFA(**with_nu(fraction_evaluate=0.0, **more))


@pytest.mark.parametrize("code", LOST)
def test_a_node_whose_reply_flower_has_lost_is_charged(tmp_path: Path, code: int) -> None:
    """It has masked its input, and charged itself; the word that there is no reply is Flower's."""

    def spoil(node: int, request: Message, reply: Message) -> Message:
        lost = node == 104 and begins(request)
        return Message(Error(code, "no reply"), reply_to=request) if lost else reply

    strategy, grid = train_only(noise_multiplier=Z), LocalGrid(nodes(tmp_path), spoil=spoil)
    strategy.start(grid, model(), num_rounds=2)
    charges = strategy.privacy.spending.charges
    assert spent_by(tmp_path, 104) == pytest.approx(2 * RHO)
    assert all(charges.of(node) >= spent_by(tmp_path, node) * (1 - 1e-12) for node in NAMES)


def test_a_node_that_refuses_the_same_message_a_second_time_is_charged(tmp_path: Path) -> None:
    """The network loses its masked input, and brings it the message once more."""

    def spoil(node: int, request: Message, reply: Message) -> Message:
        again = node == 104 and begins(request)
        return grid.apps[node](request, grid.contexts[node]) if again else reply

    strategy, grid = train_only(noise_multiplier=Z), LocalGrid(nodes(tmp_path), spoil=spoil)
    strategy.start(grid, model(), num_rounds=2)
    charges = strategy.privacy.spending.charges
    assert spent_by(tmp_path, 104) == pytest.approx(2 * RHO)
    assert charges.of(104) >= spent_by(tmp_path, 104) * (1 - 1e-12)


def test_a_node_that_says_itself_that_it_has_no_keys_is_not_charged(tmp_path: Path) -> None:
    strategy, grid = train_only(noise_multiplier=Z), LocalGrid(nodes(tmp_path))
    strategy.start(grid, model(), num_rounds=1)
    (tmp_path / "flower" / "7" / "104.train").unlink()
    strategy.start(grid, model(), num_rounds=1)
    assert "NoKeysAheadError" in answers(grid, 1)
    assert strategy.privacy.spending.charges.of(104) == pytest.approx(RHO)
    assert spent_by(tmp_path, 104) == pytest.approx(RHO)


def test_two_strategies_in_turn_let_nobody_train_in_vain(
    tmp_path: Path, trained: list[int]
) -> None:
    """The keys that a node has are for the other strategy: it says so before it trains."""
    one, other, grid = train_only(), train_only(), LocalGrid(nodes(tmp_path))
    arrays = model()
    for strategy in (one, other, one, other):
        before = len(trained)
        arrays = strategy.start(grid, arrays, num_rounds=1).arrays
        assert sorted(trained[before:]) == list(NAMES)


@pytest.mark.parametrize("liars", [(104,), (104, 105)])
def test_keys_that_make_no_cohort_are_refused_when_they_are_sent(
    tmp_path: Path, liars: tuple[int, ...]
) -> None:
    """One lie in the first round made all later rounds of the run ask for keys."""
    sent: list[Any] = []

    def spoil(node: int, request: Message, reply: Message) -> Message:
        record: Any = {} if reply.has_error() else reply.content.config_records["rfa"]
        found = decode(record["reply"]) if record.get("reply") else None
        if node not in liars or not in_round(request, 1) or not isinstance(found, UnmaskShares):
            return reply
        (keys,) = found.keys
        sent.append(keys)
        same = keys.all_keys[0] if len(liars) == 1 else sent[0].mask_keys[0]
        keys = dataclasses.replace(keys, mask_keys=(*keys.mask_keys[1:], same))
        lie = dataclasses.replace(found, keys=(keys,)).encode()
        return Message(RecordDict({"rfa": ConfigRecord({"reply": lie})}), reply_to=request)

    grid = grid_of(tmp_path, spoil=spoil)
    result = train_only().start(grid, model(), num_rounds=4)
    assert sent
    assert len(result.train_metrics_clientapp) == 4
    assert exchanges(grid) == [3, 3, 2, 2]


@pytest.mark.parametrize("task", ["train", "evaluate"])
def test_nodes_that_do_not_hear_that_a_round_is_over_are_asked_anew(
    tmp_path: Path, opened: list[Total], task: str
) -> None:
    """Their update is the same when they train once more, and was masked in a sum of nobody."""
    first = lose_first_of(*GONE, task=task)

    def lose(node: int, request: Message) -> bool:
        return first(node, request) or "over" in request.content.config_records["rfa"]

    grid = grid_of(tmp_path, lose=lose)
    strategy = OneStepRFA(**with_nu())
    strategy.start(grid, model(), num_rounds=2, timeout=0.5)
    assert Counter(answers(grid, 2, task)) == Counter(FirstInput=MANY - 5, AdvertiseKeys=MANY)
    assert [total.sum.count for total in opened] == [MANY] * 4


def test_a_message_that_is_late_by_a_round_is_refused_before_the_training(
    tmp_path: Path, trained: list[int]
) -> None:
    """Nodes were asked anew in between, and have keys for the round after: these stay."""
    first, held = lose_first_of(*GONE), list[tuple[int, Message]]()

    def lose(node: int, request: Message) -> bool:
        if first(node, request):
            held.append((node, request))
        return first(node, request)

    grid, strategy = grid_of(tmp_path, lose=lose), train_only()
    arrays = strategy.start(grid, model(), num_rounds=2, timeout=0.5).arrays
    before = len(trained)
    replies = [grid.apps[node](message, grid.contexts[node]) for node, message in held]
    assert len(replies) == len(GONE)
    assert all(str(reply.error.reason).startswith("NoKeysAheadError") for reply in replies)
    assert len(trained) == before
    strategy.ahead.count("train", worked=True)
    grid.seen.clear()
    strategy.start(grid, arrays, num_rounds=1)
    assert exchanges(grid) == [2]


def test_personal_parameters_are_trained_once_in_a_round_that_is_asked_anew(
    tmp_path: Path,
) -> None:
    found: list[Any] = []
    for name, lose in (("once", None), ("anew", lose_first_of(*GONE))):
        grid = grid_of(tmp_path / name, lose=lose)
        train_only(personal="mine").start(grid, model(), num_rounds=2, timeout=0.5)
        file = tmp_path / name / "101" / "flower" / "personal" / "mine" / "101"
        found.append(np.fromfile(file, np.float32))
    assert np.abs(found[0] - found[1]).max() < 1e-3


def test_personal_parameters_are_trained_once_by_a_node_that_is_killed_after_it_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was masked, so its keys are still there when the same message comes once more."""
    grid, strategy = grid_of(tmp_path), train_only(personal="mine")
    asked: list[Message] = []

    def hold(node: int, request: Message) -> bool:
        held = node == 104 and begins(request)
        asked.extend([request] * held)
        return held

    grid.lose = hold
    strategy.start(grid, model(), num_rounds=2, timeout=0.5)
    file = tmp_path / "104" / "flower" / "personal" / "mine" / "104"
    with monkeypatch.context() as patch:
        patch.setattr(DurableDevice, "begin", killed)
        with pytest.raises(KeyboardInterrupt):
            grid.apps[104](asked[0], grid.contexts[104])
    once = file.read_bytes()
    assert not grid.apps[104](asked[0], grid.contexts[104]).has_error()
    assert file.read_bytes() == once


def killed(*_: Any, **__: Any) -> None:
    """The end of a process."""
    raise KeyboardInterrupt


def say_nothing(*_: Any, **__: Any) -> None:
    """What a server sends that is killed."""


@pytest.mark.parametrize("ahead", [False, True])
def test_a_server_that_is_killed_while_nodes_train_goes_on(
    tmp_path: Path, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an app that always has the same update, as one without randomness has."""
    file = tmp_path / "server.npz"
    strategy = train_only(checkpoint=file)
    if not ahead:
        strategy.ahead.keep = lambda *_: None  # type: ignore[method-assign]

    replies: list[int] = []

    def die(node: int, request: Message, reply: Message) -> Message:
        replies.extend([node] * in_round(request, 2))
        if len(replies) == NODES:  # all have trained, and the server has heard of none
            raise KeyboardInterrupt
        return reply

    with monkeypatch.context() as patch:
        patch.setattr(GridExchange, "tell_over", say_nothing)
        with pytest.raises(KeyboardInterrupt):
            strategy.start(LocalGrid(nodes(tmp_path), die), model(), 2)
    again = train_only(checkpoint=file)
    result = again.start(LocalGrid(nodes(tmp_path), run=8), model(), 2)
    assert set(result.train_metrics_clientapp) == {1, 2}
