"""A radius that is learned, and cohorts in parts: sub-cohorts and groups, on a grid here."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import Result
from rfa.aggregators.summed import rfa, secure_mean, sub_cohorts

from rfa.aggregators.accelerated import accelerated
from rfa.aggregators.adaptive_radius import Radius
from rfa.flower import RFA, OneStepRFA, SecureFedAvg, ServerModel, Terms
from rfa.flower.checkpoint import load_checkpoint
from rfa.flower.oracles import split
from rfa.median import geometric_median
from rfa.numerics.plain_oracle import PlainOracle
from rfa.secagg.fixed_point import Encoding
from rfa.secagg.messages.round import MaskedInput, SumRequest, decode
from tests.flower.grid import LocalGrid, Spoil
from tests.flower.toy import DIM, TARGET, app, model, options, step_of

NAMES = list(range(101, 113))
FEW = NAMES[:4]
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


def once(strategy: RFA, grid: LocalGrid) -> Result:
    return strategy.start(grid, model(), num_rounds=1)


def w_of(result: Result) -> Any:
    return result.arrays["w"].numpy()


def three(**more: Any) -> dict[str, Any]:
    return options(fraction_evaluate=0.0, **more)


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
    found: Any = message.content.config_records.get("rfa") or {}
    return found.get(name, b"")


def losing(*lost: int) -> Spoil:
    """Some nodes never answer a question."""

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        asked = bytes_in(request, "request")
        gone = node in lost and asked and isinstance(decode(asked), SumRequest)
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
        if not isinstance(said, MaskedInput):
            return reply
        told = MaskedInput(said.session, said.masked_sum, said.tail, said.words + more).encode()
        return Message(RecordDict({"rfa": ConfigRecord({"reply": told})}), reply_to=request)

    return spoil


def test_the_radius_is_learned_and_a_restart_goes_on_with_it(tmp_path: Path) -> None:
    """One step asks at zero, so that half of the length of the updates is the aim."""
    radius, rounds = Radius(), 12
    for t in range(1, rounds + 1):
        lengths = np.array([np.linalg.norm(step_of(node, t)) for node in FEW])
        radius = radius.after(float((lengths <= 2 * radius.nu).mean()))
    file = tmp_path / "server.npz"
    for done in (5, rounds):
        strategy = OneStepRFA(checkpoint=file, **three(nu=None))
        strategy.start(grid_of(tmp_path, names=FEW), model(), num_rounds=done)
        assert load_checkpoint(file, model()).radius == strategy.learned
        assert (strategy.learned == radius) == (done == rounds)
    assert abs(math.log(2 * radius.nu / np.linalg.norm(TARGET))) < 0.3


def test_a_checkpoint_from_before_there_was_a_radius_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.npz"
    once(OneStepRFA(checkpoint=file, **three(nu=None)), grid_of(tmp_path, names=FEW))
    with np.load(file) as found:
        arrays = {name: found[name] for name in found.files if name != "about"}
        about = json.loads(str(found["about"]))
    assert about.pop("radius") != {}
    np.savez(file, about=np.array(json.dumps(about)), **arrays)
    state = load_checkpoint(file, model())
    assert (state.round, state.radius) == (1, Radius())


def test_nothing_is_learned_where_there_is_no_radius(tmp_path: Path) -> None:
    for strategy in (SecureFedAvg(**three(nu=None)), OneStepRFA(**three(nu=0.5))):
        once(strategy, grid_of(tmp_path / type(strategy).__name__, names=FEW))
        assert strategy.learned == Radius()


@pytest.mark.parametrize("budget", [2, 4])
def test_accelerated_steps_are_those_of_the_algorithm(tmp_path: Path, budget: int) -> None:
    """With two sums they are plain steps."""
    strategy = RFA(schedule="accelerated", budget=budget, **three(nu=0.02))
    found = w_of(once(strategy, grid_of(tmp_path, names=FEW)))
    how: dict[str, Any] = {"nu": 0.02, "budget": budget, "start": "current", "radius": 1.0}
    wanted = rfa(oracle(FEW), DIM, steps=accelerated, **how)
    assert np.linalg.norm(found - wanted) < 1e-4
    assert (np.linalg.norm(found - rfa(oracle(FEW), DIM, **how)) < 1e-4) == (budget == 2)


def test_parts_are_random_and_of_about_the_same_size() -> None:
    devices = list(range(40))
    parts = split(devices, 3)
    assert sorted(device for part in parts for device in part) == devices
    assert sorted(map(len, parts)) == [13, 13, 14]
    assert split(devices, 3) != parts


@pytest.mark.usefixtures("split_as_said")
def test_in_sub_cohorts_every_node_answers_one_question(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    found = once(RFA(schedule="sub-cohorts", **three()), grid)
    wanted = sub_cohorts([oracle(part) for part in PARTS], np.zeros(DIM), nu=0.5)
    assert np.linalg.norm(w_of(found) - wanted) < 1e-5
    asked = [(node, bytes_in(request, "request")) for node, request, _ in grid.seen]
    questions = [node for node, ask in asked if ask and isinstance(decode(ask), SumRequest)]
    assert sorted(questions) == NAMES
    assert len(grid.seen) == len(NAMES) * 5


@pytest.mark.usefixtures("split_as_said")
def test_a_part_that_fails_is_left_out_and_told(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, losing(PARTS[1][2]))
    found = once(RFA(schedule="sub-cohorts", **three()), grid)
    left = [oracle(part) for part in (PARTS[0], PARTS[2])]
    wanted = sub_cohorts(left, np.zeros(DIM), nu=0.5)
    assert np.linalg.norm(w_of(found) - wanted) < 1e-5
    told = [node for node, request, _ in grid.seen if "over" in request.content["rfa"]]
    assert sorted(told) == PARTS[1]


@pytest.mark.usefixtures("split_as_said")
@pytest.mark.parametrize(
    ("strategy", "aggregate"),
    [
        (RFA, partial(rfa, dim=DIM, nu=0.5, budget=3, start="current", radius=1.0)),
        (SecureFedAvg, partial(secure_mean, dim=DIM, radius=100.0)),
    ],
)
def test_the_result_of_groups_is_the_median_of_theirs(
    tmp_path: Path, strategy: type[RFA], aggregate: Callable[[PlainOracle], Any]
) -> None:
    found = once(strategy(groups=3, **three()), grid_of(tmp_path))
    points = np.stack([aggregate(oracle(part)) for part in PARTS])
    assert np.linalg.norm(w_of(found) - geometric_median(points).point) < 1e-5


@pytest.mark.usefixtures("split_as_said")
def test_groups_need_a_majority_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("flwr").propagate = True
    strategy = OneStepRFA(groups=3, **three())
    found = once(strategy, grid_of(tmp_path / "a", losing(PARTS[0][0])))
    assert np.linalg.norm(w_of(found) - TARGET) < 0.5
    found = once(strategy, grid_of(tmp_path / "b", losing(PARTS[0][0], PARTS[1][3])))
    assert not w_of(found).any()
    assert "round 1 is skipped, and the model is kept: only 1 of 3 groups" in caplog.text


@pytest.mark.parametrize("strategy", [RFA, OneStepRFA])
def test_a_node_that_lies_inside_the_ring_spoils_its_group_alone(
    tmp_path: Path, strategy: type[RFA]
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
    found = [
        once(RFA(**three(**way)), grid_of(tmp_path / str(i))).train_metrics_clientapp[1]
        for i, way in enumerate(ways)
    ]
    for other in found[1:]:
        assert other["loss"] == pytest.approx(found[0]["loss"], rel=1e-9)


LYING = Terms(server_model=ServerModel.MALICIOUS)


@pytest.mark.parametrize(
    ("strategy", "wrong", "what"),
    [
        (RFA, {"schedule": "newton"}, "schedule must be one of plain, accelerated, sub-cohorts"),
        (RFA, {"schedule": "sub-cohorts", "start": "mean"}, "give start=current, not mean"),
        (RFA, {"schedule": "sub-cohorts", "groups": 3}, "not both: give groups=1"),
        (RFA, {"schedule": "sub-cohorts", "budget": 0}, "budget must be a whole number"),
        (RFA, {"groups": 0}, "groups must be a whole number"),
        (RFA, {"groups": None}, "groups must be a whole number"),
        (RFA, {"groups": 3, "min_train_nodes": 11}, "3 secure sums at once .* needs 12 nodes"),
        (RFA, {"groups": 3, "min_available_nodes": 8}, "min_available_nodes=8: .* needs 12"),
        (RFA, {"groups": 3, "terms": LYING}, "OneStepRFA, or schedule=sub-cohorts"),
        (OneStepRFA, {"schedule": "sub-cohorts"}, "is for RFA, not for OneStepRFA"),
        (SecureFedAvg, {"schedule": "accelerated"}, "is for RFA, not for SecureFedAvg"),
    ],
)
def test_options_without_a_meaning_are_refused(
    strategy: type[RFA], wrong: dict[str, Any], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        strategy(**wrong)


def test_nodes_that_trust_nobody_answer_sub_cohorts_and_groups_of_one_step() -> None:
    given: dict[str, Any] = {"terms": LYING, "identities": {}}
    least = LYING.smallest()
    assert RFA(schedule="sub-cohorts", budget=4, **given).min_train_nodes == 4 * least
    assert OneStepRFA(groups=5, **given).min_available_nodes == 5 * least
    assert OneStepRFA(groups=5, **given).min_evaluate_nodes == least
