"""Robust metrics: medians and quantiles from secure histograms, in which each node counts once."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from rfa.errors import InvalidValueError
from rfa.flower import (
    OneStepRFA,
    Policy,
    RobustMod,
    SecureFedAvg,
    ServerModel,
    Terms,
    records,
)
from rfa.flower.histograms import (
    BINS,
    LEAST_NODES,
    QUANTILES,
    Histograms,
    histograms_of,
    quantile,
)
from rfa.flower.metrics import layout_of
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstInput
from rfa.secagg.weights import EXAMPLE_CAP
from tests.flower.grid import LocalGrid
from tests.flower.toy import FIRST, TARGET, app, attempt, model, options, signing, with_nu

NAMES = list(range(FIRST, FIRST + 12))
LOSS = {"loss": (96.0, 128.0)}
"""Bins of width 1: the toy's loss is the node's number."""
WIDTH = (128.0 - 96.0) / BINS


def nodes(home: Path, **metrics: dict[int, Any]) -> dict[int, ClientApp]:
    """The apps of nodes, some of which say other losses: {name: {node: value}}."""
    return {
        node: app(node, home, **{key: each[node] for key, each in metrics.items() if node in each})
        for node in NAMES
    }


def trained(apps: dict[int, ClientApp], **more: Any) -> dict[str, Any]:
    """The metrics of one round of training."""
    given = {"robust_metrics": LOSS, "fraction_evaluate": 0.0, **more}
    result = OneStepRFA(**with_nu(**given)).start(LocalGrid(apps), model(), 1)
    assert np.linalg.norm(result.arrays["w"].numpy() - TARGET) < 0.5
    return dict(result.train_metrics_clientapp[1])


def true(values: Sequence[float], percent: int) -> float:
    """The least value that at least so many percent of them do not exceed."""
    return sorted(values)[max(0, math.ceil(percent * len(values) / 100) - 1)]


def test_one_lying_node_moves_the_mean_and_not_the_median(tmp_path: Path) -> None:
    honest = trained(nodes(tmp_path / "a"))
    lying = trained(nodes(tmp_path / "b", loss={NAMES[0]: 1e9}))
    assert honest["loss-median"] == pytest.approx(true(NAMES, 50), abs=WIDTH)
    assert lying["loss"] > 1e6
    for end in QUANTILES:
        assert abs(lying[f"loss-{end}"] - honest[f"loss-{end}"]) <= WIDTH


@pytest.mark.parametrize("weights", ["examples", "buckets", "equal"])
def test_each_node_counts_once_whatever_it_weighs(tmp_path: Path, weights: str) -> None:
    heavy = {NAMES[0]: 10**6}
    apps = nodes(tmp_path, **{"num-examples": heavy})
    found = trained(apps, weights=weights, example_cap=256.0)
    for end, percent in QUANTILES.items():
        assert abs(found[f"loss-{end}"] - true(NAMES, percent)) <= WIDTH


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e300])
def test_a_metric_that_no_sum_can_hold_costs_the_metric_and_not_the_update(
    tmp_path: Path, wrong: float
) -> None:
    grid = LocalGrid(nodes(tmp_path, loss={NAMES[3]: wrong}))
    strategy = SecureFedAvg(fraction_evaluate=0.0, robust_metrics=LOSS, **options())
    result = strategy.start(grid, model(), 1)
    found = dict(result.train_metrics_clientapp[1])
    left = [node for node in NAMES if node != NAMES[3]]
    weights = np.array([10.0 + node for node in left])
    assert found["loss"] == pytest.approx(weights @ np.array(left) / weights.sum(), rel=1e-9)
    votes = left if not math.isfinite(wrong) else [*left, 128.0]
    assert abs(float(found["loss-median"]) - true(votes, 50)) <= WIDTH  # type: ignore[arg-type]
    assert not [reply for _, _, reply in grid.seen if reply.has_error()]


def test_a_metric_that_no_node_has_is_left_out(tmp_path: Path) -> None:
    found = trained(nodes(tmp_path, loss=dict.fromkeys(NAMES, math.nan)))
    assert not found


def test_a_list_has_no_quantiles(tmp_path: Path) -> None:
    found = trained(nodes(tmp_path, loss={node: [1.0, 2.0] for node in NAMES}))
    assert list(found) == ["loss"]


def test_evaluation_has_quantiles_too(tmp_path: Path) -> None:
    asked = {"accuracy": (8.0, 16.0), "other": (0.0, 1.0)}
    strategy = OneStepRFA(robust_metrics=asked, metric_bins=64, **with_nu())
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 1)
    found = dict(result.evaluate_metrics_clientapp[1])
    assert {name for name in found if name.startswith("accuracy")} == {
        "accuracy",
        *(f"accuracy-{end}" for end in QUANTILES),
    }
    for end, percent in QUANTILES.items():
        told = float(found[f"accuracy-{end}"])  # type: ignore[arg-type]
        assert abs(told - true(NAMES, percent) / 10) <= 8 / 64
    assert not [name for name in result.train_metrics_clientapp[1] if "-" in name]


def test_of_few_nodes_there_is_no_histogram(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few = dict(list(nodes(tmp_path).items())[: LEAST_NODES - 1])
    logging.getLogger("flwr").propagate = True
    grid = LocalGrid(few)
    with caplog.at_level(logging.INFO, "flwr"):
        strategy = OneStepRFA(fraction_evaluate=0.0, robust_metrics=LOSS, **with_nu())
        result = attempt(strategy, grid, model(), 1)
    assert list(result.train_metrics_clientapp[1]) == ["loss"]
    assert f"there are no histograms of fewer than {LEAST_NODES}" in caplog.text
    assert {len(sent.tail) for sent in masked(grid)} == {
        3 + 3
    }  # mass, squares, count; the mean; the cap


def masked(grid: LocalGrid) -> list[FirstInput]:
    """The masked inputs that nodes sent."""
    replies = [bytes(_record(reply).get("reply", b"")) for _, _, reply in grid.seen]
    found = [decode(reply, 1 << 20) for reply in replies if reply]
    return [message for message in found if isinstance(message, FirstInput)]


def _record(message: Message) -> Any:
    return message.content.config_records["rfa"]


def test_bins_cost_sixteen_bytes_each_and_no_other_sum(tmp_path: Path) -> None:
    sizes: list[tuple[int, int]] = []
    for more in ({}, {"robust_metrics": LOSS}):
        grid = LocalGrid(nodes(tmp_path / str(len(more))))
        OneStepRFA(fraction_evaluate=0.0, **with_nu(**more)).start(grid, model(), 1)
        (length,) = {len(message.encode()) for message in masked(grid)}
        sizes.append((len(grid.seen), length))
    (exchanges, short), (same, long) = sizes
    assert exchanges == same
    assert long - short == 16 * BINS


def lie_in_the_ring(shift: dict[int, int]) -> Any:
    """A node that adds whole numbers of votes to bins of its own choice, beyond its own."""

    def spoil(node: int, request: Message, reply: Message) -> Message:
        if node != NAMES[5] or reply.has_error():
            return reply
        answer = bytes(_record(reply).get("reply", b""))
        message = decode(answer, 1 << 20) if answer else None
        if isinstance(message, FirstInput):
            tail = list(message.tail)
            for place, votes in shift.items():
                tail[len(tail) - BINS + place] = (
                    tail[len(tail) - BINS + place] + votes * (1 << 64)
                ) % (1 << 128)
            changed = dataclasses.replace(message, tail=tuple(tail))
            _record(reply)["reply"] = changed.encode()
        return reply

    return spoil


@pytest.mark.parametrize("shift", [{0: 5}, {31: -1, 0: 1}, {0: 1 << 40}])
def test_bins_that_cannot_be_cost_the_quantiles_and_not_the_round(
    tmp_path: Path, shift: dict[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("flwr").propagate = True
    grid = LocalGrid(nodes(tmp_path), lie_in_the_ring(shift))
    strategy = OneStepRFA(fraction_evaluate=0.0, robust_metrics=LOSS, **with_nu())
    result = strategy.start(grid, model(), 1)
    assert np.linalg.norm(result.arrays["w"].numpy() - TARGET) < 0.5
    assert list(result.train_metrics_clientapp[1]) == ["loss"]
    assert "its bins are not those of 12 nodes" in caplog.text


def test_in_groups_they_are_over_all_parts_but_those_that_lie() -> None:
    asked = Histograms(("loss",), ((0.0, 4.0),), bins=4)
    good, bad = ([4.0, 6.0, 0.0, 0.0], 10), ([-1.0, 0.0, 0.0, 11.0], 10)
    other = ([0.0, 0.0, 10.0, 0.0], 12)
    told = asked.quantiles([good, bad, other])
    assert dict(told) == dict(asked.quantiles([([4.0, 6.0, 10.0, 0.0], 22)]))
    assert not asked.quantiles([bad])
    assert not asked.quantiles([([1.0, 0.0, 0.0, 0.0], LEAST_NODES - 1)])
    assert not asked.quantiles([([0.0] * 4, 10)])


def test_in_groups_on_a_grid(tmp_path: Path) -> None:
    many = range(FIRST, FIRST + 2 * 12)  # of each 12, two may drop out
    apps = {node: app(node, tmp_path) for node in many}
    found = trained(apps, groups=2)
    assert abs(found["loss-median"] - true(list(many), 50)) <= WIDTH


def test_where_the_server_may_lie(tmp_path: Path) -> None:
    known = signing(tmp_path, NAMES)
    apps = {node: app(node, tmp_path / str(node)) for node in NAMES}
    terms = Terms(server_model=ServerModel.MALICIOUS)
    found = trained(apps, terms=terms, identities=known)
    assert abs(found["loss-median"] - true(NAMES, 50)) <= WIDTH


def test_a_device_that_does_not_trust_the_server_says_where_it_votes(tmp_path: Path) -> None:
    """Bounds that a server chooses would let it look at one bin as closely as it likes."""
    policy = Policy(server_model=ServerModel.MALICIOUS)
    asked = records.Work("train", EXAMPLE_CAP, "num-examples", histograms=histograms_of(LOSS))
    RobustMod(policy, tmp_path, robust_metrics=LOSS).check_work(asked)
    for own in (None, {"loss": (0.0, 1.0)}):
        with pytest.raises(records.RecordError, match="give the same robust_metrics"):
            RobustMod(policy, tmp_path, robust_metrics=own).check_work(asked)
    RobustMod(Policy(), tmp_path).check_work(asked)


@given(
    st.lists(st.floats(-1.0, 3.0), min_size=1, max_size=50),
    st.sampled_from([2, 4, 32, 128]),
    st.sampled_from(sorted(QUANTILES.values())),
)
def test_quantiles_are_within_a_bin_of_the_true_ones(
    values: list[float], bins: int, percent: int
) -> None:
    asked = Histograms(("x",), ((0.0, 2.0),), bins)
    rows = [asked.votes({"x": value}) for value in values]
    assert all(sorted(row) == [0.0] * (bins - 1) + [1.0] for row in rows)
    votes = [int(sum(column)) for column in zip(*rows, strict=True)]
    clipped = [min(max(value, 0.0), 2.0) for value in values]
    assert abs(quantile(votes, (0.0, 2.0), percent) - true(clipped, percent)) <= 2.0 / bins


@given(
    st.lists(st.floats(0.0, 1.0), min_size=3, max_size=40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(sorted(QUANTILES.values())),
)
def test_one_vote_moves_a_quantile_no_farther_than_the_next_votes(
    honest: list[float], lie: float, percent: int
) -> None:
    asked = Histograms(("x",), ((0.0, 1.0),), 32)

    def told(values: list[float]) -> float:
        rows = [asked.votes({"x": value}) for value in values]
        return quantile([int(sum(column)) for column in zip(*rows, strict=True)], (0, 1), percent)

    rank = max(0, math.ceil(percent * len(honest) / 100) - 1)
    order = sorted(honest)
    low = order[rank - 1] if rank else 0.0
    high = order[rank + 1] if rank + 1 < len(order) else 1.0
    assert low - 1 / 32 <= told([lie, *honest[1:]]) <= high + 1 / 32


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log warns of robust_metrics."""
    logging.getLogger("flwr").propagate = True
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "robust_metrics" in record.getMessage()
    ]


