"""The largest share of a step that a node may have: asked for by nodes, given by the strategy."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import Message

from rfa.flower import RFA, OneStepRFA, Policy, SecureFedAvg, SecureStrategy
from rfa.flower.errors import TooFewNodesError
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import SumRequest
from tests.flower.grid import LocalGrid
from tests.flower.toy import FIRST, NODES, TARGET, app, attempt, model, options, with_nu

NAMES = list(range(FIRST, FIRST + NODES))
SHARE = 0.2
"""Of eight nodes of about the same weight: they have 0.12 to 0.14 of a step each."""


@pytest.fixture(autouse=True)
def log() -> None:
    logging.getLogger("flwr").propagate = True


def grid_of(home: Path, policy: Policy | None = None, **heavy: Any) -> LocalGrid:
    """Nodes with a policy; the last one may have other metrics, such as many examples."""
    apps = {node: app(node, home, policy=policy) for node in NAMES}
    if heavy:
        apps[NAMES[-1]] = app(NAMES[-1], home, policy=policy, **heavy)
    return LocalGrid(apps)


def turns(grid: LocalGrid, node: int, task: str) -> list[int]:
    """The masked sums that a node was asked for in a task, by number."""
    asked = [decode(request) for request in requests(grid, node, task)]
    return [message.masked_sum for message in asked if isinstance(message, SumRequest)]


def requests(grid: LocalGrid, node: int, task: str) -> list[bytes]:
    records: list[Any] = [
        request.content.config_records["rfa"] for to, request, _ in grid.seen if to == node
    ]
    return [
        record["request"] for record in records if "request" in record and record["task"] == task
    ]


def refusals(grid: LocalGrid) -> dict[int, str]:
    return {node: str(reply.error.reason) for node, _, reply in grid.seen if reply.has_error()}


@pytest.mark.parametrize(
    ("strategy", "queries"),
    [
        (RFA(budget=3, max_share=SHARE, **with_nu()), 3),
        (OneStepRFA(max_share=SHARE, **with_nu()), 1),
        (SecureFedAvg(max_share=SHARE, **options()), 1),
        (SecureStrategy("centered-clipping:budget=2", max_share=SHARE, **options()), 2),
    ],
)
def test_a_node_that_asks_for_a_limit_takes_part(
    tmp_path: Path, strategy: SecureStrategy, queries: int
) -> None:
    """Two masked sums a query, also of the one of an evaluation."""
    grid = grid_of(tmp_path, Policy(max_share=SHARE, honest_per_query=0))
    result = strategy.start(grid, model(), num_rounds=1)
    assert not refusals(grid)
    assert list(result.train_metrics_clientapp) == [1]
    assert list(result.evaluate_metrics_clientapp) == [1]
    for node in NAMES:
        assert turns(grid, node, "train") == list(range(2 * queries))
        assert turns(grid, node, "evaluate") == [0, 1]


def test_the_model_is_that_without_a_limit(tmp_path: Path) -> None:
    models = [
        RFA(budget=3, max_share=share, **with_nu())
        .start(grid_of(tmp_path / str(share)), model(), 2)
        .arrays
        for share in (0.0, SHARE)
    ]
    first, second = (arrays["w"].numpy() for arrays in models)
    assert np.linalg.norm(first - second) < 1e-5
    assert np.linalg.norm(first - 2 * TARGET) < 0.5


def test_a_node_above_the_limit_stops_the_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has 200 examples, and the others about 115: a fifth of the mean, more than 0.18."""
    many: dict[str, Any] = {"num-examples": 200}
    grid = grid_of(tmp_path, **many)
    strategy = SecureFedAvg(max_share=0.18, fraction_evaluate=0.0, **options())
    result = attempt(strategy, grid, model(), num_rounds=1)
    assert not result.arrays["w"].numpy().any()
    assert refusals(grid) == {
        NAMES[-1]: "ShareLimitError: this device would weigh more than 0.18 in the sum"
    }
    (line,) = [text for text in caplog.messages if text.startswith("round 1 is skipped")]
    assert "and the model is kept" in line
    assert f"device {NAMES[-1]} said: ShareLimitError" in line
    strategy = SecureFedAvg(max_share=0.25, fraction_evaluate=0.0, **options())
    result = strategy.start(grid_of(tmp_path / "more", **many), model(), num_rounds=1)
    assert result.arrays["w"].numpy().any()


