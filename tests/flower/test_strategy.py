"""Strategies on a Flower grid in this process: the real ClientApp, mod and secure sum."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Result

from rfa import aggregators
from rfa.flower import RFA, OneStepRFA, SecureFedAvg, SecureStrategy, Terms
from rfa.flower.basis import run_of
from rfa.flower.errors import TooFewNodesError
from rfa.numerics.plain_oracle import PlainOracle
from tests.flower.grid import LocalGrid
from tests.flower.test_one_sum import stage_of
from tests.flower.toy import (
    DIM,
    FIRST,
    NODES,
    TARGET,
    Lie,
    app,
    attempt,
    model,
    nodes,
    options,
    step_of,
    with_nu,
)

NAMES = list(range(FIRST, FIRST + NODES))
WEIGHTS = np.array([(10.0 + node) / 200 for node in NAMES])


def w_of(result: Result) -> Any:
    return result.arrays["w"].numpy()


def plain(t: int, budget: int, names: Sequence[int] = NAMES, **parameters: Any) -> Any:
    """The aggregate without Flower and without the secure sum."""
    updates = np.array([step_of(node, t) for node in names], np.float32)
    oracle = PlainOracle(updates, np.array([(10.0 + node) / 200 for node in names]))
    result, _ = aggregators.RFA(nu=0.5, budget=budget, **parameters)([oracle], DIM)
    return result.point


def test_a_run_is_that_of_the_algorithm(tmp_path: Path) -> None:
    result = RFA(budget=3, **with_nu()).start(LocalGrid(nodes(tmp_path)), model(), num_rounds=2)
    wanted = plain(1, 3) + plain(2, 3)
    assert np.linalg.norm(w_of(result) - wanted) < 1e-5
    start = RFA(budget=3, start="mean", **with_nu())
    result = start.start(LocalGrid(nodes(tmp_path / "mean")), model(), num_rounds=1)
    assert np.linalg.norm(w_of(result) - plain(1, 3, start="mean")) < 1e-5


def test_one_step_and_the_mean(tmp_path: Path) -> None:
    step = OneStepRFA(**with_nu()).start(LocalGrid(nodes(tmp_path / "a")), model(), 1)
    assert np.linalg.norm(w_of(step) - plain(1, 1)) < 1e-5
    mean = SecureFedAvg(**options()).start(LocalGrid(nodes(tmp_path / "b")), model(), 1)
    updates = np.array([step_of(node, 1) for node in NAMES])
    assert np.linalg.norm(w_of(mean) - WEIGHTS @ updates / WEIGHTS.sum()) < 1e-5


def test_metrics_are_means_weighted_by_examples(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path, parts=[1.0, 2.5]))
    result = OneStepRFA(**with_nu()).start(grid, model(), num_rounds=1)
    train, evaluated = result.train_metrics_clientapp[1], result.evaluate_metrics_clientapp[1]
    assert train["loss"] == pytest.approx(WEIGHTS @ np.array(NAMES) / WEIGHTS.sum(), rel=1e-9)
    assert train["parts"] == pytest.approx([1.0, 2.5], rel=1e-9)
    assert evaluated["accuracy"] == pytest.approx(WEIGHTS @ NAMES / WEIGHTS.sum() / 10, rel=1e-9)
    assert "num-examples" not in train


def test_nothing_of_a_single_node_is_in_the_clear(tmp_path: Path) -> None:
    """No record holds arrays or metrics, and counts and metrics change no length."""
    lengths: list[list[int]] = []
    others: dict[str, Any] = {"num-examples": 1, "loss": 123456.5}
    for metrics in ({}, others):
        grid = LocalGrid(nodes(tmp_path / str(len(lengths)), **metrics))
        RFA(budget=2, **with_nu()).start(grid, model(), num_rounds=1)
        sizes: list[int] = []
        for _, _, reply in grid.seen:
            assert not reply.content.array_records
            assert not reply.content.metric_records
            (record,) = reply.content.config_records.values()
            assert set(record) in ({"names", "sizes", "dim", "run", "reply"}, {"reply"})
            assert record.get("run", run_of({})) == run_of({})
            sizes.append(len(bytes(record.get("reply", b""))))  # type: ignore[arg-type]
        lengths.append(sizes)
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize(
    ("budget", "more", "exchanges"),
    [
        (1, {}, 3),  # training with the keys, the first sum, and its opening
        (3, {}, 3 + 2 * 2),
        (1, {"fraction_evaluate": 1.0}, 3 + 3),
        (1, {"max_share": 0.2}, 1 + 1 + 2 * 2),  # training with the keys, the shares, two sums
        (2, {"max_share": 0.2}, 1 + 1 + 2 * 2 * 2),
    ],
)
def test_a_round_takes_as_many_exchanges_as_it_says(
    tmp_path: Path, budget: int, more: dict[str, Any], exchanges: int
) -> None:
    grid = LocalGrid(nodes(tmp_path))
    strategy = RFA(budget=budget, **with_nu(**{"fraction_evaluate": 0.0, **more}))
    strategy.start(grid, model(), num_rounds=1)
    assert len(grid.seen) == NODES * exchanges


@pytest.mark.parametrize("budget", [1, 3])
def test_the_longer_way_takes_two_exchanges_more(tmp_path: Path, budget: int) -> None:
    grid = LocalGrid(nodes(tmp_path))
    strategy = RFA(budget=budget, **with_nu(fraction_evaluate=0.0))
    strategy.fast = False
    strategy.start(grid, model(), num_rounds=1)
    assert len(grid.seen) == NODES * (1 + 2 + 2 * budget)


def test_a_node_lost_in_the_first_sum_costs_itself_and_two_exchanges(tmp_path: Path) -> None:
    """All others deal shares anew, mask anew, and are in every sum of the round."""

    def lose(node: int, request: Message) -> bool:
        return node == 104 and stage_of(request) == "FirstSum"

    grid = LocalGrid(nodes(tmp_path), lose=lose)
    strategy = RFA(budget=3, fraction_evaluate=0.0, **with_nu())
    result = strategy.start(grid, model(), num_rounds=1)
    others = [node for node in NAMES if node != 104]
    assert np.linalg.norm(w_of(result) - plain(1, 3, others)) < 1e-5
    asked = [stage_of(request) for node, request, _ in grid.seen if node == NAMES[0]]
    again = ["FirstSum", "Roster", "SumRequest", "Unmask"]
    assert asked == ["", *again, "SumRequest", "Unmask", "SumRequest", "Unmask"]
    assert [stage_of(request) for node, request, _ in grid.seen if node == 104] == [""]


def test_a_node_lost_when_the_last_sum_is_opened_is_in_it(tmp_path: Path) -> None:
    def lose(node: int, request: Message) -> bool:
        return node == 104 and stage_of(request) == "Unmask"

    grid = LocalGrid(nodes(tmp_path), lose=lose)
    result = OneStepRFA(fraction_evaluate=0.0, **with_nu()).start(grid, model(), num_rounds=1)
    assert np.linalg.norm(w_of(result) - plain(1, 1)) < 1e-5
    assert len(grid.seen) == 3 * NODES - 1


def nan(step: Any) -> Any:
    return np.full(DIM, np.nan)


def huge(step: Any) -> Any:
    return 1e8 * step


def opposite(step: Any) -> Any:
    return -5 * step


def misshapen(step: Any) -> Any:
    return np.zeros((DIM, 1)) + step


@pytest.mark.parametrize("lie", [nan, huge, opposite, misshapen])
def test_a_corrupted_node_is_withstood(tmp_path: Path, lie: Lie) -> None:
    grid = LocalGrid(nodes(tmp_path, {103: lie}))
    result = RFA(budget=4, **with_nu()).start(grid, model(), num_rounds=1)
    assert np.linalg.norm(w_of(result) - TARGET) < 0.6


FAULTS = ["lost", "empty", "error", "garbage", "replayed"]


@pytest.mark.parametrize(
    ("fast", "when"), [*((True, when) for when in range(3)), *((False, when) for when in range(5))]
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_that_fails_at_any_stage_costs_itself(
    tmp_path: Path, fault: str, when: int, fast: bool
) -> None:
    """Stage 0 is training, with the keys; then come the first sum, and its opening.

    The longer way: training, the keys, the shares, the masked vectors, the opening.
    """
    asked = {"times": 0}

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        if node != 104:
            return reply
        asked["times"] += 1
        if asked["times"] <= when:
            return reply
        if fault == "lost":
            return None
        if fault == "error":
            return Message(Error(3, "out of\nmemory" * 100), reply_to=request)
        if fault == "empty":
            return Message(RecordDict(), reply_to=request)
        return _spoilt(fault, request)

    grid = LocalGrid(nodes(tmp_path), spoil)
    strategy = OneStepRFA(fraction_evaluate=0.0, **with_nu())
    strategy.fast = fast
    result = strategy.start(grid, model(), num_rounds=1, timeout=0.4)
    assert 1 in result.train_metrics_clientapp
    assert np.linalg.norm(w_of(result) - TARGET) < 0.5


def _spoilt(fault: str, request: Message) -> Message:
    from flwr.app import ConfigRecord  # noqa: PLC0415

    old: Any = request.content.config_records["rfa"].get("request", b"x")
    answer = old if fault == "replayed" else b"\x00" * 50
    record = ConfigRecord({"reply": answer, "names": [7], "sizes": [-1], "dim": 3})
    return Message(RecordDict({"rfa": record}), reply_to=request)


def test_a_node_that_is_lost_between_sums_keeps_the_step_before(tmp_path: Path) -> None:
    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        record: Any = request.content.config_records.get("rfa") or {}
        if node == 104 and "request" in record:
            stages.append(1)
        return None if node == 104 and len(stages) >= 3 else reply  # from the second sum on

    stages: list[int] = []
    grid = LocalGrid(nodes(tmp_path), spoil)
    result = RFA(budget=3, fraction_evaluate=0.0, **with_nu()).start(grid, model(), num_rounds=1)
    assert np.linalg.norm(w_of(result) - plain(1, 1)) < 1e-5
    assert not list((tmp_path / "flower" / "7").glob("*journal"))


def test_too_few_nodes_keep_the_model_and_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("flwr").propagate = True
    grid = LocalGrid(nodes(tmp_path / "fewer"))

    def shrink(t: int, _: ArrayRecord) -> None:
        for node in NAMES[3:] if t else ():
            grid.apps.pop(node, None)

    strategy = RFA(fraction_evaluate=0.0, **with_nu())
    strategy.start(grid, model(), num_rounds=2, evaluate_fn=shrink)
    assert (
        "round 2 is skipped, and the model is kept: 3 nodes after 0.1 s, 4 are needed"
        in caplog.text
    )
    silent = LocalGrid(nodes(tmp_path), lambda node, request, reply: reply if node < 104 else None)
    result = attempt(RFA(**with_nu()), silent, model(), num_rounds=1, timeout=0.2)
    assert not w_of(result).any()
    assert "3 devices joined the round" in caplog.text


@pytest.mark.parametrize(
    ("strategy", "there", "needed"),
    [
        (RFA(**with_nu(terms=Terms())), 3, "3 nodes after 0.1 s, 4 are needed"),
        (
            RFA(budget=3, **with_nu(terms=Terms())),
            8,
            "8 nodes after 0.1 s, 49 are needed for 3 secure sums about the same "
            "updates: no round can be played; OneStepRFA() and schedule='sub-cohorts' ask each",
        ),
        (
            SecureStrategy("rfa", **options(terms=Terms())),
            8,
            ", 49 are needed for 3 secure sums about the same updates: no round can be played; "
            "OneStepRFA() and schedule='sub-cohorts' ask each node once, as the text "
            "'rfa:budget=1' does",
        ),
        (
            SecureStrategy("centered-clipping", **options(terms=Terms())),
            8,
            ", 49 are needed for 3 secure sums",
        ),
        (RFA(schedule="sub-cohorts", **with_nu(terms=Terms())), 8, ", 12 are needed for one"),
        (RFA(fraction_train=0.0, **with_nu(terms=Terms())), 3, ", 4 are needed for one secure"),
    ],
)
def test_a_federation_that_is_too_small_is_refused_before_anything_is_trained(
    tmp_path: Path, strategy: SecureStrategy, there: int, needed: str
) -> None:
    grid, seen = LocalGrid(dict(list(nodes(tmp_path).items())[:there])), list[int]()
    with pytest.raises(TooFewNodesError, match=re.escape(needed)):
        strategy.start(grid, model(), 2, evaluate_fn=lambda t, _: seen.append(t))
    assert not grid.seen
    assert not seen


def test_a_text_with_one_sum_plays_on_few_nodes(tmp_path: Path) -> None:
    """The text alone has the lab's three sums, and the error says to give this one."""
    strategy = SecureStrategy("rfa:budget=1", **options(terms=Terms(), fraction_evaluate=0.0))
    assert w_of(strategy.start(LocalGrid(nodes(tmp_path)), model(), num_rounds=1)).any()


