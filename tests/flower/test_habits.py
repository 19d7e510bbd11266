"""What users of Flower are used to: hooks, loops, optimizers, configs of their own, other mods."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod, message_size_mod

from rfa import aggregators
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.flower import (
    RFA,
    NodesRefusedError,
    NothingDoneError,
    OneStepRFA,
    RobustMod,
    SecureFedAvg,
    SecureStrategy,
    ServerOptimizer,
    TooFewNodesError,
)
from rfa.flower.basis import UnequalMessagesError
from rfa.flower.checkpoint import load_checkpoint
from rfa.flower.waiting import PAUSE
from rfa.numerics.plain_oracle import PlainOracle
from tests.flower.grid import LocalGrid
from tests.flower.test_weighing import later
from tests.flower.toy import (
    DIM,
    FIRST,
    LAX,
    NODES,
    app,
    attempt,
    model,
    nodes,
    options,
    step_of,
    with_nu,
)

NAMES = list(range(FIRST, FIRST + NODES))


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    logging.getLogger("flwr").propagate = True
    caplog.set_level(logging.INFO, "flwr")
    return caplog


def w_of(result: Any) -> Any:
    return result.arrays["w"].numpy()


class Seen(list[Any]):
    """A hook that keeps what it is told, and ends the run after a round."""

    def __init__(self, last: int = 0) -> None:
        super().__init__()
        self.last = last

    def __call__(self, t: int, arrays: ArrayRecord, train: Any, evaluate: Any) -> bool:
        self.append((t, arrays["w"].numpy(), train, evaluate))
        return t == self.last


def test_a_hook_is_told_of_each_round(tmp_path: Path) -> None:
    seen = Seen()
    result = OneStepRFA(on_round=seen, **with_nu()).start(LocalGrid(nodes(tmp_path)), model(), 2)
    assert [t for t, *_ in seen] == [1, 2]
    assert np.array_equal(seen[1][1], w_of(result))
    for t, _, train, evaluate in seen:
        assert train == result.train_metrics_clientapp[t]
        assert evaluate == result.evaluate_metrics_clientapp[t]


def test_a_hook_ends_the_run_and_the_checkpoint_has_its_last_round(tmp_path: Path) -> None:
    file, seen = tmp_path / "server.npz", Seen(last=2)
    strategy = OneStepRFA(on_round=seen, checkpoint=file, **with_nu())
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 9)
    assert list(result.train_metrics_clientapp) == [1, 2]
    kept = load_checkpoint(file, model(), strategy.aggregator)
    assert kept.round == 2
    assert np.array_equal(w_of(kept.result), w_of(result))


def test_a_class_of_ones_own_overrides_the_hook(tmp_path: Path) -> None:
    class Mine(OneStepRFA):
        rounds: tuple[int, ...] = ()

        def on_round(self, t: int, *_: Any, **named: Any) -> bool:
            self.rounds = (*self.rounds, t)
            return t == 1

    strategy = Mine(**with_nu())
    strategy.start(LocalGrid(nodes(tmp_path)), model(), 3)
    assert strategy.rounds == (1,)


def test_a_comparison_of_numpys_ends_the_run_too(tmp_path: Path) -> None:
    """It is no bool of Python's, and was taken for nothing."""

    def mean_is_large(t: int, arrays: ArrayRecord, *_: Any) -> Any:
        return np.mean(arrays["w"].numpy()) > -1

    strategy = OneStepRFA(on_round=mean_is_large, fraction_evaluate=0.0, **with_nu())
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 3)
    assert list(result.train_metrics_clientapp) == [1]