def test_a_node_that_asks_for_a_limit_refuses_a_strategy_without_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for share in (0.0, 0.5):
        grid = grid_of(tmp_path / str(share), Policy(max_share=SHARE, honest_per_query=0))
        result = attempt(RFA(budget=3, max_share=share, **with_nu()), grid, model(), num_rounds=1)
        assert not result.arrays["w"].numpy().any()
        reasons = refusals(grid)
        assert sorted(reasons) == NAMES
        assert all(f"give max_share={SHARE}, or less" in reason for reason in reasons.values())
    assert f"give max_share={SHARE}, or less" in "".join(
        text for text in caplog.messages if text.startswith("round 1 is skipped")
    )


def test_a_limit_that_so_few_nodes_cannot_keep_is_refused_before_they_train(
    tmp_path: Path,
) -> None:
    """Each of n nodes has 1/n of the sum in the mean: no share can be below."""
    grid = grid_of(tmp_path)
    for strategy, least in (
        (RFA(max_share=0.1, **with_nu()), "8 nodes after 0.1 s, 10 are needed"),
        (OneStepRFA(groups=2, max_share=SHARE, **with_nu()), "8 nodes .*, 10 are needed"),
        (SecureFedAvg(max_share=0.05, fraction_train=0.0, **options()), ", 20 are needed"),
    ):
        with pytest.raises(TooFewNodesError, match=f"{least}.*of n nodes in a sum one has 1/n"):
            strategy.start(grid, model(), num_rounds=1)
    assert not grid.seen


def test_a_limit_holds_in_each_part(tmp_path: Path) -> None:
    """Four nodes in each of two groups: a quarter is the least that can hold."""
    for share, moves in ((0.25, False), (0.3, True)):
        grid = grid_of(tmp_path / str(share), Policy(max_share=share))
        strategy = OneStepRFA(groups=2, max_share=share, fraction_evaluate=0.0, **with_nu())
        result = attempt(strategy, grid, model(), num_rounds=1)
        assert result.arrays["w"].numpy().any() == moves


def test_a_node_lost_between_the_two_sums_of_a_query_costs_the_query(tmp_path: Path) -> None:
    """The step before stands."""

    def spoil(node: int, request: Message, reply: Message) -> Message | None:
        record: Any = request.content.config_records["rfa"]
        asked = decode(record["request"]) if "request" in record else None
        late = isinstance(asked, SumRequest) and asked.masked_sum == 3
        return None if node == NAMES[0] and late else reply

    grid = grid_of(tmp_path, Policy(max_share=SHARE, honest_per_query=0))
    grid.spoil = spoil
    strategy = RFA(budget=3, max_share=SHARE, fraction_evaluate=0.0, **with_nu())
    result = strategy.start(grid, model(), num_rounds=1)
    once = OneStepRFA(fraction_evaluate=0.0, **with_nu())
    wanted = once.start(grid_of(tmp_path / "once"), model(), num_rounds=1)
    assert np.linalg.norm(result.arrays["w"].numpy() - wanted.arrays["w"].numpy()) < 1e-5


def test_an_evaluation_is_above_any_least_radius(tmp_path: Path) -> None:
    """A node's floor for nu is about updates, and must not cost its metrics."""
    grid = grid_of(tmp_path, Policy(min_nu=50.0))
    result = OneStepRFA(**options(nu=60.0)).start(grid, model(), num_rounds=1)
    assert not refusals(grid)
    assert list(result.evaluate_metrics_clientapp) == [1]