def test_nodes_that_come_in_time_are_waited_for(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path))
    late = {node: grid.apps.pop(node) for node in NAMES[3:]}
    strategy = RFA(fraction_evaluate=0.0, **with_nu(terms=Terms(), node_timeout=30.0))
    threading.Timer(0.3, lambda: grid.apps.update(late)).start()
    assert w_of(strategy.start(grid, model(), num_rounds=1)).any()


def test_training_without_randomness_goes_on_after_a_round_without_a_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(node: int, t: int) -> Any:
        return step_of(node, 0)

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        first = stage_of(request) == "FirstSum" and request.metadata.group_id == "1"
        return None if first else reply

    monkeypatch.setattr("tests.flower.toy.step_of", same)
    grid = LocalGrid(nodes(tmp_path), spoil)
    strategy = OneStepRFA(fraction_evaluate=0.0, **with_nu())
    result = strategy.start(grid, model(), num_rounds=2)
    assert list(result.train_metrics_clientapp) == [2]


def test_a_node_that_leaves_after_it_was_counted_is_not_waited_for(tmp_path: Path) -> None:
    class Leaving(LocalGrid):
        counts = 0

        def get_node_ids(self) -> list[int]:
            self.counts += 1  # before the first round, and in it
            return list(self.apps)[: NODES if self.counts <= 2 else 5]

    grid = Leaving(nodes(tmp_path), lambda node, request, reply: reply if node < 106 else None)
    strategy = OneStepRFA(fraction_evaluate=0.0, min_available_nodes=NODES, **with_nu())
    result = strategy.start(grid, model(), num_rounds=1, timeout=0.3)
    assert np.linalg.norm(w_of(result) - TARGET) < 0.5


