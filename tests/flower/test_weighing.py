"""How examples make weights, and what the sums of rounds tell about one node's examples (M3)."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message, MessageType, RecordDict
from numpy.typing import NDArray

from rfa.errors import InvalidValueError
from rfa.flower import (
    OneStepRFA,
    Policy,
    RobustMod,
    SecureFedAvg,
    SecureStrategy,
    ServerModel,
    Terms,
    records,
)
from rfa.flower.weighing import keep_surrogate, weigh
from rfa.secagg.errors import VaultError
from rfa.secagg.fixed_point import Total
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.oracle import open_round
from rfa.secagg.weights import DIGITS, LEAST, MODES, TELLS, bucket, lower, surrogate
from tests.flower.grid import LocalGrid
from tests.flower.noisy import openings
from tests.flower.toy import FIRST, NODES, app, attempt, model, nodes, options, with_nu

CAP = 256.0
VICTIM = FIRST + NODES - 1
COUNT = 10 + VICTIM
"""The examples of the toy's last node."""
COUNTS = st.floats(1.0, 1e9)
THRESHOLDS = st.integers(0, (1 << DIGITS) - 1)


def weights_in(total: Total) -> set[float]:
    """What a sum tells of the weights: their total, and that behind the one metric, the loss."""
    told = {total.statistics["weight"]} if "weight" in total.statistics else set[float]()
    return told | {total.metrics[1]}


def later(strategy: SecureStrategy, rounds: int = 1) -> Any:
    """Training as in a later round."""
    configure = type(strategy).configure_train

    def shifted(t: int, *rest: Any) -> Any:
        return configure(strategy, t + rounds, *rest)

    return shifted


def without_the_victim(
    home: Path, opened: list[Total], *, weights: str, count: int = COUNT
) -> set[float]:
    """The attack: what the sums of two rounds, with a node and without it, tell of its weight."""
    metrics: dict[str, Any] = {"num-examples": count}
    everyone = nodes(home) | {VICTIM: app(VICTIM, home, **metrics)}
    others = {node: each for node, each in everyone.items() if node != VICTIM}
    strategy = SecureFedAvg(weights=weights, fraction_evaluate=0.0, **options(example_cap=CAP))
    opened.clear()
    strategy.start(LocalGrid(everyone, run=int.from_bytes(os.urandom(4), "big")), model(), 1)
    strategy.configure_train = later(strategy)  # the very same updates would be refused
    strategy.start(LocalGrid(others, run=int.from_bytes(os.urandom(4), "big")), model(), 1)
    first, *_, last = opened
    assert (first.sum.count, last.sum.count) == (NODES, NODES - 1)
    (more,), (less,) = weights_in(first), weights_in(last)
    return {round((more - less) * CAP, 6)}


def test_rounds_that_differ_by_one_node_tell_its_examples(
    tmp_path: Path, opened: list[Total]
) -> None:
    assert without_the_victim(tmp_path, opened, weights="examples") == {float(COUNT)}


def test_with_buckets_they_tell_a_power_of_two(tmp_path: Path, opened: list[Total]) -> None:
    (told,) = without_the_victim(tmp_path / "a", opened, weights="buckets")
    assert told in (64.0, 128.0)
    for count in (65, 127):  # between the same two powers
        home = tmp_path / str(count)
        shutil.copytree(tmp_path / "a" / "flower" / "weights", home / "flower" / "weights")
        assert without_the_victim(home, opened, weights="buckets", count=count) == {told}


def test_with_equal_weights_they_tell_nothing(tmp_path: Path, opened: list[Total]) -> None:
    for count in (1, COUNT):
        home = tmp_path / str(count)
        assert without_the_victim(home, opened, weights="equal", count=count) == {CAP}


@pytest.mark.parametrize("weights", MODES)
def test_rounds_say_whether_weights_are_equal(tmp_path: Path, weights: str) -> None:
    grid = LocalGrid(nodes(tmp_path))
    OneStepRFA(weights=weights, **with_nu(example_cap=CAP)).start(grid, model(), 1)
    rounds = openings(grid)
    assert len(rounds) == 2 * NODES  # of training and of evaluation
    assert {opening.equal_weights for opening in rounds} == {int(weights == "equal")}


@pytest.mark.parametrize("weights", MODES)
def test_the_model_and_metrics_are_those_of_the_weights(
    tmp_path: Path, opened: list[Total], weights: str
) -> None:
    strategy = SecureFedAvg(weights=weights, **options(example_cap=CAP))
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 1)
    names = np.arange(FIRST, FIRST + NODES)

    def weights_of(task: str) -> NDArray[Any]:
        alpha = {"examples": (10.0 + names) / CAP, "equal": np.ones(NODES)}.get(weights)
        drawn = alpha is None
        return np.array([kept_bucket(tmp_path, int(n), task) for n in names]) if drawn else alpha

    alpha = weights_of("train")
    assert opened[0].metrics[1] == pytest.approx(alpha.sum(), rel=1e-9)
    loss = result.train_metrics_clientapp[1]["loss"]
    assert loss == pytest.approx(alpha @ names / alpha.sum(), rel=1e-9)
    alpha = weights_of("evaluate")
    accuracy = result.evaluate_metrics_clientapp[1]["accuracy"]
    assert accuracy == pytest.approx(alpha @ names / alpha.sum() / 10, rel=1e-9)