@pytest.mark.parametrize("answer", [1, "stop", 0.5, MetricRecord({"loss": 1.0})])
def test_a_hook_that_answers_something_else_is_told_what_ends_a_run(
    tmp_path: Path, heard: pytest.LogCaptureFixture, answer: Any
) -> None:
    def odd(*_: Any) -> Any:
        return answer

    strategy = OneStepRFA(on_round=odd, fraction_evaluate=0.0, **with_nu())
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 2)
    assert list(result.train_metrics_clientapp) == [1, 2]
    told = f"on_round returned {answer!r}, and the run continues: True ends it"
    assert heard.text.count(told) == 1


def test_a_hook_is_told_of_a_round_that_is_skipped(tmp_path: Path) -> None:
    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        return None if request.metadata.group_id == "2" else reply

    seen = Seen()
    strategy = OneStepRFA(on_round=seen, fraction_evaluate=0.0, **with_nu())
    strategy.start(LocalGrid(nodes(tmp_path), spoil), model(), 3, timeout=0.1)
    assert [train is None for _, _, train, _ in seen] == [False, True, False]


@pytest.mark.parametrize("name", ["aggregate_train", "aggregate_evaluate"])
def test_an_override_that_nobody_calls_is_an_error(name: str) -> None:
    def never(*_: object) -> None:
        return None

    mine = type("Mine", (RFA,), {name: never})
    with pytest.raises(InvalidTypeError, match=rf"Mine overrides {name}, .* override on_round"):
        mine()


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    wrong: Any = "print"
    with pytest.raises(
        InvalidValueError, match=r"on_round is called with t, .* and 'print' cannot be"
    ):
        RFA(on_round=wrong)


def in_a_loop(home: Path, strategies: list[OneStepRFA]) -> Any:
    """The model after single rounds, each by a strategy; the toy's steps depend on the round."""
    arrays, grid = model(), LocalGrid(nodes(home))
    for t, strategy in enumerate(strategies, 1):
        strategy.configure_train = later(strategy, t - 1)
        result = strategy.start(grid, arrays, num_rounds=1)
        assert list(result.train_metrics_clientapp) == [1]
        arrays = result.arrays
    return arrays["w"].numpy()


def radius_of(strategy: OneStepRFA) -> Any:
    """What a strategy has learned."""
    last = strategy._last  # pyright: ignore[reportPrivateUsage]
    assert last is not None
    return last.aggregator


def test_a_loop_of_single_rounds_keeps_what_is_learned(tmp_path: Path) -> None:
    """The radius and the optimizer: as in one run, and not as with a new strategy each time."""

    def make() -> OneStepRFA:
        return OneStepRFA(server_optimizer="momentum", fraction_evaluate=0.0, **options())

    whole, looped, anew = make(), make(), [make() for _ in range(4)]
    wanted = w_of(whole.start(LocalGrid(nodes(tmp_path / "a")), model(), 4))
    found, forgetful = in_a_loop(tmp_path / "b", [looped] * 4), in_a_loop(tmp_path / "c", anew)
    assert np.linalg.norm(found - wanted) < 1e-5 * np.linalg.norm(wanted)
    assert np.linalg.norm(forgetful - wanted) > 0.1 * np.linalg.norm(wanted)
    assert radius_of(looped) == radius_of(whole) != radius_of(anew[-1])


def test_another_model_begins_anew(tmp_path: Path) -> None:
    strategy = OneStepRFA(server_optimizer="momentum", fraction_evaluate=0.0, **options())
    strategy.start(LocalGrid(nodes(tmp_path)), model(), 2)
    other = ArrayRecord({"w": Array(np.zeros((1, DIM), np.float32))})
    fresh = OneStepRFA(server_optimizer="momentum", fraction_evaluate=0.0, **options())
    results = [
        each.start(LocalGrid(nodes(tmp_path / name)), other, 1)
        for name, each in (("a", strategy), ("b", fresh))
    ]
    assert np.allclose(*map(w_of, results), atol=1e-5)


class OfItsOwn(SecureFedAvg):
    """A strategy that gives each node a learning rate of its own, as users of Flower do."""

    def configure_train(self, *given: Any, **named: Any) -> Iterable[Message]:
        for message in super().configure_train(*given, **named):
            content: Any = message.content
            content["config"]["lr"] = message.metadata.dst_node_id / 1000
            yield message


