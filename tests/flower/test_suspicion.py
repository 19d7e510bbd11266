"""Nodes that lie or stop rounds are left out of the next ones, with the reason in the log."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message
from numpy.typing import NDArray

from rfa.aggregators.partition import FAR, outlying
from rfa.flower import OneStepRFA, SecureStrategy
from rfa.flower.checkpoint import load_checkpoint
from rfa.flower.suspicion import Watch
from rfa.numerics.plain_oracle import PlainOracle
from rfa.oracle import RecordingOracle
from rfa.secagg.crypto.graph import neighbors
from rfa.secagg.errors import BadShareError
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import AdvertiseKeys, DeviceKeys, FirstInput, FirstSum
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.complaints import Unopened, disputes_of, faults_of
from rfa.secagg.server.suspicion import STRIKES
from tests.flower.grid import LocalGrid, Spoil
from tests.flower.test_parts import bytes_in, grid_of, lying
from tests.flower.toy import DIM, TARGET, attempt, model, with_nu

NAMES = list(range(101, 115))
LIAR = 107
GROUPS, ROUNDS = 3, 9


def strategy_of(**more: Any) -> OneStepRFA:
    given = {"groups": GROUPS, "fraction_evaluate": 0.0, "stage_grace": 0.0, **more}
    return OneStepRFA(**with_nu(**given))


@pytest.fixture
def same_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that are the same in every run of a test.

    Drawn at random, they leave an honest node out with probability up to 0.05, as is promised.
    """
    rng = np.random.default_rng(1)

    def split(devices: Sequence[int], parts: int) -> list[list[int]]:
        order = [int(device) for device in rng.permutation(sorted(devices))]
        return [sorted(order[first::parts]) for first in range(parts)]

    monkeypatch.setattr("rfa.flower.strategy.split", split)


def trained_in_last_round(grid: LocalGrid) -> set[int]:
    """Which nodes were asked to train in the last round."""
    last = max(int(m.metadata.group_id) for _, m, _ in grid.seen)
    asked = [(n, m) for n, m, _ in grid.seen if "cap" in m.content.config_records["rfa"]]
    return {node for node, m in asked if int(m.metadata.group_id) == last}


def replying(reply: Message, answer: bytes) -> Message:
    """The reply with another answer in the secure sum."""
    reply.content.config_records["rfa"]["reply"] = answer
    return reply


def w_of(result: Any) -> NDArray[Any]:
    return result.arrays["w"].numpy()


@pytest.mark.usefixtures("same_groups")
def test_a_node_that_lies_inside_the_ring_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("flwr").propagate = True
    grid = grid_of(tmp_path, lying(LIAR, cohort=4), names=NAMES)
    strategy = strategy_of(num_liars=1)
    strategy.start(grid, model(), num_rounds=ROUNDS)
    out = strategy.suspicion.excluded(NAMES)
    assert list(out) == [LIAR]
    said = [record.message for record in caplog.records if "is left out" in record.message]
    assert len(said) == 1
    assert said[0].startswith(f"node {LIAR} is left out from round ")
    assert "of its groups gave sums that no honest group gives" in said[0]
    assert trained_in_last_round(grid) == {*NAMES} - {LIAR}


def test_without_liars_nobody_is_left_out(tmp_path: Path) -> None:
    strategy = strategy_of()
    grid = grid_of(tmp_path, names=NAMES)
    strategy.start(grid, model(), num_rounds=3)
    assert not strategy.suspicion.excluded(NAMES)
    assert {record.lying.hits for record in strategy.suspicion.records.values()} == {0}
    assert {record.lying.rounds for record in strategy.suspicion.records.values()} == {3}


@pytest.mark.usefixtures("same_groups")
def test_a_restart_goes_on_with_the_ledger(tmp_path: Path) -> None:
    file = tmp_path / "server.npz"
    whole = strategy_of(num_liars=1, checkpoint=file)
    whole.start(grid_of(tmp_path, lying(LIAR, cohort=4), names=NAMES), model(), num_rounds=3)
    records = whole.suspicion.records
    assert records[LIAR].lying.hits > 1
    assert load_checkpoint(file, model(), whole.aggregator).suspicion.records == records
    again = strategy_of(num_liars=1, checkpoint=file)
    assert not again.suspicion.records
    grid = grid_of(tmp_path, lying(LIAR, cohort=4), names=NAMES)
    again.start(grid, model(), num_rounds=ROUNDS)
    assert list(again.suspicion.excluded(NAMES)) == [LIAR]


