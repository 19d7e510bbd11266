"""The fast paths give the iterates of the plain one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.lab.learners.learner import Plan
from rfa.lab.learners.linear import Grams, LinearLearner
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.learners.scaled import Scale, Scaled
from rfa.lab.learners.visits import Visits
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks import emnist, sent140
from rfa.lab.training.batches import draw_batches

pytest.importorskip("torch")


def relative(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def images(count: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (count, 784)).astype(np.float32) / 255
    return x, rng.integers(0, 62, count)


def plan_for(count: int, **values: Any) -> Plan:
    settings = Settings.of("emnist-linear", batch_size=50, local_epochs=5, **values)
    batches = draw_batches(count, settings.training, np.random.default_rng(1))
    return Plan(batches, rate=0.08, tail=settings.training.tail_average)


@pytest.mark.parametrize("count", [92, 160, 418, 800])
@pytest.mark.parametrize("tail", [False, True])
def test_softmax_regression_equals_plain_torch_over_a_round(count: int, tail: bool) -> None:
    x, y = images(count)
    learner = LinearLearner(784, 62)
    plain = NetworkLearner(emnist.linear_module, 62)
    start = learner.initial(np.random.default_rng(2))
    plan = plan_for(count, tail_average=tail)
    assert relative(learner.train(start, x, y, plan), plain.train(start, x, y, plan)) < 1e-5


@pytest.mark.parametrize("count", [40, 55, 479])
def test_logistic_regression_equals_plain_torch_over_a_round(count: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((count, 50)).astype(np.float32), rng.integers(0, 2, count)
    learner = LinearLearner(50, 2, binary=True)
    plain = NetworkLearner(sent140.logistic_module, 2)
    start = learner.initial(rng)
    settings = Settings.of("sent140-linear", batch_size=10, local_epochs=3)
    plan = Plan(draw_batches(count, settings.training, rng), rate=0.05)
    assert relative(learner.train(start, x, y, plan), plain.train(start, x, y, plan)) < 1e-5
    assert np.allclose(learner.scores(start, x), plain.scores(start, x), atol=1e-5)


def test_both_spaces_give_the_same_iterates() -> None:
    x, y = images(300)
    learner = LinearLearner(784, 62)
    start = learner.initial(np.random.default_rng(2)).reshape(62, 784)
    for tail in (False, True):
        plan = plan_for(300, tail_average=tail)
        scaled, visits = Scaled.of(x), Visits.of(plan.batches)
        by_examples: Any = learner._train_examples(start, scaled, y, plan, visits)  # pyright: ignore[reportPrivateUsage]
        by_weights: Any = learner._train_weights(start, scaled, y, plan)  # pyright: ignore[reportPrivateUsage]
        assert relative(by_examples, by_weights) < 1e-5


@pytest.mark.parametrize("count", [160, 800])
def test_examples_that_are_scaled_later_train_alike(count: int) -> None:
    rng = np.random.default_rng(0)
    kept, y = rng.integers(0, 256, (count, 784)).astype(np.uint8), rng.integers(0, 62, count)
    learner, scale, plan = LinearLearner(784, 62), Scale(1 / 255), plan_for(count)
    start = learner.initial(rng)
    now, later = scale(kept), scale.later(kept)
    assert relative(learner.scores(start, later), learner.scores(start, now)) < 1e-6
    found, wanted = learner.train(start, later, y, plan), learner.train(start, now, y, plan)
    assert relative(found, wanted) < 1e-6


def test_batches_are_slices_of_one_order_and_come_again() -> None:
    visits = Visits.cut(np.array([3, 1, 4, 0, 2]), size=2, steps=4)
    assert [batch.tolist() for batch in visits] == [[3, 1], [4, 0], [2], [3, 1]]
    assert visits[0] is visits[3]
    again = Visits.of(list(visits))
    assert (again.spans, list(again.turns)) == (visits.spans, list(visits.turns))
    assert again.order.tolist() == visits.order.tolist()
    assert again.is_disjoint
    few = Visits.cut(np.arange(5), size=2, steps=1)
    assert few.order.tolist() == [0, 1]  # what no step visits has no place
    assert not Visits.of([np.array([0, 1]), np.array([1, 2])]).is_disjoint


def test_tail_averaging_is_the_mean_of_the_later_half_of_the_iterates() -> None:
    x, y = images(120)
    learner = LinearLearner(784, 62)
    start = learner.initial(np.random.default_rng(2))
    batches = plan_for(120).batches
    for steps in (1, 2, 7):
        ends = [learner.train(start, x, y, Plan(batches[:k], 0.08)) for k in range(1, steps + 1)]
        expected = np.mean(ends[steps // 2 :], axis=0)
        found = learner.train(start, x, y, Plan(batches[:steps], 0.08, tail=True))
        assert relative(found, expected) < 1e-5


def test_a_kept_gram_matrix_changes_nothing() -> None:
    x, y = images(100)
    learner = LinearLearner(784, 62)
    start = learner.initial(np.random.default_rng(2))
    batches = plan_for(100).batches
    first = learner.train(start, x, y, Plan(batches, 0.08, key=7))
    again = learner.train(start, x, y, Plan(batches, 0.08, key=7))
    without = learner.train(start, x, y, Plan(batches, 0.08))
    assert np.array_equal(first, again)
    assert np.array_equal(first, without)


def test_gram_matrices_stay_within_their_bytes() -> None:
    grams = Grams(limit=3 * 4 * 4 * 4)
    x = np.ones((4, 2), np.float32)
    for key in range(10):
        grams.of(Scaled.of(x * key), key)
        grams.of(Scaled.of(x * 0), 0)
    assert grams.size <= grams.limit
    assert set(grams.kept) == {0, 8, 9}
    assert grams.of(Scaled.of(x), 9)[0, 0] == 162  # the one of 9 x, kept


def test_the_start_stays_as_it_is_and_no_step_changes_nothing() -> None:
    x, y = images(60)
    learner = LinearLearner(784, 62)
    start = learner.initial(np.random.default_rng(2))
    before = start.copy()
    learner.train(start, x, y, plan_for(60))
    assert np.array_equal(start, before)
    assert not learner.train(start, x, y, Plan([], 0.08)).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
def test_a_model_that_is_not_finite_raises_no_warning(value: float) -> None:
    x, y = images(60)
    learner = LinearLearner(784, 62)
    start = np.full(learner.dim, value, np.float32)
    learner.train(start, x, y, plan_for(60))
    learner.scores(start, x)


def test_the_models_have_the_papers_sizes() -> None:
    assert emnist.linear("cpu").dim == 48_608
    assert emnist.convnet("cpu").dim == 6_603_710
    assert sent140.logistic("cpu").dim == 50
    assert NetworkLearner(emnist.linear_module, 62).dim == 48_608


def test_the_convnet_learns_and_starts_glorot_uniform() -> None:
    x, y = images(10)
    learner = emnist.convnet("cpu")
    start = learner.initial(np.random.default_rng(0))
    kernel, bias = start[:800], start[800:832]
    assert not bias.any()
    assert 0.9 < np.abs(kernel).max() / np.sqrt(6 / (25 * 33)) <= 1
    change = learner.train(start, x, y, Plan([np.arange(10)] * 5, 0.05))
    own = np.arange(10), y
    assert (learner.scores(start + change, x)[own] > learner.scores(start, x)[own]).all()


def test_cuda_where_there_is_none_is_refused() -> None:
    torch: Any = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(ValueError, match="device='cuda' asks for a CUDA device"):
        emnist.linear("cuda")


def in_float64(start: Any, x: Any, y: Any, plan: Plan) -> Any:
    """Local SGD on the weights of softmax regression, in float64, without any shortcut."""
    w = np.array(start, np.float64).reshape(62, 784)
    for rows in plan.batches:
        scores = x[rows].astype(np.float64) @ w.T
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(rows)), y[rows]] -= 1
        w -= plan.rate / len(rows) * p.T @ x[rows]
    return w.ravel() - start


def test_batches_with_examples_in_common_give_the_same_as_plain_steps() -> None:
    x, y = images(40)
    batches = [np.arange(0, 30), np.arange(10, 40), np.array([3, 3, 5]), np.arange(0, 30)]
    plan = Plan(batches, 0.08)
    learner = LinearLearner(784, 62)
    start = learner.initial(np.random.default_rng(2))
    expected = in_float64(start, x, y, plan)
    assert relative(learner.train(start, x, y, plan), expected) < 1e-5


def test_examples_that_no_batch_has_change_nothing() -> None:
    x, y = images(90)
    plan = Plan([np.arange(5, 30), np.arange(60, 88)] * 3, 0.08)
    learner = LinearLearner(784, 62)
    start = learner.initial(np.random.default_rng(2))
    found = learner.train(start, x, y, plan)
    assert relative(found, in_float64(start, x, y, plan)) < 1e-5
    x[[0, 40, 89]] = 7
    assert np.array_equal(learner.train(start, x, y, plan), found)


@pytest.mark.parametrize("size", [1.0, 30.0, 300.0, 3000.0])
def test_scores_that_move_far_in_local_training_are_exact_too(size: float) -> None:
    """A first model with scores of this size, and steps that move them by as much."""
    x, y = images(60)
    learner = LinearLearner(784, 62)
    start = learner.initial(np.random.default_rng(2)) * np.float32(size)
    plan = Plan(plan_for(60).batches, rate=0.08 * size)
    found, expected = learner.train(start, x, y, plan), in_float64(start, x, y, plan)
    assert np.isfinite(found).all()
    assert relative(found, expected) < 1e-3