def test_messages_that_share_their_content_keep_what_each_node_is_told(tmp_path: Path) -> None:
    """All nodes got what the last one was told. Now each has its own, which a sum cannot bear."""
    grid = LocalGrid(nodes(tmp_path))
    with pytest.raises(UnequalMessagesError, match=r"nodes \d+ and \d+ are sent different records"):
        OfItsOwn(fraction_evaluate=0.0, **options()).start(grid, model(), 1)
    assert not grid.seen


def scribbling(node: int, home: Path, seen: dict[int, Any]) -> ClientApp:
    """An app that writes into the config that it is given."""
    client = ClientApp(mods=[RobustMod(LAX, home)])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        content: Any = message.content
        seen.setdefault(node, []).append(dict(content["config"]))
        after = (content["arrays"]["w"].numpy() + step_of(node, 1)).astype(np.float32)
        content["config"]["mine"] = node
        content["arrays"]["other"] = content["arrays"].pop("w")
        metrics = MetricRecord({"num-examples": 10})
        arrays = ArrayRecord({"w": Array(after)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return client


@pytest.mark.parametrize("personal", ["", "mine"])
def test_what_an_app_writes_into_its_config_no_other_call_sees(
    tmp_path: Path, personal: str
) -> None:
    seen: dict[int, Any] = {}
    grid = LocalGrid({node: scribbling(node, tmp_path, seen) for node in NAMES})
    strategy = SecureFedAvg(personal=personal, fraction_evaluate=0.0, **options())
    assert w_of(strategy.start(grid, model(), 1)).any()
    calls = 2 if personal else 1
    assert seen == {node: [{"server-round": 1}] * calls for node in NAMES}


def outside(mod: Any, home: Path) -> dict[int, ClientApp]:
    """Apps with a mod before robust_mod."""
    apps: dict[int, ClientApp] = {}
    for node in NAMES:
        client = ClientApp(mods=[mod, RobustMod(LAX, home)])

        @client.train()
        def train(message: Message, context: Context, node: int = node) -> Message:
            after = message.content.array_records["arrays"]["w"].numpy() + step_of(node, 1)
            metrics = MetricRecord({"num-examples": 10})
            arrays = ArrayRecord({"w": Array(after.astype(np.float32))})
            return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

        apps[node] = client
    return apps


def test_local_differential_privacy_before_the_mod_is_refused_at_once(tmp_path: Path) -> None:
    """Its reply to a reply without arrays reaches nobody: the server waited for an hour."""
    grid = LocalGrid(outside(LocalDpMod(1.0, 1.0, 1.0, 1e-5), tmp_path))
    strategy = SecureFedAvg(fraction_evaluate=0.0, **options())
    began = time.monotonic()
    with pytest.raises(NodesRefusedError, match=r"mods=\[robust_mod, LocalDpMod\]"):
        strategy.start(grid, model(), 1, timeout=30)
    assert time.monotonic() - began < 15


def test_local_differential_privacy_behind_the_mod_works(tmp_path: Path) -> None:
    mod = LocalDpMod(100.0, 1e-6, 1.0, 1e-5)
    apps: dict[int, ClientApp] = {}
    for node in NAMES:
        client = ClientApp(mods=[RobustMod(LAX, tmp_path), mod])

        @client.train()
        def train(message: Message, context: Context, node: int = node) -> Message:
            after = message.content.array_records["arrays"]["w"].numpy() + step_of(node, 1)
            metrics = MetricRecord({"num-examples": 10})
            arrays = ArrayRecord({"w": Array(after.astype(np.float32))})
            return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

        apps[node] = client
    strategy = SecureFedAvg(fraction_evaluate=0.0, **options())
    mean = np.mean([step_of(node, 1) for node in NAMES], axis=0)
    assert np.linalg.norm(w_of(strategy.start(LocalGrid(apps), model(), 1)) - mean) < 1e-3


def test_other_mods_may_come_first(tmp_path: Path) -> None:
    strategy = SecureFedAvg(fraction_evaluate=0.0, **options())
    assert w_of(strategy.start(LocalGrid(outside(message_size_mod, tmp_path)), model(), 1)).any()


def test_clipping_before_the_mod_says_what_it_lacks(tmp_path: Path) -> None:
    grid = LocalGrid(outside(fixedclipping_mod, tmp_path))
    with pytest.raises(NodesRefusedError, match="nodes 101"):
        SecureFedAvg(fraction_evaluate=0.0, **options()).start(grid, model(), 1, timeout=5)


def plain_steps(rounds: int) -> Iterator[Any]:
    for t in range(1, rounds + 1):
        updates = np.array([step_of(node, t) for node in NAMES], np.float32)
        oracle = PlainOracle(updates, np.array([(10.0 + node) / 200 for node in NAMES]))
        yield aggregators.OneStepRFA(nu=0.5)([oracle], DIM)[0].point


def reference(name: str, steps: Iterable[Any]) -> Any:
    """FedAvgM, FedAdam and FedYogi as Reddi et al. (2021) have them, in float64."""
    w, m, v = np.zeros(DIM), np.zeros(DIM), np.zeros(DIM)
    for g in steps:
        if name == "momentum":
            m = 0.9 * m + g
            w = w + m
            continue
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g**2 if name == "adam" else v - 0.01 * g**2 * np.sign(v - g**2)
        w = w + 0.5 * m / (np.sqrt(v) + 1e-3)
    return w


@pytest.mark.parametrize("name", ["momentum", "adam", "yogi"])
def test_optimizers_of_the_server_take_the_robust_step(tmp_path: Path, name: str) -> None:
    text = name if name == "momentum" else f"{name}:learning_rate=0.5"
    strategy = OneStepRFA(server_optimizer=text, fraction_evaluate=0.0, **with_nu())
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 3)
    wanted = reference(name, plain_steps(3))
    assert np.linalg.norm(w_of(result) - wanted) < 1e-4 * np.linalg.norm(wanted)


@pytest.mark.parametrize("name", ["momentum", "adam", "yogi"])
def test_what_an_optimizer_keeps_is_in_the_checkpoint(tmp_path: Path, name: str) -> None:
    file = tmp_path / "server.npz"
    for rounds in (1, 3):
        strategy = OneStepRFA(
            server_optimizer=name, checkpoint=file, fraction_evaluate=0.0, **with_nu()
        )
        result = strategy.start(LocalGrid(nodes(tmp_path), run=rounds), model(), rounds)
    unbroken = OneStepRFA(server_optimizer=name, fraction_evaluate=0.0, **with_nu())
    wanted = unbroken.start(LocalGrid(nodes(tmp_path / "other")), model(), 3)
    assert np.linalg.norm(w_of(result) - w_of(wanted)) < 1e-5


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("nadam", "server_optimizer must be one of sgd, momentum, adam, yogi, not 'nadam'"),
        ("adam:rate=1", "adam cannot be made of"),
        ("adam:learning_rate=0", "learning_rate must be a positive number, not 0"),
        ("momentum:momentum=1.5", "momentum is a fraction, from 0 to below 1, not 1.5"),
        (7, "a server's optimizer is ServerOptimizer"),
    ],
)
def test_an_optimizer_that_there_is_not_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        RFA(server_optimizer=wrong)


