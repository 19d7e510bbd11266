"""Runs with noise on Flower: what they cost nodes, and what a budget does to them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import Result

from rfa import aggregators
from rfa.aggregators import SumAggregator
from rfa.errors import InvalidValueError
from rfa.flower import RFA, OneStepRFA, RobustMod, SecureFedAvg, SecureStrategy, Terms
from rfa.flower.errors import NodesSpentError, RunFailedError
from rfa.flower.noise import Draw, RoundCost
from rfa.flower.privacy import READERS, SERVER
from rfa.privacy import Budget, NoisySum, epsilon_of, rho_of
from tests.flower.grid import LocalGrid
from tests.flower.noisy import (
    HONEST,
    NAMES,
    RHO,
    Z,
    budget_of,
    kind_of,
    opening_in,
    openings,
    spent_by,
)
from tests.flower.toy import DIM, FIRST, NODES, TARGET, app, model, nodes, options, with_nu


def along(result: Result) -> float:
    """How well the model's direction is that of the target."""
    w = result.arrays["w"].numpy()
    return float(w @ TARGET / np.linalg.norm(w) / np.linalg.norm(TARGET))


def test_two_lines_and_epsilon(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path))
    result = SecureFedAvg(clip_norm=10.0, epsilon=20.0, **options()).start(grid, model(), 3)
    assert along(result) > 0.5
    told = [result.train_metrics_clientapp[t] for t in (1, 2, 3)]
    epsilons = [float(str(record[SERVER])) for record in told]
    assert epsilons[0] < epsilons[1] < epsilons[2] <= 20.0
    assert epsilons[2] == pytest.approx(20.0, rel=1e-3)
    assert all(set(record) <= {SERVER, READERS} for record in told)
    opened = openings(grid)
    assert len(opened) == 3 * NODES
    assert {(opening.equal_weights, opening.metrics) for opening in opened} == {(1, 0)}
    assert len({opening.noise for opening in opened}) == 1
    assert {message.metadata.message_type for _, message, _ in grid.seen} == {"train"}
    assert not result.evaluate_metrics_clientapp


def test_no_metric_of_a_node_is_brought(tmp_path: Path) -> None:
    """Not even their names leave the node: no sum with noise could hold them."""
    grid = LocalGrid(nodes(tmp_path, secret=1.5))
    OneStepRFA(noise_multiplier=Z, **with_nu()).start(grid, model(), 1)
    for _, _, reply in grid.seen:
        record: Any = reply.content.config_records["rfa"]
        assert not record.get("names")


@pytest.mark.parametrize(
    ("strategy", "sums", "parts"),
    [
        (OneStepRFA(noise_multiplier=Z, **with_nu()), 1, 1),
        (RFA(budget=3, noise_multiplier=Z, **with_nu()), 3, 1),
        (RFA(schedule="sub-cohorts", budget=2, noise_multiplier=Z, **with_nu()), 1, 2),
        (OneStepRFA(groups=2, noise_multiplier=Z, **with_nu()), 1, 2),
    ],
)
def test_the_server_charges_what_nodes_charge_themselves(
    tmp_path: Path, strategy: SecureStrategy, sums: int, parts: int
) -> None:
    strategy.start(LocalGrid(nodes(tmp_path)), model(), num_rounds=2)
    cohort = NODES // parts
    honest = strategy.options.terms.honest(cohort)
    rho = 2 * sums * NoisySum(cohort, honest, Z, DIM, near=False).rho
    for node in NAMES:
        assert spent_by(tmp_path, node) == pytest.approx(rho, rel=1e-12)
        assert strategy.privacy.spending.charges.of(node) == pytest.approx(rho, rel=1e-12)


def test_a_mean_with_noise_learns_its_clip_norm_unless_it_is_given() -> None:
    """Noise is as large as what updates are clipped to: the usual length would drown them."""
    assert SecureFedAvg(epsilon=8.0).aggregator == aggregators.Mean(clip_norm=None)
    assert SecureFedAvg(noise_multiplier=2.0).aggregator == aggregators.Mean(clip_norm=None)
    assert SecureFedAvg(epsilon=8.0, clip_norm=100.0).aggregator == aggregators.Mean(clip_norm=100)
    assert SecureFedAvg().aggregator == aggregators.Mean(clip_norm=100.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SecureStrategy("fedavg", epsilon=8.0),
        lambda: SecureStrategy("rfa:start=mean,budget=2", noise_multiplier=1.0),
        lambda: RFA(start="mean", budget=2, epsilon=8.0),
    ],
)
def test_a_clip_norm_that_nobody_gave_is_refused_with_noise(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidValueError, match=r"noise is as large .* give clip_norm"):
        make()


