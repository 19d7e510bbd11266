"""FedProx: all ways of training take the same steps, which a large mu keeps near the start."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rfa.lab.learners.learner import Learner, Plan
from rfa.lab.learners.linear import LinearLearner
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.learners.own_module import LinearModel, OwnModel
from tests.lab.simulation.lab import tiny_devices

torch: Any = pytest.importorskip("torch")

FEATURES, CLASSES, RATE, MU = 12, 4, 0.3, 0.9


def problem(count: int, classes: int = CLASSES) -> tuple[Any, Any, list[Any]]:
    rng = np.random.default_rng(count)
    x = rng.standard_normal((count, FEATURES)).astype(np.float32)
    batches = [np.arange(i, min(i + 4, count)) for i in range(0, count, 4)]
    return x, rng.integers(0, classes, count), batches * 3


def by_hand(start: Any, x: Any, y: Any, plan: Plan, classes: int, *, binary: bool) -> Any:
    """w <- w - rate (g + mu (w - w_0)) in float64, and the mean of the iterates of the tail."""
    first = start.astype(np.float64).reshape(-1, FEATURES)
    w, iterates = first.copy(), list[Any]()
    for rows in plan.batches:
        some = x[rows].astype(np.float64)
        scores = some @ w.T
        if binary:
            scores = np.hstack([np.zeros_like(scores), scores])
        odds = np.exp(scores)
        residuals = odds / odds.sum(axis=1, keepdims=True) - np.eye(classes)[y[rows]]
        gradient = residuals[:, -len(first) :].T @ some / len(rows)
        w = w - plan.rate * (gradient + plan.proximal * (w - first))
        iterates.append(w)
    later = iterates[len(iterates) // 2 :] if plan.tail else iterates[-1:]
    return (np.mean(later, axis=0) - first).ravel()


def linear_module(torch: Any) -> Any:
    return torch.nn.Linear(FEATURES, CLASSES, bias=False)


LEARNERS = {
    "by hand": LinearLearner(FEATURES, CLASSES),
    "torch": NetworkLearner(linear_module, CLASSES),
    "one's own module": OwnModel(lambda: linear_module(torch), CLASSES)("cpu"),
    "linear model": LinearModel(FEATURES, CLASSES)("cpu"),
}


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize("count", [9, 30], ids=["space of examples", "space of weights"])
@pytest.mark.parametrize("tail", [False, True])
def test_every_way_takes_the_steps_of_fedprox(learner: Learner, count: int, tail: bool) -> None:
    x, y, batches = problem(count)
    start = learner.initial(np.random.default_rng(2))
    before = start.copy()
    plan = Plan(batches, RATE, tail, MU)
    expected = by_hand(start, x, y, plan, CLASSES, binary=False)
    plain = by_hand(start, x, y, Plan(batches, RATE, tail), CLASSES, binary=False)
    assert np.linalg.norm(expected - plain) > 0.1 * np.linalg.norm(plain)
    assert np.allclose(learner.train(start, x, y, plan), expected, rtol=1e-4, atol=2e-6)
    assert np.array_equal(start, before)


@pytest.mark.parametrize("count", [9, 30])
def test_logistic_regression_takes_them_too(count: int) -> None:
    x, y, batches = problem(count, classes=2)
    learner = LinearLearner(FEATURES, 2, binary=True)
    start = learner.initial(np.random.default_rng(2))
    plan = Plan(batches, RATE, proximal=MU)
    expected = by_hand(start, x, y, plan, 2, binary=True)
    assert np.allclose(learner.train(start, x, y, plan), expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("count", [9, 30])
@pytest.mark.parametrize(
    "learner", [LEARNERS["by hand"], LEARNERS["torch"]], ids=["numpy", "torch"]
)
def test_without_mu_no_bit_changes(learner: Learner, count: int) -> None:
    x, y, batches = problem(count)
    start = learner.initial(np.random.default_rng(2))
    plain = learner.train(start, x, y, Plan(batches, RATE))
    assert np.array_equal(learner.train(start, x, y, Plan(batches, RATE, proximal=0.0)), plain)


def test_a_larger_mu_keeps_updates_nearer() -> None:
    norms: list[float] = []
    for mu in (0.0, 0.1, 1.0, 10.0, 90.0):
        devices = tiny_devices(proximal_mu=mu, local_epochs=100, learning_rate=0.01)
        norms.append(float(np.linalg.norm(devices.train(devices.initial(), 0, 5))))
    assert all(after < before for before, after in itertools.pairwise(norms))
    assert norms[-1] < norms[0] / 20


def test_a_personalized_device_is_pulled_to_where_each_loop_starts() -> None:
    devices = tiny_devices(personalize=True, aggregator="fedavg", proximal_mu=2.0)
    w, rng = devices.initial(), np.random.default_rng(0)
    u: Any = rng.standard_normal(devices.dim).astype(np.float32)
    update, after = devices.train_personal(w, u, 3, 5)
    x, y, _ = devices._training_data(w, 3, 5)  # pyright: ignore[reportPrivateUsage]
    old = u
    for batch in devices._plan(3, 5, "personal", len(y), keep=True).batches:  # pyright: ignore[reportPrivateUsage]
        step = devices.learner.train(w + u, x, y, Plan([batch], 0.1))
        u = u + step - 0.2 * (u - old)
    assert np.allclose(after, u, atol=1e-5)
    moved = start = w + u
    for batch in devices._plan(3, 5, "batches", len(y), keep=True).batches:  # pyright: ignore[reportPrivateUsage]
        step = devices.learner.train(moved, x, y, Plan([batch], 0.1))
        moved = moved + step - 0.2 * (moved - start)
    assert np.allclose(update, moved - start, atol=1e-5)