def test_no_receipt_tells_of_an_optimizer(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="give one of the two"):
        RFA(server_optimizer=ServerOptimizer("adam"), receipts=tmp_path)


@pytest.mark.parametrize("weights", ["examples", "buckets", "equal"])
def test_nodes_above_the_cap_are_counted_and_told(
    tmp_path: Path, heard: pytest.LogCaptureFixture, weights: str
) -> None:
    metrics: dict[str, Any] = {"num-examples": 3000}
    apps = nodes(tmp_path) | {node: app(node, tmp_path, **metrics) for node in NAMES[:3]}
    how = options(example_cap=1024.0, weights=weights)
    SecureFedAvg(fraction_evaluate=0.0, **how).start(LocalGrid(apps), model(), 1)
    told = (
        "3 of 8 nodes have more than 1024 examples, and count as if they had that many: example_cap"
    )
    assert (told in heard.text) == (weights != "equal")


def test_by_default_the_cap_is_above_most_nodes(
    tmp_path: Path, heard: pytest.LogCaptureFixture
) -> None:
    metrics: dict[str, Any] = {"num-examples": 50_000}
    apps = {node: app(node, tmp_path, **metrics) for node in NAMES}
    how = options()
    del how["example_cap"]
    SecureFedAvg(fraction_evaluate=0.0, **how).start(LocalGrid(apps), model(), 1)
    assert "count as" not in heard.text.replace("at most 65536 examples of a node count", "")