def kept_bucket(home: Path, node: int, task: str) -> float:
    """What a node weighs by what it has kept."""
    store = sqlite3.connect(home / "flower" / "weights" / str(node))
    row = store.execute("SELECT value FROM kept WHERE name = ?", (f"{task} surrogate",)).fetchone()
    store.close()
    return bucket(row[0], CAP)


@given(COUNTS, st.integers(1, 64))
def test_a_surrogate_is_right_on_average(count: float, few: int) -> None:
    """Over thresholds in equal steps, as over random ones: to the width of a step."""
    steps = 64 * few
    thresholds = [(2 * step + 1) * (1 << DIGITS) // (2 * steps) for step in range(steps)]
    drawn = [surrogate(count, threshold) for threshold in thresholds]
    assert set(drawn) <= {lower(count), 2 * lower(count)}
    assert abs(sum(drawn) / steps - count) <= lower(count) / steps
    for cap in (lower(count) / 2, lower(count), 2 * lower(count), 16 * lower(count)):
        mean = sum(bucket(each, cap) for each in drawn) / steps
        assert abs(mean - min(count, cap) / cap) <= 1 / steps


@given(COUNTS, THRESHOLDS, st.integers(-10, 40))
def test_a_bucket_is_a_power_of_a_half(count: float, threshold: int, exponent: int) -> None:
    weight = bucket(surrogate(count, threshold), 2.0**exponent)
    assert LEAST <= weight == lower(weight) <= 1


def test_random_surrogates_are_right_on_average(tmp_path: Path) -> None:
    drawn = [keep_surrogate(tmp_path / str(device), "train", 300) for device in range(2000)]
    assert set(drawn) == {256.0, 512.0}
    chance = 44 / 256
    deviation = 256 * np.sqrt(chance * (1 - chance) / len(drawn))
    assert abs(np.mean(drawn) - 300) < 5 * deviation


def test_a_surrogate_is_kept_while_the_count_is_between_its_powers(tmp_path: Path) -> None:
    for device in range(40):
        path = tmp_path / str(device)
        first = keep_surrogate(path, "train", 260)
        assert {keep_surrogate(path, "train", count) for count in (256, 300, 511, 512)} == {first}
        before = {count: keep_surrogate(path, "train", count) for count in (600, 300, 50)}
        again = {count: keep_surrogate(path, "train", count) for count in (600, 300, 50)}
        assert before == again  # by the same threshold: nothing is learned by asking often
        assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_kept_outlives_runs(tmp_path: Path, opened: list[Total]) -> None:
    told: set[float] = set()
    for run in range(3):
        opened.clear()
        grid = LocalGrid(nodes(tmp_path), run=run + 1)
        how = options(example_cap=CAP)
        strategy = SecureFedAvg(weights="buckets", fraction_evaluate=0.0, **how)
        strategy.configure_train = later(strategy, run)
        strategy.start(grid, model(), 1)
        told |= {total.metrics[1] for total in opened}
    assert len(told) == 1


def largest_full_cap(weight_at: Callable[[float], float], low: float, high: float) -> float:
    """The largest cap, to a tenth, at which a node weighs 1: by bisection, as a server may."""
    while high - low > 0.1:
        middle = (low + high) / 2
        low, high = (middle, high) if weight_at(middle) == 1 else (low, middle)
    return low


@pytest.mark.parametrize("count", [601, 733, 999])
def test_caps_that_a_server_tries_do_not_tell_a_count(tmp_path: Path, count: int) -> None:
    """A node brought to weigh 1 just above its count kept that up to a cap of twice the count."""
    for device in range(8):
        path = tmp_path / str(device)

        def from_near(cap: float, *before: float, path: Path = path) -> float:
            for other in (1e12, 1.0, *before):
                weigh(count, other, "buckets", kept=path, task="train")
            return weigh(count, cap, "buckets", kept=path, task="train")

        edge = largest_full_cap(from_near, 1.0, 8192.0)
        kept = largest_full_cap(lambda cap, edge=edge: from_near(cap, edge), edge, 3 * edge)
        assert edge == pytest.approx(kept, abs=0.2)
        assert min(abs(edge - power) for power in (512, 1024)) < 0.2


def test_the_tasks_of_a_node_do_not_tell_the_ratio_of_its_counts(tmp_path: Path) -> None:
    ratios: set[float] = set()
    for device in range(40):
        edges: list[float] = []
        for task, count in (("train", 700), ("evaluate", 50)):

            def weight_at(
                cap: float, kept: Path = tmp_path / str(device), task: str = task, n: int = count
            ) -> float:
                weigh(n, 1e12, "buckets", kept=kept, task=task)
                return weigh(n, cap, "buckets", kept=kept, task=task)

            edges.append(largest_full_cap(weight_at, 1.0, 4096.0))
        ratios.add(float(np.log2(edges[0] / edges[1]).round(1)))
    assert ratios <= {3.0, 4.0, 5.0}  # of powers of two
    assert len(ratios) > 1, "one threshold serves both"


@pytest.mark.parametrize("wrong", ["train threshold", "train below", "train surrogate"])
def test_damaged_surrogates_are_not_drawn_anew_in_silence(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "kept"
    keep_surrogate(path, "train", 300)
    with sqlite3.connect(path) as store:
        store.execute("UPDATE kept SET value = 0.7 WHERE name = ?", (wrong,))
    store.close()
    with pytest.raises(VaultError, match="remove the file"):
        keep_surrogate(path, "train", 300)
    path.write_bytes(b"no store at all, but a text that is longer than a header of sqlite is")
    with pytest.raises(VaultError, match="cannot be used"):
        keep_surrogate(path, "train", 300)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("examples", [0, -3, float("nan"), float("inf")])
def test_without_examples_there_is_no_weight(tmp_path: Path, mode: str, examples: float) -> None:
    assert weigh(examples, 1.0, mode, kept=tmp_path / "kept", task="train") == 0


@pytest.mark.parametrize("mode", MODES)
def test_weights_are_above_zero_and_at_most_one(tmp_path: Path, mode: str) -> None:
    for examples in (1, 2, 3, 999, 1000, 10**400):
        weight = weigh(examples, 1024.0, mode, kept=tmp_path / str(examples)[:9], task="train")
        assert 0 < weight <= 1


@pytest.mark.parametrize("own", MODES)
@pytest.mark.parametrize("asked", MODES)
def test_a_device_that_does_not_trust_the_server_says_how_it_weighs(
    tmp_path: Path, own: str, asked: str
) -> None:
    policy = Policy(server_model=ServerModel.MALICIOUS)
    wary = RobustMod(policy, tmp_path, cap=CAP, weights=own)
    work = records.Work("train", CAP, "num-examples", weights=asked)
    if own == asked:
        wary.check_work(work)
    else:
        with pytest.raises(records.RecordError, match="give the same on both sides"):
            wary.check_work(work)


def test_the_log_says_what_weights_tell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("flwr").propagate = True
    with caplog.at_level(logging.INFO, "flwr"):
        for mode in MODES:
            SecureFedAvg(weights=mode).summary()
            assert TELLS[mode] in caplog.text


@pytest.mark.parametrize("count", [1, int(CAP), 10 * int(CAP)])
def test_a_round_of_equal_weights_after_other_work_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The attack: ask for weights by examples, open a round of equal ones, see who refuses."""

    def lying(number: int, terms: Terms, **how: Any) -> OpenRound:
        how["equal_weights"] = True
        return open_round(number, terms, **how)

    monkeypatch.setattr("rfa.flower.oracles.open_round", lying)
    metrics: dict[str, Any] = {"num-examples": count}
    grid = LocalGrid(nodes(tmp_path, **metrics))
    attempt(SecureFedAvg(fraction_evaluate=0.0, **options()), grid, model(), 1)
    said = [str(reply.error.reason) for _, _, reply in grid.seen if reply.has_error()]
    assert len(said) == NODES
    assert all(reason.startswith("UnequalWeightError: the round is of equal") for reason in said)


@pytest.mark.parametrize("cap", [1000.0, 0.3, 1.5e9])
def test_buckets_take_caps_that_are_powers_of_two(cap: float) -> None:
    remedy = {1000.0: "1024", 0.3: "0.5", 1.5e9: "2147483648"}[cap]
    said = re.escape(f"power of two, not {cap:g}: give {remedy}") + "$"
    with pytest.raises(InvalidValueError, match=said):
        SecureFedAvg(weights="buckets", example_cap=cap)
    with pytest.raises(InvalidValueError, match=said):
        RobustMod(cap=cap, weights="buckets")
    SecureFedAvg(weights="buckets", example_cap=float(remedy))
    SecureFedAvg(weights="examples", example_cap=cap)
    SecureFedAvg(weights="buckets")  # as the default is


def test_a_device_refuses_other_caps_of_buckets() -> None:
    for cap, refused in ((1000.0, True), (1024.0, False)):
        work = records.Work("train", cap, "num-examples", weights="buckets")
        message = Message(
            RecordDict({"rfa": work.record()}), dst_node_id=1, message_type=MessageType.TRAIN
        )
        if refused:
            with pytest.raises(records.RecordError, match="power of two, not 1000: give 1024"):
                records.read_order(message)
        else:
            assert records.read_order(message) == work