def stopping(*nodes: int) -> Spoil:
    """Nodes that join, and do not answer when they are asked to add."""

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        asked = bytes_in(request, "request")
        gone = node in nodes and asked and isinstance(decode(asked), FirstSum)
        return None if gone else reply

    return spoil


def test_nodes_that_end_rounds_are_left_out_without_groups_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two of eight: more than may drop out, so that no round gives a sum until they are out."""
    logging.getLogger("flwr").propagate = True
    names, stoppers = NAMES[:8], {102, 105}
    grid = grid_of(tmp_path, stopping(*stoppers), names=names)
    strategy = strategy_of(groups=1, stage_timeout=0.05)
    result = strategy.start(grid, model(), num_rounds=8)
    assert set(strategy.suspicion.excluded(names, least=4)) == stoppers
    assert "it was lost in" in caplog.text
    assert 1 not in result.train_metrics_clientapp
    assert 8 in result.train_metrics_clientapp
    assert trained_in_last_round(grid) == {*names} - stoppers


def test_nodes_that_end_evaluations_are_left_out_too(tmp_path: Path) -> None:
    names, stoppers = NAMES[:8], {102, 105}
    grid = grid_of(tmp_path, stopping(*stoppers), names=names)
    strategy = strategy_of(groups=1, stage_timeout=0.05, fraction_train=0.0, fraction_evaluate=1.0)
    result = strategy.start(grid, model(), num_rounds=7)
    assert set(strategy.suspicion.excluded(names, least=4)) == stoppers
    assert list(result.evaluate_metrics_clientapp) == [7]


@pytest.mark.parametrize("trains", [0.0, 1.0])
def test_a_restart_goes_on_with_the_evidence_of_the_last_evaluation(
    tmp_path: Path, trains: float
) -> None:
    file, names = tmp_path / "server.npz", NAMES[:8]
    options = {"fraction_train": trains, "fraction_evaluate": 1.0, "checkpoint": file}
    strategy = strategy_of(groups=1, stage_timeout=0.05, **options)
    strategy.start(grid_of(tmp_path, names=names), model(), num_rounds=1)
    assert strategy.suspicion.records[102].stopping.rounds == 1 + trains
    found = load_checkpoint(file, model(), strategy.aggregator).suspicion
    assert found.records == strategy.suspicion.records


def test_a_node_whose_secret_cannot_be_opened_is_left_out_without_groups_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It commits to another secret than it deals: no round gives a sum while it is there."""
    logging.getLogger("flwr").propagate = True

    def spoil(node: int, request: Message, reply: Message) -> Message:
        answer = bytes_in(reply, "reply")
        said = decode(answer) if answer and node == 102 else None
        if not isinstance(said, FirstInput):
            return reply
        wrong = tuple(bytes(len(promised)) for promised in said.commitments)
        return replying(reply, dataclasses.replace(said, commitments=wrong).encode())

    grid = grid_of(tmp_path, spoil, names=NAMES[:8])
    result = strategy_of(groups=1).start(grid, model(), num_rounds=2)
    assert list(result.train_metrics_clientapp) == [2]
    assert "node 102 is left out from round 2 on: it is in dispute about shares with" in caplog.text
    assert trained_in_last_round(grid) == {*NAMES[:8]} - {102}


def test_nodes_that_talk_nonsense_are_left_out_after_three_rounds(tmp_path: Path) -> None:
    def spoil(node: int, request: Message, reply: Message) -> Message:
        answer = bytes_in(reply, "reply")
        said = decode(answer) if answer and node == 102 else None
        if not isinstance(said, FirstInput):
            return reply
        return replying(reply, answer + b"\0")

    grid = grid_of(tmp_path, spoil, names=NAMES[:6])
    strategy = strategy_of(groups=1)
    strategy.start(grid, model(), num_rounds=STRIKES + 1)
    out = strategy.suspicion.excluded(NAMES[:6])
    assert list(out) == [102]
    assert f"it broke the rules in {STRIKES} rounds, last: a message" in out[102]
    assert trained_in_last_round(grid) == {*NAMES[:6]} - {102}


def test_who_offers_a_key_that_another_has_offered_is_not_left_out_for_it(tmp_path: Path) -> None:
    """It is refused, but it may be the owner: who hears it could be faster with its key."""
    offered: dict[str, DeviceKeys] = {}

    def spoil(node: int, request: Message, reply: Message) -> Message:
        answer = bytes_in(reply, "reply")
        said = decode(answer) if answer else None
        if not isinstance(said, AdvertiseKeys):
            return reply
        first = offered.setdefault(request.metadata.group_id, said.keys)
        copied = dataclasses.replace(said.keys, sealing_key=first.sealing_key)
        copied = said.keys if node != 104 else copied
        return replying(reply, AdvertiseKeys(said.session, copied).encode())

    grid = grid_of(tmp_path, spoil, names=NAMES[:6])
    strategy = strategy_of(groups=1)
    strategy.start(grid, model(), num_rounds=STRIKES + 1)
    assert not strategy.suspicion.excluded(NAMES[:6])
    assert trained_in_last_round(grid) == {*NAMES[:6]}