def test_a_metric_that_is_no_number_costs_the_metric_and_not_the_update(tmp_path: Path) -> None:
    apps = nodes(tmp_path) | {102: app(102, tmp_path, loss=float("nan"))}
    grid = LocalGrid(apps)
    result = SecureFedAvg(fraction_evaluate=0.0, **options()).start(grid, model(), 1)
    weights = {node: (10 + node) / 200 for node in NAMES}
    others = {node: weight for node, weight in weights.items() if node != 102}
    mean = sum(node * weight for node, weight in others.items()) / sum(others.values())
    assert result.train_metrics_clientapp[1]["loss"] == pytest.approx(mean)
    steps = sum(weights[node] * step_of(node, 1) for node in NAMES) / sum(weights.values())
    assert np.linalg.norm(w_of(result) - steps) < 1e-5


def test_metrics_have_bounds_by_name(tmp_path: Path) -> None:
    """One node with a loss beyond them moves the mean by no more than they allow."""
    apps = nodes(tmp_path, parts=[5.0, -9.0]) | {
        104: app(104, tmp_path, loss=1e9, parts=[9.0, 0.0])
    }
    bounds = {"loss": (0.0, 106.0), "parts": (-1.0, 6.0), "absent": (0.0, 1.0)}
    strategy = SecureFedAvg(metric_bounds=bounds, fraction_evaluate=0.0, **options())
    metrics = strategy.start(LocalGrid(apps), model(), 1).train_metrics_clientapp[1]
    weights = np.array([(10 + node) / 200 for node in NAMES])
    losses = [106 if node == 104 else min(node, 106) for node in NAMES]
    assert metrics["loss"] == pytest.approx(weights @ losses / weights.sum())
    first = [6 if node == 104 else 5 for node in NAMES]
    second = [0 if node == 104 else -1 for node in NAMES]
    wanted = [weights @ first / weights.sum(), weights @ second / weights.sum()]
    assert metrics["parts"] == pytest.approx(wanted)


def test_bounds_of_a_metric_that_no_node_has_are_told_once(
    tmp_path: Path, heard: pytest.LogCaptureFixture
) -> None:
    """A misspelled name bounded nothing, and nobody knew."""
    bounds = {"los": (0.0, 1.0), "loss": (0.0, 1.0), "accuracy": (0.0, 1.0), "parts": (0.0, 1.0)}
    strategy = OneStepRFA(metric_bounds=bounds, **with_nu())
    strategy.start(LocalGrid(nodes(tmp_path, parts=[5.0, 9.0])), model(), 2)
    told = [line for line in heard.messages if line.startswith("metric_bounds")]
    assert told == [
        "metric_bounds: 'los' is missing on all nodes, so nothing is bounded; nodes have loss, "
        "parts (train); accuracy, seen (evaluate)"
    ]


