"""A radius that is learned, and cohorts in parts: sub-cohorts and groups, on a grid here."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import Result

from rfa import aggregators
from rfa.aggregators import AdaptiveRadius, Groups, Mean, SubCohorts, SumAggregator
from rfa.flower import RFA, OneStepRFA, SecureFedAvg, SecureStrategy
from rfa.flower.checkpoint import load_checkpoint
from rfa.flower.oracles import split
from rfa.median import geometric_median
from rfa.numerics.plain_oracle import PlainOracle
from rfa.secagg.fixed_point import Encoding
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstInput, FirstSum, MaskedInput, SumRequest
from tests.flower.grid import LocalGrid, Spoil
from tests.flower.test_one_sum import stage_of
from tests.flower.toy import DIM, TARGET, app, attempt, model, options, step_of, with_nu

NAMES = list(range(101, 113))
FEW = NAMES[:4]
SOME = NAMES[:8]
PARTS = [NAMES[first::3] for first in range(3)]
"""Three parts of four nodes: the smallest cohorts that there are."""


def grid_of(
    home: Path, spoil: Spoil | None = None, names: Sequence[int] = tuple(NAMES)
) -> LocalGrid:
    return LocalGrid({node: app(node, home) for node in names}, spoil)


def oracle(names: Sequence[int]) -> PlainOracle:
    """The sums over some nodes in round 1, without Flower and without masks."""
    updates = np.array([step_of(node, 1) for node in names], np.float32)
    return PlainOracle(updates, np.array([(10.0 + node) / 200 for node in names]))


def point_of(aggregator: SumAggregator[Any], *parts: Sequence[int]) -> Any:
    """What an aggregator makes of round 1, without Flower and without masks."""
    result, _ = aggregator([oracle(names) for names in parts], DIM)
    return result.point


def once(strategy: SecureStrategy, grid: LocalGrid) -> Result:
    return attempt(strategy, grid, model(), num_rounds=1)


def w_of(result: Result) -> Any:
    return result.arrays["w"].numpy()


def three(**more: Any) -> dict[str, Any]:
    return with_nu(fraction_evaluate=0.0, **more)


@pytest.fixture
def split_as_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(devices: Sequence[int], parts: int) -> list[list[int]]:
        assert (sorted(devices), parts) == (NAMES, 3)
        return PARTS

    monkeypatch.setattr("rfa.flower.strategy.split", said)


def bytes_in(message: Message, name: str) -> bytes:
    """A request of the secure sum, or a reply; nothing if the message is about something else."""
    if not message.has_content():
        return b""
    record: Any = message.content.config_records.get("rfa") or {}
    return record.get(name, b"")


def losing(*lost: int) -> Spoil:
    """Some nodes never answer a question."""

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        asked = bytes_in(request, "request")
        gone = node in lost and asked and isinstance(decode(asked), FirstSum | SumRequest)
        return None if gone else reply

    return spoil


def lying(liar: int, cohort: int) -> Spoil:
    """A node that lies inside the ring: it turns the push of its cohort over, to -0.8 of it."""
    weight = sum((10 + node) / 200 for node in NAMES) * cohort / len(NAMES)
    push = -1.8 * weight * TARGET / np.linalg.norm(TARGET)
    more = np.rint(push * Encoding(cohort).scale).astype(np.int64).astype(np.uint32)

    def spoil(node: int, request: Message, reply: Message) -> Message:
        answer = bytes_in(reply, "reply")
        said = decode(answer) if answer and node == liar else None
        if not isinstance(said, FirstInput | MaskedInput):
            return reply
        told = dataclasses.replace(said, words=said.words + more).encode()
        return Message(RecordDict({"rfa": ConfigRecord({"reply": told})}), reply_to=request)

    return spoil


def test_the_radius_is_learned_and_a_restart_goes_on_with_it(tmp_path: Path) -> None:
    """One step asks at zero, so that half of the length of the updates is the aim."""
    radius, rounds = AdaptiveRadius(), 12
    for t in range(1, rounds + 1):
        lengths = np.array([np.linalg.norm(step_of(node, t)) for node in FEW])
        radius = radius.after(float((lengths <= 2 * radius.nu).mean()))
    file = tmp_path / "server.npz"
    for done in (5, rounds):
        strategy = OneStepRFA(checkpoint=file, **three(nu=None))
        strategy.start(grid_of(tmp_path, names=FEW), model(), num_rounds=done)
        learned = load_checkpoint(file, model(), strategy.aggregator).aggregator
        assert (learned == radius) == (done == rounds)
    assert abs(math.log(2 * radius.nu / np.linalg.norm(TARGET))) < 0.3


def test_nothing_is_learned_where_there_is_no_radius(tmp_path: Path) -> None:
    for kind, given in ((SecureFedAvg, options()), (OneStepRFA, three(nu=0.5))):
        file = tmp_path / kind.__name__ / "server.npz"
        strategy = kind(checkpoint=file, **given)
        once(strategy, grid_of(tmp_path / kind.__name__, names=FEW))
        state = load_checkpoint(file, model(), strategy.aggregator)
        assert (state.round, state.aggregator) == (1, None)
        with np.load(file) as arrays:
            assert not [name for name in arrays.files if name.startswith("aggregator.")]


@pytest.mark.parametrize("budget", [2, 4])
def test_accelerated_steps_are_those_of_the_algorithm(tmp_path: Path, budget: int) -> None:
    """With two sums they are plain steps."""
    strategy = RFA(schedule="accelerated", budget=budget, **three(nu=0.02))
    w = w_of(once(strategy, grid_of(tmp_path, names=SOME)))
    plain = aggregators.RFA(nu=0.02, budget=budget)
    wanted = point_of(dataclasses.replace(plain, schedule="accelerated"), SOME)
    assert np.linalg.norm(w - wanted) < 1e-4
    assert (np.linalg.norm(w - point_of(plain, SOME)) < 1e-4) == (budget == 2)


def test_parts_are_random_and_of_about_the_same_size() -> None:
    devices = list(range(40))
    parts = split(devices, 3)
    assert sorted(device for part in parts for device in part) == devices
    assert sorted(map(len, parts)) == [13, 13, 14]
    assert split(devices, 3) != parts


@pytest.mark.usefixtures("split_as_said")
def test_in_sub_cohorts_every_node_answers_one_question(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    result = once(RFA(schedule="sub-cohorts", **three()), grid)
    wanted = point_of(SubCohorts(aggregators.RFA(nu=0.5)), *PARTS)
    assert np.linalg.norm(w_of(result) - wanted) < 1e-5
    asked = [(node, bytes_in(request, "request")) for node, request, _ in grid.seen]
    questions = [node for node, ask in asked if ask and isinstance(decode(ask), FirstSum)]
    assert sorted(questions) == NAMES
    assert len(grid.seen) == len(NAMES) * 3


@pytest.mark.usefixtures("split_as_said")
def test_a_part_that_fails_is_left_out_and_told(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, losing(PARTS[1][2]))
    result = once(RFA(schedule="sub-cohorts", **three()), grid)
    wanted = point_of(SubCohorts(aggregators.RFA(nu=0.5, budget=2)), PARTS[0], PARTS[2])
    assert np.linalg.norm(w_of(result) - wanted) < 1e-5
    told = [node for node, request, _ in grid.seen if "over" in request.content["rfa"]]
    assert sorted(told) == PARTS[1]


@pytest.mark.usefixtures("split_as_said")
@pytest.mark.parametrize(
    ("strategy", "inner"),
    [
        (RFA(groups=3, budget=2, **three()), aggregators.RFA(nu=0.5, budget=2)),
        (SecureFedAvg(groups=3, fraction_evaluate=0.0, **options()), Mean()),
        (SecureStrategy("bucketing:groups=3", fraction_evaluate=0.0, **options()), Mean()),
    ],
)
def test_the_result_of_groups_is_the_median_of_theirs(
    tmp_path: Path, strategy: SecureStrategy, inner: SumAggregator[Any]
) -> None:
    result = once(strategy, grid_of(tmp_path))
    points = np.stack([point_of(inner, part) for part in PARTS])
    assert np.linalg.norm(w_of(result) - geometric_median(points).point) < 1e-5
    assert np.linalg.norm(w_of(result) - point_of(Groups(inner, 3), *PARTS)) < 1e-5


@pytest.mark.usefixtures("split_as_said")
def test_groups_need_a_majority_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("flwr").propagate = True
    strategy = OneStepRFA(groups=3, **three())
    result = once(strategy, grid_of(tmp_path / "a", losing(PARTS[0][0])))
    assert np.linalg.norm(w_of(result) - TARGET) < 0.5
    result = once(strategy, grid_of(tmp_path / "b", losing(PARTS[0][0], PARTS[1][3])))
    assert not w_of(result).any()
    assert "round 1 is skipped, and the model is kept: only 1 of 3 groups" in caplog.text


@pytest.mark.parametrize("strategy", [RFA, OneStepRFA])
def test_a_node_that_lies_inside_the_ring_spoils_its_group_alone(
    tmp_path: Path, strategy: type[RFA | OneStepRFA]
) -> None:
    alone = once(strategy(**three()), grid_of(tmp_path / "a", lying(104, cohort=12)))
    assert np.linalg.norm(w_of(alone) - TARGET) > np.linalg.norm(TARGET)
    among = once(strategy(groups=3, **three()), grid_of(tmp_path / "b", lying(104, cohort=4)))
    assert np.linalg.norm(w_of(among) - TARGET) < 0.3


def test_metrics_are_those_over_all_parts(tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [
        {"budget": 1},
        {"budget": 1, "groups": 3},
        {"budget": 3, "schedule": "sub-cohorts"},
    ]
    told = [
        once(RFA(**three(**way)), grid_of(tmp_path / str(i))).train_metrics_clientapp[1]
        for i, way in enumerate(ways)
    ]
    for other in told[1:]:
        assert other["loss"] == pytest.approx(told[0]["loss"], rel=1e-9)


@pytest.mark.parametrize("fast", [True, False])
def test_a_part_that_does_not_form_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    """Too few of it join: the others' sums make the step. Keys that are none come in time."""

    def in_order(devices: Sequence[int], parts: int) -> list[list[int]]:
        assert (list(devices), parts) == (NAMES, 3)
        return PARTS

    def lose(node: int, request: Message) -> bool:
        return node in PARTS[0][:2] and stage_of(request) == "OpenRound"

    def spoil(node: int, request: Message, reply: Message) -> Message:
        if node in PARTS[0][:2] and fast and bytes_in(reply, "run"):
            reply.content.config_records["rfa"]["reply"] = bytes(50)
        return reply

    monkeypatch.setattr("rfa.flower.strategy.split", in_order)
    grid = LocalGrid({node: app(node, tmp_path) for node in NAMES}, spoil, lose=lose)
    strategy = OneStepRFA(fraction_evaluate=0.0, groups=3, **with_nu())
    strategy.fast = fast
    found = once(strategy, grid).arrays["w"].numpy()
    assert np.linalg.norm(found - TARGET) < 0.5
    asked = {node for node, request, _ in grid.seen if stage_of(request) == "Unmask"}
    assert asked == {*PARTS[1], *PARTS[2]}
