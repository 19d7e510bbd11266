"""Stages of the secure sum close when enough nodes have answered, and a grace time has passed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message

from rfa.flower import RFA, OneStepRFA
from rfa.flower.transport import Closing, send
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstInput, FirstSum, MaskedInput, SumRequest, UnmaskShares
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.machine import Server
from rfa.secagg.server.requests import Requests
from tests.flower.grid import LocalGrid, Spoil
from tests.flower.test_parts import bytes_in
from tests.flower.toy import NODES, TARGET, model, nodes, with_nu
from tests.secagg.party import MALICIOUS, SMALL, party


class SlowGrid:
    """A grid on a clock of its own, whose nodes answer after so many seconds each."""

    def __init__(self, seconds: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.seconds = 0.0, seconds
        fake = SimpleNamespace(sleep=self.sleep, monotonic=self.clock)
        monkeypatch.setattr("rfa.flower.transport.time", fake)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1e-3)

    def push_messages(self, messages: Iterable[int]) -> list[str]:
        return [str(node) for node in messages]

    def pull_messages(self, names: Iterable[str]) -> list[Any]:
        there = [name for name in names if self.seconds[int(name)] <= self.now]
        return [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=n)) for n in there]

    def answered(self, timeout: float, closing: Closing | None = None) -> set[int]:
        messages: Any = [(node, node) for node in self.seconds]
        grid: Any = self
        return {node for node, _ in send(grid, messages, timeout, self.clock, closing)}


def stage(enough: int) -> Requests:
    return Requests(iter(()), enough)


SECONDS = {1: 0.0, 2: 1.0, 3: 2.0, 4: 8.0, 5: 50.0, 6: 1e9}


@pytest.mark.parametrize(
    ("enough", "grace", "who", "end", "early"),
    [
        (None, 10.0, {1, 2, 3, 4, 5}, 120.0, False),  # as before: all, until the time is up
        (6, 10.0, {1, 2, 3, 4, 5}, 120.0, False),  # not enough: as long as it takes
        (3, 10.0, {1, 2, 3, 4}, 12.0, True),  # enough after 2 s, and 10 s of grace
        (4, 10.0, {1, 2, 3, 4}, 18.0, True),
        (5, 100.0, {1, 2, 3, 4, 5}, 120.0, False),  # the grace ends after the time is up
        (3, 0.0, {1, 2, 3}, 2.0, True),
        (5, 0.0, {1, 2, 3, 4, 5}, 50.0, True),
    ],
)
def test_a_stage_closes_a_grace_time_after_enough_answers(  # noqa: PLR0917
    monkeypatch: pytest.MonkeyPatch,
    enough: int | None,
    grace: float,
    who: set[int],
    end: float,
    early: bool,
) -> None:
    grid = SlowGrid(SECONDS, monkeypatch)
    closing = Closing(None if enough is None else stage(enough), grace)
    assert grid.answered(120.0, closing) == who
    assert end <= grid.now < end + 0.6
    assert closing.early == early


def test_the_grace_time_does_not_begin_anew_with_each_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = SlowGrid({node: 3.0 * node for node in range(40)}, monkeypatch)
    assert len(grid.answered(120.0, Closing(stage(3), 10.0))) == 6
    assert 16.0 <= grid.now < 16.6


def test_answers_that_are_none_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = stage(3)
    grid = SlowGrid(SECONDS, monkeypatch)
    messages: Any = [(node, node) for node in SECONDS]
    taken: set[int] = set()
    slow: Any = grid
    for node, _ in send(slow, messages, 120.0, grid.clock, Closing(requests, 10.0)):
        requests.spoilt += node in {1, 2}
        taken.add(node)
    assert taken == {1, 2, 3, 4, 5}
    assert 60.0 <= grid.now < 60.6


def test_a_full_stage_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = SlowGrid(dict.fromkeys(range(5), 1.0), monkeypatch)
    assert len(grid.answered(120.0, Closing(stage(3), 10.0))) == 5
    assert grid.now < 1.6


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS])
@pytest.mark.parametrize("queries", [1, 2])
def test_enough_is_never_less_than_the_rules_require(terms: Terms, queries: int) -> None:
    """n - f in each stage, and all where a loss would tell on those who left."""
    table = party(10, terms, queries=queries)
    server = Server(table.opening, terms, table.known)
    v = np.zeros(3)

    def carry(requests: Requests) -> int:
        for device, reply in table.carry(requests):
            server.take(device, reply)
        return requests.enough

    assert carry(server.open(table.devices)) == terms.enough(10) == 8
    least, dealt = 8, carry(server.roster())
    for query in range(queries):
        last = query == queries - 1
        asked = [carry(server.ask(v, 1.5))]
        if terms is MALICIOUS:
            asked.append(carry(server.survivors()))
        asked.append(carry(server.unmask()))
        server.total()
        assert asked[0] == (least if query == 0 else 10)
        assert set(asked[1:]) == {least if last else 10}
    assert dealt == server.parameters.survivors == least


def test_enough_to_join_is_all_where_fewer_could_not_hold_the_terms() -> None:
    terms = Terms()
    smallest = terms.smallest()
    assert terms.enough(smallest) == smallest
    for asked in range(smallest, 200):
        enough = terms.enough(asked)
        assert enough >= asked - int(0.2 * asked)
        terms.parameters(enough)


def silent_in(kind: type[Any], *gone: int) -> Spoil:
    """Nodes that do not answer requests of a kind."""

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        asked = bytes_in(request, "request")
        lost = node in gone and asked and isinstance(decode(asked), kind)
        return None if lost else reply

    return spoil


@pytest.mark.parametrize(("fast", "kind"), [(True, FirstSum), (False, SumRequest)])
def test_a_round_with_a_slow_node_takes_its_grace_and_not_the_whole_time(
    tmp_path: Path, fast: bool, kind: type[Any]
) -> None:
    grid = LocalGrid(nodes(tmp_path), silent_in(kind, 104))
    given = with_nu(stage_timeout=60.0, stage_grace=0.3, fraction_evaluate=0.0)
    strategy = OneStepRFA(**given)
    strategy.fast = fast
    began = time.monotonic()
    result = strategy.start(grid, model(), num_rounds=1)
    assert time.monotonic() - began < 30
    w: Any = result.arrays["w"].numpy()
    assert np.linalg.norm(w - TARGET) < 0.5
    assert strategy.suspicion.records[104].stopping.hits == 0
    assert len(strategy.suspicion.records) == NODES


@pytest.mark.parametrize("fast", [True, False])
def test_between_two_sums_nobody_is_given_up_early(tmp_path: Path, fast: bool) -> None:
    """The stage waits its whole time for a node whose loss ends the round, and then it is lost."""
    seen, inputs = {"sums": 0}, (FirstInput, MaskedInput)

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        answer = bytes_in(reply, "reply")
        if node != 104 or not answer or not isinstance(decode(answer), (*inputs, UnmaskShares)):
            return reply
        seen["sums"] += isinstance(decode(answer), inputs)
        return None if seen["sums"] == 2 else reply

    grid = LocalGrid(nodes(tmp_path), spoil)
    given = with_nu(stage_timeout=1.5, stage_grace=0.0, fraction_evaluate=0.0)
    strategy = RFA(budget=2, **given)
    strategy.fast = fast
    began = time.monotonic()
    strategy.start(grid, model(), num_rounds=1)
    assert time.monotonic() - began > 1.5
    assert strategy.suspicion.records[104].stopping.hits == 1