def test_a_mean_is_charged_for_what_it_sends(tmp_path: Path) -> None:
    strategy = SecureFedAvg(clip_norm=10.0, noise_multiplier=Z, **options())
    strategy.start(LocalGrid(nodes(tmp_path)), model(), num_rounds=1)
    rho = NoisySum(NODES, HONEST, Z, DIM, mass=False, near=False).rho
    assert spent_by(tmp_path, NAMES[0]) == pytest.approx(rho, rel=1e-12)
    assert strategy.privacy.spending.charges.of(NAMES[0]) == pytest.approx(rho, rel=1e-12)


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_the_noise_that_epsilon_takes_lets_all_rounds_be_played(
    tmp_path: Path, rounds: int
) -> None:
    """Also where nodes have the same budget of their own, to the last digit."""
    policy = dataclasses.replace(RobustMod().policy, epsilon=3.0, honest_per_query=0)
    apps = {node: app(node, tmp_path / str(node), policy=policy) for node in NAMES}
    strategy = OneStepRFA(epsilon=3.0, **with_nu())
    result = strategy.start(LocalGrid(apps), model(), num_rounds=rounds)
    assert sorted(result.train_metrics_clientapp) == list(range(1, rounds + 1))
    assert 2.99 < float(str(result.train_metrics_clientapp[rounds][SERVER])) <= 3.0
    assert result.arrays["w"].numpy().any()


@pytest.mark.parametrize(("lost", "played"), [(1, 4), (3, 3)])
def test_fewer_nodes_than_there_were_do_not_overspend(
    tmp_path: Path, lost: int, played: int
) -> None:
    """Sums over fewer nodes cost more. The noise is found for as many as the terms let drop out."""

    def lose(node: int, message: Message) -> bool:
        return node - FIRST < lost and opening_in(message) is not None

    strategy = OneStepRFA(epsilon=3.0, **with_nu())
    grid = LocalGrid(nodes(tmp_path), lose=lose)
    result = strategy.start(grid, model(), num_rounds=4, timeout=0.2)
    assert strategy.privacy.spending.charges.largest <= rho_of(3.0, 1e-5)
    assert sum(each.count for each in strategy.privacy.spending.rounds) == played
    assert result.arrays["w"].numpy().any()


@pytest.mark.parametrize("there", [10, 1000])
@pytest.mark.parametrize("dim", [100, 100_000])
@pytest.mark.parametrize("aggregator", [aggregators.OneStepRFA(), aggregators.Mean()])
def test_the_noise_is_hardly_more_than_as_many_nodes_take(
    there: int, dim: int, aggregator: SumAggregator[Any]
) -> None:
    """What is found for drop-outs, too, spends nearly all of a budget where nobody drops out."""
    budget, terms = Budget(8.0), Terms()
    cost = RoundCost(aggregator, terms, dim, Draw(1.0, 4, 4))
    z = cost.multiplier(budget, 0.0, 100, there)
    spent = 100 * cost.rho(z, there)
    assert 0.9 * budget.rho < spent <= budget.rho
    fewer = there - math.floor(terms.max_dropout_fraction * there)
    for count in range(fewer, 2 * there, max(1, there // 50)):
        assert 100 * cost.rho(z, count) <= budget.rho


@pytest.mark.parametrize("rounds", [1.001, 2.999, 3.001])
def test_the_budget_stops_the_run_and_keeps_the_model(
    tmp_path: Path, rounds: float, said: pytest.LogCaptureFixture
) -> None:
    models: list[Any] = []

    def keep(t: int, arrays: ArrayRecord) -> None:
        models.append(arrays["w"].numpy())

    strategy = OneStepRFA(epsilon=budget_of(rounds), noise_multiplier=Z, **with_nu())
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 9, evaluate_fn=keep)
    played = int(rounds)
    assert sorted(result.train_metrics_clientapp) == list(range(1, played + 1))
    assert len(models) == played + 1
    assert np.array_equal(result.arrays["w"].numpy(), models[-1])
    assert f"the run ends before round {played + 1}, and the model is kept" in said.text
    assert "8 of 8 nodes have no privacy budget left" in said.text


def test_a_run_whose_budget_bears_no_round_at_all_is_an_error(tmp_path: Path) -> None:
    grid = LocalGrid(nodes(tmp_path))
    strategy = OneStepRFA(epsilon=budget_of(0.9), noise_multiplier=Z, **with_nu())
    with pytest.raises(NodesSpentError, match=r"no privacy budget left.*larger epsilon"):
        strategy.start(grid, model(), 3)
    assert not grid.seen


def test_nodes_that_were_in_fewer_rounds_go_on(tmp_path: Path) -> None:
    """Who has spent its budget is left out, and the run ends when too few are left."""
    how = with_nu(fraction_train=0.5, min_train_nodes=4)
    strategy = OneStepRFA(epsilon=budget_of_four(1.5), noise_multiplier=Z, **how)
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 9)
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    charges = strategy.privacy.spending.charges
    assert [charges.of(node) for node in NAMES] == [pytest.approx(four())] * NODES