def test_never_so_many_are_left_out_that_no_round_is_possible(tmp_path: Path) -> None:
    """Four of five nodes stop rounds, and four is the smallest cohort: one may be left out."""
    names = NAMES[:5]
    grid = grid_of(tmp_path, stopping(*names[1:]), names=names)
    strategy = strategy_of(groups=1, stage_timeout=0.02)
    attempt(strategy, grid, model(), num_rounds=7)
    assert len(trained_in_last_round(grid)) >= 4


@pytest.mark.parametrize(("count", "groups"), [(60, 5), (100, 10), (100, 5)])
def test_liars_who_crowd_a_group_get_no_honest_node_left_out(count: int, groups: int) -> None:
    """A tenth of the nodes: by chance, more are in a group than may collude there."""
    rng, liars = np.random.default_rng(count + groups), set(range(count // 10))
    terms = Terms(0.1, 0.2)
    watch, accused = Watch(terms, None), Counter[int]()
    for t in range(1, 101):
        oracles: list[Any] = []
        for part in np.array_split(rng.permutation(count), groups):
            names, parameters = part.tolist(), terms.parameters(len(part))
            lying = {i for i, name in enumerate(names) if name in liars}
            crowded = len(lying) > parameters.num_colluders
            complaints = {
                i: lying & {*neighbors(i, len(names), parameters.degree)}
                for i in set(range(len(names))) - lying
                if crowded
            }
            faults = faults_of(complaints, parameters.num_colluders, names)
            accused.update(list(faults))
            disputes = disputes_of(complaints, names)
            oracles.append(
                SimpleNamespace(
                    devices=names,
                    faults=faults,
                    disputes=disputes,
                    unopened=None,
                    stopped=None,
                    point=None,
                )
            )
        there: Any = SimpleNamespace(joined=set(range(count)), silent=set(), late=set())
        watch.note(oracles, there, t)
        assert set(watch.ledger.excluded(range(count))) <= liars
    assert max(accused.values()) >= STRIKES
    assert set(watch.ledger.excluded(range(count))) == liars


@pytest.mark.parametrize(
    ("unopened", "out"),
    [(Unopened(5, 74, 21), [5]), (Unopened(5, 67, 18), [5]), (Unopened(5, 74, 8), [])],
)
def test_in_a_large_cohort_who_deals_no_secret_is_as_good_as_lost(
    unopened: Unopened, out: list[int]
) -> None:
    """A hundred of a thousand may lie, and 21 hardly ever hold shares of one node; 8 do."""
    watch = Watch(Terms(), None)
    there: Any = SimpleNamespace(joined=set(range(1000)), silent=set(), late=set())
    for t in range(1, 11):
        oracle: Any = SimpleNamespace(
            devices=list(range(1000)),
            faults={},
            disputes=set(),
            unopened=unopened,
            stopped=BadShareError("it cannot be opened"),
            point=None,
        )
        watch.note([oracle], there, t)
    assert list(watch.ledger.excluded(range(1000))) == out


def groups_at(points: NDArray[Any]) -> list[RecordingOracle]:
    oracles = [RecordingOracle(PlainOracle(points[:1])) for _ in points]
    for oracle, point in zip(oracles, points, strict=True):
        oracle.point = point
    return oracles


def test_a_group_is_far_by_the_spread_of_the_others() -> None:
    rng = np.random.default_rng(0)
    for spread in (1e-3, 1.0, 1e3):
        points = TARGET + spread * rng.standard_normal((7, DIM))
        assert not any(outlying(groups_at(points)))
        points[3] += 3 * FAR * spread * np.sqrt(DIM)
        assert outlying(groups_at(points)) == [i == 3 for i in range(7)]
    same = np.tile(TARGET, (5, 1))
    assert not any(outlying(groups_at(same)))
    assert not any(outlying(groups_at(np.vstack([same[:1], 9 * same[:1]]))))


def test_groups_without_a_result_are_not_far() -> None:
    oracles = groups_at(TARGET + np.random.default_rng(1).standard_normal((6, DIM)))
    oracles[2].point = None
    assert not any(outlying(oracles))
    assert isinstance(strategy_of(), SecureStrategy)
