"""Algorithms 1, 3 and 4, minibatch SGD, the round's rules, and evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.aggregators.clear import (
    Bulyan,
    ClearAggregator,
    MeaMed,
    NearestNeighborMixing,
    TrimmedMean,
)
from rfa.aggregators.registry import ENTRIES
from rfa.aggregators.weiszfeld import one_step, weiszfeld
from rfa.lab.learners.learner import Plan
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import aggregate
from rfa.lab.simulation.outcome import Outcome
from rfa.lab.simulation.rounds import State, evaluate, summarize
from rfa.lab.training.devices import Tally
from rfa.numerics.plain_oracle import PlainOracle
from rfa.oracle import RecordingOracle
from tests.lab.simulation.lab import play, tiny_devices


def cloud(m: int = 12, dim: int = 300, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, dim)).astype(np.float32), rng.uniform(1, 9, m)


def settings(**values: Any) -> Settings:
    steps = 1 if values.get("aggregator") == "sgd" else 0
    return Settings.where_taken("emnist-linear", local_steps=steps, **values)


def outcome_of(updates: Any, weights: Any, chosen: Settings) -> Outcome:
    """What a round gives to the server: the first one, with nothing learned before."""
    trusted = np.ones(updates.shape[1], np.float32)
    outcome, _ = aggregate(updates, weights, chosen, trusted=trusted)
    return outcome


def test_rfa_is_algorithm_2_from_the_mean_which_counts_as_a_call() -> None:
    updates, weights = cloud()
    how = settings(aggregator="rfa", start="mean", nu=1e-6, budget=4, early_stop=0)
    found = outcome_of(updates, weights, how)
    ask = RecordingOracle(PlainOracle(updates, weights))
    mean = weights @ updates / weights.sum()
    expected = weiszfeld(ask, mean, nu=1e-6, steps=3)
    assert np.allclose(found.point, expected, atol=1e-5)
    assert found.calls == 1 + ask.calls == 4


def test_rfa_from_the_current_model() -> None:
    updates, weights = cloud()
    found = outcome_of(updates, weights, settings(aggregator="rfa", nu=1e-6, early_stop=0))
    ask = RecordingOracle(PlainOracle(updates, weights))
    expected = weiszfeld(ask, np.zeros(300), nu=1e-6, steps=3)
    assert np.allclose(found.point, expected, atol=1e-5)
    assert found.calls == ask.calls == 3


def test_one_step_rfa_is_algorithm_3() -> None:
    updates, weights = cloud()
    found = outcome_of(updates, weights, settings(aggregator="rfa-one-step", nu=1e-6))
    expected = one_step(PlainOracle(updates, weights), 300, nu=1e-6)
    assert np.allclose(found.point, expected, atol=1e-6)
    assert found.calls == 1


def test_an_early_stop_saves_calls() -> None:
    updates, weights = cloud()
    found = outcome_of(updates, weights, settings(aggregator="rfa", budget=500, early_stop=1e-4))
    assert found.calls < 100


@pytest.mark.parametrize("start", ["current", "mean"])
@pytest.mark.parametrize("early_stop", [1e-1, 1e-2, 1e-4, 1e-8])
def test_a_stop_without_oracles_counts_the_calls_of_one_with_them(
    start: str, early_stop: float
) -> None:
    """The sum that shows that a step gained too little is a call, too."""
    updates, weights = cloud()
    how = settings(aggregator="rfa", nu=0.5, budget=60, start=start, early_stop=early_stop)
    found = outcome_of(updates, weights, how)
    asking: Any = how.aggregation
    expected, _ = asking([PlainOracle(updates, weights / weights.max())], 300)
    assert np.allclose(found.point, expected.point, atol=1e-5)
    assert found.calls == expected.calls < 60


@pytest.mark.parametrize("name", ENTRIES)
def test_every_aggregator_leaves_out_what_is_not_finite(name: str) -> None:
    updates, weights = cloud()
    chosen = settings(aggregator=name, rho=0.25, corruption="nan")
    keep = np.arange(12) % 3 != 1
    expected = outcome_of(updates[keep], weights[keep], chosen)
    for value in (np.nan, np.inf, -np.inf):
        bad = updates.copy()
        bad[~keep, 5] = value
        found = outcome_of(bad, weights, chosen)
        assert found.dropped == (1, 4, 7, 10)
        assert np.array_equal(found.point, expected.point)
        if found.weights is not None:
            assert not found.weights[~keep].any()


@pytest.mark.parametrize("name", ENTRIES)
def test_huge_finite_updates_are_not_taken_for_broken_ones(name: str) -> None:
    updates, weights = cloud()
    updates[3] = 3e38
    assert outcome_of(updates, weights, settings(aggregator=name)).dropped == ()


def test_defenses_expect_the_corrupted_share_as_far_as_they_can() -> None:
    updates, weights = cloud()
    expected: dict[str, ClearAggregator] = {
        "meamed": MeaMed(5),
        "bulyan": Bulyan(2),
        "nnm": NearestNeighborMixing(5, TrimmedMean(5 / 12)),
    }
    for name, aggregator in expected.items():
        found = outcome_of(updates, weights, settings(aggregator=name, assumed_corrupted=0.4))
        assert np.array_equal(found.point, aggregator(updates, weights).point)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_cohort_of_one_and_of_two(name: str) -> None:
    for m in (1, 2):
        updates, weights = cloud(m)
        found = outcome_of(updates, weights, settings(aggregator=name, rho=0.4, corruption="nan"))
        assert np.isfinite(found.point).all()


def test_a_round_of_fedavg_by_hand() -> None:
    devices = tiny_devices(aggregator="fedavg", local_epochs=2)
    start = devices.initial()
    state, facts, _ = play(devices, 1)
    chosen = facts[0].devices
    assert len(set(chosen)) == 8
    updates = np.stack([devices.train(start, 0, device) for device in chosen])
    weights = np.array([devices.population.train[device] for device in chosen], float)
    expected = start + weights @ updates / weights.sum()
    assert np.allclose(state.model, expected, atol=1e-6)
    assert (state.round, state.calls) == (1, 1)


def test_minibatch_sgd_takes_one_step_on_a_tenth() -> None:
    devices = tiny_devices(aggregator="sgd", batch_fraction=0.1)
    plan: Plan = devices._plan(0, 2, "batches", 40, keep=True)  # pyright: ignore[reportPrivateUsage]
    assert [len(batch) for batch in plan.batches] == [4]


def test_the_schedule_of_the_learning_rate() -> None:
    chosen = settings(learning_rate=0.64, lr_decay=0.5, lr_decay_every=50)
    rates = [chosen.training.learning_rate_in(t) for t in (0, 49, 50, 149, 150)]
    assert rates == [0.64, 0.64, 0.32, 0.16, 0.08]


def test_local_steps_go_on_through_the_same_batches() -> None:
    devices = tiny_devices(local_steps=7, batch_size=8)
    plan: Plan = devices._plan(0, 2, "batches", 20, keep=True)  # pyright: ignore[reportPrivateUsage]
    assert [len(batch) for batch in plan.batches] == [8, 8, 4, 8, 8, 4, 8]
    assert plan.batches[0] is plan.batches[3]
    assert sorted(np.concatenate(plan.batches[:3]).tolist()) == list(range(20))


def test_personalization_is_algorithm_4() -> None:
    devices = tiny_devices(personalize=True, aggregator="fedavg", local_epochs=1)
    rng = np.random.default_rng(0)
    w = devices.initial()
    u: Any = rng.standard_normal(devices.dim).astype(np.float32) / 10
    update, after = devices.train_personal(w, u, 3, 5)
    x, y, _ = devices._training_data(w, 3, 5)  # pyright: ignore[reportPrivateUsage]
    one = devices._plan(3, 5, "personal", len(y), keep=True)  # pyright: ignore[reportPrivateUsage]
    two = devices._plan(3, 5, "batches", len(y), keep=True)  # pyright: ignore[reportPrivateUsage]
    assert any(not np.array_equal(a, b) for a, b in zip(one.batches, two.batches, strict=True))
    for batch in one.batches:  # u_{k+1} = u_k - gamma grad f(w + u_k)
        u = u + devices.learner.train(w + u, x, y, Plan([batch], one.rate))
    assert np.allclose(after, u, atol=1e-5)
    moved: Any = w
    for batch in two.batches:  # w_{k+1} = w_k - gamma grad f(w_k + u_tau)
        moved = moved + devices.learner.train(moved + u, x, y, Plan([batch], two.rate))
    assert np.allclose(update, moved - w, atol=1e-5)


def test_personalization_serves_devices_better() -> None:
    shared = tiny_devices(aggregator="fedavg", devices_per_round=24, local_epochs=5)
    state, _, engine = play(shared, 10)
    own = tiny_devices(aggregator="fedavg", devices_per_round=24, local_epochs=5, personalize=True)
    own_state, _, own_engine = play(own, 10)
    assert evaluate(own_state, own_engine).train_loss < 0.9 * evaluate(state, engine).train_loss


def test_a_device_that_sends_nan_hurts_nobody() -> None:
    for name in ("fedavg", "rfa", "rfa-one-step", "multi-krum"):
        devices = tiny_devices(aggregator=name, corruption="nan", rho=0.4)
        state, facts, engine = play(devices, 5)
        assert all(set(fact.dropped) == set(fact.corrupted) for fact in facts)
        assert state.dropped == sum(len(fact.dropped) for fact in facts) > 0
        assert evaluate(state, engine).test_accuracy > 0.5


def test_a_round_of_nothing_but_nan_keeps_the_model() -> None:
    devices = tiny_devices(corruption="nan", rho=0.9)
    devices.is_corrupted[:] = True
    state, facts, _ = play(devices, 3)
    assert np.array_equal(state.model, devices.initial())
    assert (state.round, state.rejected, state.dropped) == (3, 3, 24)
    assert all(fact.rejected and fact.outcome is None for fact in facts)


def test_an_aggregate_that_is_too_large_is_rejected_unless_told_otherwise() -> None:
    devices = tiny_devices(max_norm=1e-3)
    state, facts, _ = play(devices, 2)
    assert np.array_equal(state.model, devices.initial())
    assert state.rejected == 2
    assert facts[0].norm > 1e-3
    state, _, _ = play(tiny_devices(max_norm=0), 2)
    assert state.rejected == 0


def test_data_corruption_poisons_training_and_leaves_evaluation_clean() -> None:
    clean, poisoned = tiny_devices(), tiny_devices(corruption="data", rho=0.3)
    w = clean.initial()
    for device in range(clean.count):
        same = np.array_equal(clean.train(w, 0, device), poisoned.train(w, 0, device))
        assert same is not bool(poisoned.is_corrupted[device])
        assert clean.evaluate(w, device) == poisoned.evaluate(w, device)


def test_adaptive_poison_depends_on_the_model() -> None:
    devices = tiny_devices(corruption="adaptive", rho=0.3)
    bad = int(np.flatnonzero(devices.is_corrupted)[0])
    rng = np.random.default_rng(0)
    labels: list[Any] = []
    for _ in range(2):
        w = rng.standard_normal(devices.dim).astype(np.float32)
        x, y, keep = devices._training_data(w, 0, bad)  # pyright: ignore[reportPrivateUsage]
        assert not keep
        assert np.array_equal(y, devices.learner.scores(w, x).argmin(axis=1))
        labels.append(y)
    assert not np.array_equal(*labels)


def test_a_static_poison_cannot_depend_on_round_or_model() -> None:
    devices = tiny_devices(corruption="tests.tiny:by_round", rho=0.3)
    bad = int(np.flatnonzero(devices.is_corrupted)[0])
    w = np.ones(devices.dim, np.float32)
    first, later = (devices._training_data(model, t, bad) for model, t in ((w, 1), (2 * w, 9)))  # pyright: ignore[reportPrivateUsage]
    assert np.array_equal(first[0], later[0])
    assert first[2]


def test_rfa_stands_where_fedavg_breaks() -> None:
    accuracy: dict[str, float] = {}
    for name in ("fedavg", "rfa", "rfa-one-step"):
        devices = tiny_devices(
            aggregator=name, corruption="omniscient", rho=0.2, devices_per_round=24
        )
        state, _, engine = play(devices, 15)
        accuracy[name] = evaluate(state, engine).test_accuracy
    assert accuracy["fedavg"] < 0.34
    assert min(accuracy["rfa"], accuracy["rfa-one-step"]) > 0.6


def test_evaluation_counts_examples_and_keeps_devices() -> None:
    devices = tiny_devices()
    state, _, engine = play(devices, 4)
    found = summarize(state, engine.evaluate(state), devices.is_honest)
    x, y, right = devices.population.x, devices.population.y, 0
    losses: list[float] = []
    for i in range(devices.count):
        a, b = int(devices.population.offsets[i]), int(devices.population.offsets[i + 1])
        mid = a + int(devices.population.train[i])
        scores = np.asarray(x[a:b]) @ state.model.reshape(3, -1).T
        right += int((scores[mid - a :].argmax(axis=1) == y[mid:b]).sum())
        odds = np.exp(scores[: mid - a].astype(float))
        losses += list(-np.log(odds[np.arange(mid - a), y[a:mid]] / odds.sum(axis=1)))
    tests = len(y) - int(devices.population.train.sum())
    assert found.test_accuracy == pytest.approx(right / tests)
    assert found.train_loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert found.worst_tenth <= found.median_device
    assert found.worst_tenth == pytest.approx(np.sort(found.device_accuracy)[:2].mean())


def test_honest_accuracy_leaves_out_the_examples_of_corrupted_devices() -> None:
    tallies = [Tally(1.0, 4, correct, 1.0, tests) for correct, tests in ((8, 10), (1, 2), (0, 20))]
    found = summarize(State(0, np.zeros(1, np.float32)), tallies, np.array([True, True, False]))
    assert found.test_accuracy == 9 / 32
    assert found.honest_accuracy == 9 / 12
    assert (found.median_device, found.honest_median_device) == (0.5, pytest.approx(0.65))
    assert (found.worst_tenth, found.honest_worst_tenth) == (0.0, 0.5)
    nobody = summarize(State(0, np.zeros(1, np.float32)), tallies, np.zeros(3, np.bool_))
    for name in ("honest_accuracy", "honest_median_device", "honest_worst_tenth"):
        assert np.isnan(getattr(nobody, name))


def test_honest_devices_are_those_that_are_not_corrupted_for_good() -> None:
    fixed = tiny_devices(corruption="omniscient", rho=0.2)
    assert 0 < fixed.is_honest.sum() < fixed.count
    assert (fixed.is_honest == ~fixed.corrupted_in(3)).all()
    anew = tiny_devices(corruption="omniscient", rho=0.2, attackers="random")
    assert anew.is_honest.all()
    state, _, engine = play(anew, 2)
    found = evaluate(state, engine)
    assert found.honest_accuracy == found.test_accuracy
    assert tiny_devices().is_honest.all()


def test_evaluation_on_some_examples() -> None:
    devices = tiny_devices(eval_examples=2)
    tally = devices.evaluate(devices.initial(), 0)
    whole = tiny_devices().evaluate(devices.initial(), 0)
    assert (tally.train_count, tally.test_count) == (whole.train_count, whole.test_count)
    assert tally.correct / tally.test_count in (0, 0.5, 1)
    start, train, _ = devices._rows(0)  # pyright: ignore[reportPrivateUsage]
    scores = devices.learner.scores(devices.initial(), devices.population.x[: start + train + 2])
    for first, loss, count in (
        (start, tally.train_loss, tally.train_count),
        (train, tally.test_loss, tally.test_count),
    ):
        odds = np.exp(scores[first : first + 2].astype(float))
        own = odds[np.arange(2), np.asarray(devices.population.y[first : first + 2])]
        expected = -np.log(own / odds.sum(axis=1)).mean()
        assert loss == pytest.approx(count * expected, rel=1e-5)


def test_held_out_training_data_is_never_trained_on_nor_is_the_test_set_touched() -> None:
    devices, tuning = tiny_devices(), tiny_devices(holdout=0.2)
    for i in range(devices.count):
        start, train, stop = tuning._rows(i)  # pyright: ignore[reportPrivateUsage]
        _, whole, _ = devices._rows(i)  # pyright: ignore[reportPrivateUsage]
        assert start < train < stop == whole
    assert tuning.weights.sum() == pytest.approx(0.8 * devices.weights.sum(), rel=0.05)


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others() -> None:
    once, again = (play(tiny_devices(corruption="gaussian", rho=0.2), 3)[0] for _ in range(2))
    other = play(tiny_devices(corruption="gaussian", rho=0.2, seed=2), 3)[0]
    assert np.array_equal(once.model, again.model)
    assert not np.array_equal(once.model, other.model)


def test_an_iid_split_has_the_same_sizes_and_other_examples() -> None:
    own, dealt = tiny_devices(), tiny_devices(partition="iid")
    assert np.array_equal(own.weights, dealt.weights)
    assert not np.array_equal(own.population.x, dealt.population.x)
    assert np.allclose(np.sum(own.population.x), np.sum(dealt.population.x), atol=0.1)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"devices": 25}, "devices=25: the data has only 24"),
        ({"devices_per_round": 25}, "devices_per_round=25 of 24 devices"),
        ({"devices": 6}, "devices_per_round=8 of 6 devices"),
    ],
)
def test_more_devices_than_there_are(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tiny_devices(**values)