def four() -> float:
    return NoisySum(4, 3, Z, DIM, near=False).rho


def budget_of_four(rounds: float) -> float:
    """The epsilon of so many rounds of four nodes."""
    return epsilon_of(rounds * four(), 1e-5)


@pytest.mark.parametrize("stage", ["FirstSum", "Unmask"])
def test_a_round_that_fails_is_charged_for_what_was_asked(tmp_path: Path, stage: str) -> None:
    """Masked inputs left, so that the server could know their sum, though it says it has none."""

    def lose(node: int, request: Message, reply: Message) -> Message | None:
        return None if kind_of(request) == stage else reply

    strategy = OneStepRFA(noise_multiplier=Z, **with_nu())
    with pytest.raises(RunFailedError):
        strategy.start(LocalGrid(nodes(tmp_path), lose), model(), num_rounds=1)
    for node in NAMES:
        assert strategy.privacy.spending.charges.of(node) == pytest.approx(RHO)
        assert spent_by(tmp_path, node) == pytest.approx(RHO)
    assert not strategy.privacy.spending.rounds


@pytest.mark.parametrize("sums", [1, 3])
def test_a_node_that_is_lost_in_the_first_sum_costs_nobody_a_sum_more(
    tmp_path: Path, sums: int
) -> None:
    """All mask that sum twice, and one of the two is opened. Who is lost has masked it once."""

    def lose(node: int, request: Message, reply: Message) -> Message | None:
        return None if node == NAMES[3] and kind_of(request) == "FirstSum" else reply

    strategy = RFA(budget=sums, noise_multiplier=Z, **with_nu())
    grid = LocalGrid(nodes(tmp_path), lose)
    strategy.start(grid, model(), num_rounds=1)
    assert "Roster" in {kind_of(request) for _, request, _ in grid.seen}
    for node in NAMES:
        own, charged = spent_by(tmp_path, node), strategy.privacy.spending.charges.of(node)
        assert own == pytest.approx(RHO if node == NAMES[3] else sums * RHO)
        assert charged == pytest.approx(sums * RHO)
    (played,) = strategy.privacy.spending.rounds
    assert played.rho == pytest.approx(sums * RHO)


def test_a_round_that_asks_for_no_sum_is_not_charged(tmp_path: Path) -> None:
    def lose(node: int, message: Message) -> bool:
        return kind_of(message) == "Roster"

    strategy = OneStepRFA(noise_multiplier=Z, **with_nu())
    strategy.fast = False
    with pytest.raises(RunFailedError):
        strategy.start(LocalGrid(nodes(tmp_path), lose=lose), model(), num_rounds=1)
    assert strategy.privacy.spending.charges.largest == 0
    assert spent_by(tmp_path, NAMES[0]) == 0


def test_a_round_that_too_few_join_is_not_charged(tmp_path: Path) -> None:
    """They trained, and sent keys that are none."""

    def spoil(node: int, request: Message, reply: Message) -> Message:
        if node > NAMES[2] and opening_in(request):
            reply.content.config_records["rfa"]["reply"] = bytes(50)
        return reply

    strategy = OneStepRFA(noise_multiplier=Z, **with_nu())
    with pytest.raises(RunFailedError):
        strategy.start(LocalGrid(nodes(tmp_path), spoil), model(), num_rounds=1)
    assert strategy.privacy.spending.charges.largest == 0
    assert {spent_by(tmp_path, node) for node in NAMES} == {0}


def test_a_budget_is_that_of_the_accounting(tmp_path: Path) -> None:
    strategy = OneStepRFA(epsilon=5.0, delta=1e-7, **with_nu())
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 2)
    charges = strategy.privacy.spending.charges
    assert charges.largest <= Budget(5.0, 1e-7).rho
    told = float(str(result.train_metrics_clientapp[2][SERVER]))
    assert told == epsilon_of(charges.largest, 1e-7)


def test_a_strategy_that_is_started_again_has_spent_what_it_has_spent(tmp_path: Path) -> None:
    """Nodes do not forget what the runs before told of them."""
    strategy = OneStepRFA(epsilon=budget_of(2.5), noise_multiplier=Z, **with_nu())
    for run in (7, 8):
        strategy.start(LocalGrid(nodes(tmp_path / str(run)), run=run), model(), 1)
    assert strategy.privacy.spending.charges.largest == pytest.approx(2 * RHO)
    with pytest.raises(NodesSpentError):
        strategy.start(LocalGrid(nodes(tmp_path / "9"), run=9), model(), 1)