@pytest.mark.parametrize("wrong", [{"loss": (1, 0)}, {"loss": (0, float("inf"))}, {"loss": 3}, [1]])
def test_bounds_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValueError, match="metric_bounds"):
        RFA(metric_bounds=wrong)


def test_missing_nodes_are_told_every_few_seconds(
    tmp_path: Path, heard: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of its own: a busy machine sleeps longer than it is asked to."""
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr("rfa.flower.waiting.time", clock)
    grid = LocalGrid(dict(list(nodes(tmp_path).items())[:2]))
    with pytest.raises(
        TooFewNodesError, match="2 nodes after 12 s, 4 are needed for one secure sum"
    ):
        RFA(**with_nu(node_timeout=12.0)).start(grid, model(), 1)
    told = "2 nodes, 4 are needed for one secure sum: waiting for more, for another "
    lines = [line.removeprefix(told) for line in heard.messages if line.startswith(told)]
    assert lines == ["12 s", "7 s", "2 s"]
    assert set(slept) == {PAUSE}
    assert 12.0 <= now[0] < 12.0 + 2 * PAUSE


class InMemoryGrid(LocalGrid):
    """A grid of the name that the simulation engine's has."""


def test_a_simulation_with_too_few_nodes_fails_at_once(tmp_path: Path) -> None:
    grid = InMemoryGrid(dict(list(nodes(tmp_path).items())[:2]))
    began = time.monotonic()
    with pytest.raises(TooFewNodesError, match='--federation-config "num-supernodes=4"'):
        RFA(**with_nu(node_timeout=600.0)).start(grid, model(), 1)
    assert time.monotonic() - began < 60


def test_a_run_in_which_nothing_is_done_is_no_success(tmp_path: Path) -> None:
    def silence(node: int, request: Message, reply: Message) -> None:
        return None

    silent = LocalGrid(nodes(tmp_path), silence)
    with pytest.raises(NothingDoneError, match="none of 2 rounds gave a result: none of 8") as it:
        RFA(**with_nu()).start(silent, model(), 2, timeout=0.1)
    assert not w_of(it.value.result).any()


def test_a_checkpoint_that_is_at_its_end_says_so(
    tmp_path: Path, heard: pytest.LogCaptureFixture
) -> None:
    how = with_nu(checkpoint=tmp_path / "server.npz")
    OneStepRFA(**how).start(LocalGrid(nodes(tmp_path)), model(), 1)
    OneStepRFA(**how).start(LocalGrid(nodes(tmp_path)), model(), 1)
    assert "the checkpoint has 1 rounds, and 1 are asked for in all: none is left" in heard.text


def test_metrics_that_differ_between_nodes_are_named(
    tmp_path: Path, heard: pytest.LogCaptureFixture
) -> None:
    extra: list[dict[str, Any]] = [{"extra0": 1.0}, {"extra1": 1.0}]
    apps = {node: app(node, tmp_path, **extra[node % 2]) for node in NAMES}
    assert not w_of(attempt(RFA(**with_nu()), LocalGrid(apps), model(), 1)).any()
    assert "nodes 101, 103, 105, 107: the metrics extra1, loss" in heard.text
    assert "let all nodes return the same metrics" in heard.text


def test_an_app_that_only_evaluates_is_enough_to_evaluate(tmp_path: Path) -> None:
    apps: dict[int, ClientApp] = {}
    for node in NAMES:
        client = ClientApp(mods=[RobustMod(LAX, tmp_path)])

        @client.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            found = MetricRecord({"num-examples": 10, "accuracy": 0.5})
            return Message(RecordDict({"metrics": found}), reply_to=message)

        apps[node] = client
    strategy: SecureStrategy = SecureFedAvg(fraction_train=0.0, **options())
    result = strategy.start(LocalGrid(apps), model(), 1)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.5)