def test_a_node_that_comes_back_joins_the_next_round(tmp_path: Path) -> None:
    gone = {"now": False}

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        record: Any = request.content.config_records["rfa"]
        if node == 104 and "cap" in record:
            gone["now"] = not gone["now"]
        return None if node == 104 and gone["now"] else reply

    grid = LocalGrid(nodes(tmp_path), spoil)
    strategy = OneStepRFA(fraction_evaluate=0.0, **with_nu())
    result = strategy.start(grid, model(), num_rounds=2, timeout=0.3)
    others = [node for node in NAMES if node != 104]
    wanted = plain(1, 1, others) + plain(2, 1)
    assert np.linalg.norm(w_of(result) - wanted) < 1e-5


def test_a_restarted_server_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "server.npz"
    strategy = OneStepRFA(checkpoint=file, **with_nu())
    unbroken = OneStepRFA(**with_nu()).start(LocalGrid(nodes(tmp_path / "a")), model(), 3)
    strategy.start(LocalGrid(nodes(tmp_path / "b")), model(), num_rounds=1)
    grid = LocalGrid(nodes(tmp_path / "c"))
    again = OneStepRFA(checkpoint=file, **with_nu()).start(grid, model(), num_rounds=3)
    assert sorted(again.train_metrics_clientapp) == [1, 2, 3]
    assert again.train_metrics_clientapp == unbroken.train_metrics_clientapp
    assert np.linalg.norm(w_of(again) - w_of(unbroken)) < 1e-5