def test_a_metric_that_no_node_has_is_said_once_with_those_that_they_have(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    """A misspelled name would else be quantiles that never come, and nobody knows why."""
    asked = {"los": (0.0, 1.0), "loss": (96.0, 128.0), "accuracy": (0.0, 20.0)}
    strategy = OneStepRFA(**with_nu(robust_metrics=asked, metric_bins=8))
    strategy.start(LocalGrid(nodes(tmp_path)), model(), 2)
    (said,) = warnings()
    assert said == (
        "robust_metrics: 'los' is missing on all nodes, so there are no quantiles of it; nodes "
        "have loss (train); accuracy, seen (evaluate)"
    )


def test_a_metric_of_one_task_alone_is_not_missing(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    for metric in ("loss", "accuracy"):
        strategy = OneStepRFA(**with_nu(robust_metrics={metric: (0.0, 128.0)}))
        strategy.start(LocalGrid(nodes(tmp_path / metric)), model(), 1)
    assert not warnings()


def test_a_list_is_said_to_be_one(tmp_path: Path, warnings: Callable[[], list[str]]) -> None:
    trained(nodes(tmp_path, loss={node: [1.0, 2.0] for node in NAMES}))
    (said,) = warnings()
    assert said.startswith("robust_metrics: 'loss' is a list on all nodes")


def test_a_round_that_nobody_is_ready_for_says_nothing_of_metrics(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    grid = LocalGrid(nodes(tmp_path), lose=lambda node, message: True)
    strategy = OneStepRFA(fraction_evaluate=0.0, **with_nu(robust_metrics=LOSS))
    attempt(strategy, grid, model(), 1, timeout=0.1)
    assert not warnings()


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"robust_metrics": {"loss": (1.0, 1.0)}}, "two finite bounds"),
        ({"robust_metrics": {"loss": (2.0, 1.0)}}, "two finite bounds"),
        ({"robust_metrics": {"loss": (0.0, math.inf)}}, "two finite bounds"),
        ({"robust_metrics": {"loss": (math.nan, 1.0)}}, "two finite bounds"),
        ({"robust_metrics": {"loss": 1.0}}, "bounds by name"),
        ({"robust_metrics": LOSS, "metric_bins": 30}, "a power of two"),
        ({"robust_metrics": LOSS, "metric_bins": 256}, "a power of two"),
        ({"metric_bins": 64}, "is for robust_metrics"),
        (
            {"robust_metrics": {"a": (0, 1), "b": (0, 1)}, "metric_bins": 128},
            "more than the 256 numbers",
        ),
        ({"robust_metrics": {"num-examples": (0, 9)}}, "it counts the examples .weighted_by_key."),
        (
            {"robust_metrics": {"n": (0, 9)}, "weighted_by_key": "n"},
            r"robust_metrics\['n'\]: it counts the examples",
        ),
        ({"robust_metrics": {"l" * 300: (0, 9)}}, "a name of 300 letters, and metrics at most 256"),
        ({"weights": "heavy"}, "weights must be one of examples, buckets, equal"),
    ],
)
def test_values_without_a_meaning_are_refused(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        OneStepRFA(**wrong)


@pytest.mark.parametrize(
    "more",
    [
        {"robust": ["loss"], "bounds": [0.0], "bins": 32},
        {"robust": ["loss"], "bounds": [1.0, 0.0], "bins": 32},
        {"robust": ["loss", "loss"], "bounds": [0.0, 1.0, 0.0, 1.0], "bins": 32},
        {"robust": ["loss"], "bounds": [0.0, 1.0], "bins": 1 << 30},
        {"robust": ["loss"], "bounds": [0.0, 1.0]},
        {"robust": [1], "bounds": ["a", "b"], "bins": 2},
        {"weights": "heavy"},
    ],
)
def test_histograms_that_make_no_sense_are_refused_by_the_device(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    grid = LocalGrid({5: app(5, tmp_path)})
    record = records.Work("train", 1.0, "num-examples").record()
    for name, value in more.items():
        record[name] = value
    content = RecordDict({"arrays": model(), "rfa": record})
    (reply,) = grid.send_and_receive([Message(content, dst_node_id=5, message_type="train")])
    assert "RecordError: " in str(reply.error.reason)


def test_too_many_numbers_are_named_by_the_device(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path, extra=dict.fromkeys(NAMES, [1.0] * 230)))
    strategy = OneStepRFA(fraction_evaluate=0.0, robust_metrics=LOSS, **with_nu())
    assert not attempt(strategy, grid, model(), 1).train_metrics_clientapp
    (reason,) = {str(reply.error.reason) for _, _, reply in grid.seen}
    assert "32 bins make 266 numbers, and at most 256 are summed" in reason


def test_a_work_record_says_it_all_and_comes_back(tmp_path: Path) -> None:
    asked = histograms_of({"loss": (0, 10), "accuracy": (0.0, 1.0)}, 64)
    work = records.Work("train", 8.0, "n", weights="buckets", histograms=asked)
    content = RecordDict({"rfa": work.record()})
    assert records.read_order(Message(content, dst_node_id=1, message_type="train")) == work
    assert asked.within(layout_of({"loss": 1.0, "accuracy": [1.0]})).names == ("loss",)