def test_a_checkpoint_of_another_model_or_of_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.npz"
    OneStepRFA(checkpoint=file, **with_nu()).start(LocalGrid(nodes(tmp_path)), model(), 1)
    other = ArrayRecord([np.zeros(3, np.float32)])
    with pytest.raises(ValueError, match="another model: remove it"):
        OneStepRFA(checkpoint=file, **with_nu()).start(LocalGrid(nodes(tmp_path)), other, 2)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="cannot be read"):
        OneStepRFA(checkpoint=file, **with_nu()).start(LocalGrid(nodes(tmp_path)), model(), 2)


@pytest.mark.parametrize("name", ["file/server.npz", "folder"])
def test_a_checkpoint_that_cannot_be_written_is_known_before_a_round(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    grid = LocalGrid(nodes(tmp_path / "home"))
    with pytest.raises(ValueError, match="checkpoint"):
        OneStepRFA(checkpoint=tmp_path / name, **with_nu()).start(grid, model(), 1)
    assert not grid.seen


def test_a_model_without_floats_is_refused(tmp_path: Path) -> None:
    integers = ArrayRecord([np.zeros(3, np.int64)])
    with pytest.raises(ValueError, match="no floating-point numbers"):
        RFA(**with_nu()).start(LocalGrid(nodes(tmp_path)), integers, 1)


def test_without_a_majority_of_like_nodes_a_round_is_skipped(tmp_path: Path) -> None:
    apps = {node: app(node, tmp_path, other=node % 2) for node in NAMES if node % 2}
    apps |= {node: app(node, tmp_path) for node in NAMES if not node % 2}
    grid = LocalGrid(apps)
    result = attempt(RFA(fraction_evaluate=0.0, **with_nu()), grid, model(), num_rounds=1)
    assert not w_of(result).any()


def test_the_server_evaluates_too(tmp_path: Path) -> None:
    seen: list[int] = []

    def evaluate(t: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(t)
        return MetricRecord({"norm": float(np.linalg.norm(arrays["w"].numpy()))})

    grid = LocalGrid(nodes(tmp_path))
    result = OneStepRFA(**with_nu()).start(grid, model(), 2, evaluate_fn=evaluate)
    assert seen == [0, 1, 2]
    assert sorted(result.evaluate_metrics_serverapp) == [0, 1, 2]


def test_personal_parameters_stay_on_the_device(tmp_path: Path) -> None:
    """With a step that depends on the node alone, u_i takes it first, and then w takes it too."""
    grid = LocalGrid(nodes(tmp_path))
    strategy = OneStepRFA(personal="mine", **with_nu())
    result = strategy.start(grid, model(), num_rounds=1)
    files = sorted((tmp_path / "flower" / "personal" / "mine").iterdir())
    assert [path.name for path in files] == [str(node) for node in NAMES]
    for node, path in zip(NAMES, files, strict=True):
        assert np.allclose(np.fromfile(path, np.float32), step_of(node, 1), atol=1e-5)
        assert path.stat().st_mode & 0o777 == 0o600
    assert np.linalg.norm(w_of(result) - plain(1, 1)) < 1e-5
    personal = np.array([w_of(result)[0] + step_of(node, 1)[0] for node in NAMES])
    seen = result.evaluate_metrics_clientapp[1]["seen"]
    assert seen == pytest.approx(WEIGHTS @ personal / WEIGHTS.sum(), rel=1e-5)


def test_replies_of_single_nodes_are_not_aggregated() -> None:
    with pytest.raises(NotImplementedError, match="secure sums are taken in start"):
        RFA().aggregate_train(1, [])
    with pytest.raises(NotImplementedError, match="secure sums are taken in start"):
        RFA().aggregate_evaluate(1, [])
