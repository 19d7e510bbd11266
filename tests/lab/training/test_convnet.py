"""The ConvNet by hand takes the steps of torch's module in double precision."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from rfa.lab.learners.convnet import BLOCK, ConvNetLearner, Shape
from rfa.lab.learners.deferred import WAITING, DeferredMatrix
from rfa.lab.learners.learner import Plan
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.tasks import emnist

torch: Any = pytest.importorskip("torch")

SHAPE = Shape(side=12, kernels=(3, 4), hidden=11, classes=5)


def small_module(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 12, 12)),
        nn.Conv2d(1, 3, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 3 * 3, 11),
        nn.ReLU(),
        nn.Linear(11, 5),
    )


def small() -> ConvNetLearner:
    return ConvNetLearner(SHAPE, small_module)


def problem(count: int, side: int = 12, classes: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(count)
    x = rng.random((count, side * side), np.float32)
    return x, rng.integers(0, classes, count)


def some_model(learner: Any, biases: float = 0.1) -> Any:
    """A first model; with biases, the layers' zeros are no exact ones."""
    rng = np.random.default_rng(3)
    w = learner.initial(rng)
    w[w == 0] = rng.uniform(-biases, biases, np.count_nonzero(w == 0))
    return w


def in_double(make: Any, start: Any, x: Any, y: Any, plan: Plan) -> Any:
    """What SGD changes by torch's own gradients in double precision."""
    module = make(torch).double()
    parameters = list(module.parameters())
    first = torch.from_numpy(start.astype(np.float64))
    torch.nn.utils.vector_to_parameters(first.clone(), parameters)
    w, iterates = first.clone(), list[Any]()
    for rows in plan.batches:
        scores = module(torch.from_numpy(x[rows].astype(np.float64)))
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y[rows]))
        parts = torch.autograd.grad(loss, parameters)
        gradient = torch.cat([part.ravel() for part in parts])
        w = w - plan.rate * (gradient + plan.proximal * (w - first))
        torch.nn.utils.vector_to_parameters(w.clone(), parameters)
        iterates.append(w)
    later = iterates[len(iterates) // 2 :] if plan.tail else iterates[-1:]
    return (torch.stack(later).mean(0) - first).numpy()


def check_steps(learner: Any, make: Any, start: Any, data: tuple[Any, Any], plan: Plan) -> None:
    """Each parameter by itself: the hidden layer's matrix would hide what happens to a bias."""
    exact: Any = in_double(make, start, *data, plan)
    ours: Any = learner.train(start, *data, plan)
    assert ours.dtype == np.float32
    sizes: list[int] = [math.prod(shape) for shape in learner.shape.parameters]
    ends = np.cumsum(sizes)[:-1]
    for near, true in zip(np.split(ours, ends), np.split(exact, ends), strict=True):
        assert np.linalg.norm(near - true) < 1e-5 * np.linalg.norm(true)


PLANS = {
    "plain": {},
    "tail": {"tail": True},
    "proximal": {"proximal": 0.7},
    "both": {"tail": True, "proximal": 0.7},
}


@pytest.mark.parametrize("how", PLANS.values(), ids=PLANS)
def test_steps_are_those_of_the_module(how: dict[str, Any]) -> None:
    x, y = problem(23)
    batches = [np.arange(9), np.arange(9, 22), np.array([22]), np.arange(9), np.array([4, 2])]
    check_steps(small(), small_module, some_model(small()), (x, y), Plan(batches, 0.2, **how))


def test_steps_that_no_longer_wait_are_the_same() -> None:
    x, y = problem(80)
    batches = [np.arange(0, 40), np.arange(40, 80)] * (WAITING // 40)
    check_steps(small(), small_module, some_model(small()), (x, y), Plan(batches, 0.05))


def test_exact_zeros_have_no_derivative() -> None:
    """Without biases, what sees black only is 0: ReLU's derivative there is 0, as in torch."""
    x, y = problem(20)
    pictures = x.reshape(-1, 12, 12)
    pictures[:, :, :7] = 0
    pictures[4] = 0
    plan = Plan([np.arange(20)], 0.2)
    check_steps(small(), small_module, some_model(small(), biases=0), (x, y), plan)


def test_of_equal_values_in_a_window_one_gets_the_gradient() -> None:
    x, y = problem(10)
    x[:] = x[:, :1]
    check_steps(small(), small_module, some_model(small()), (x, y), Plan([np.arange(10)], 0.2))


def test_the_papers_net_takes_the_steps_of_its_module() -> None:
    x, y = problem(15, emnist.SIDE, emnist.CLASSES)
    learner: Any = emnist.convnet("cpu")
    plan = Plan([np.arange(10), np.arange(10, 15)], 0.5)
    check_steps(learner, emnist.convnet_module, some_model(learner), (x, y), plan)


def test_the_papers_net_is_laid_out_and_starts_as_its_module() -> None:
    ours, plain = emnist.convnet("cpu"), NetworkLearner(emnist.convnet_module, emnist.CLASSES)
    assert ours.dim == plain.dim
    first = ours.initial(np.random.default_rng(1))
    assert np.array_equal(first, plain.initial(np.random.default_rng(1)))


@pytest.mark.parametrize("count", [1, 7, BLOCK, BLOCK + 1])
def test_scores_are_those_of_the_module(count: int) -> None:
    x, _ = problem(count)
    w = some_model(small())
    module = small().module(w)
    assert np.array_equal(torch.nn.utils.parameters_to_vector(module.parameters()).detach(), w)
    exact = module.double()(torch.from_numpy(x).double()).detach().numpy()
    scores = small().scores(w, x)
    assert scores.dtype == np.float32
    assert np.linalg.norm(scores - exact) < 1e-6 * np.linalg.norm(exact)


@pytest.mark.parametrize("how", PLANS.values(), ids=PLANS)
def test_nothing_is_left_of_what_was_trained_before(how: dict[str, Any]) -> None:
    learner, (x, y) = small(), problem(30)
    start = some_model(learner)
    before = start.copy()
    start.flags.writeable = False
    plan = Plan([np.arange(12), np.arange(12, 30)], 0.2, **how)
    fresh = small().train(start, x, y, plan)
    first = learner.train(start, x, y, plan)
    kept = first.copy()
    learner.train(2 * start, x[:9], y[:9], Plan([np.arange(9)] * 40, 0.4))
    learner.scores(-start, x)
    assert np.array_equal(learner.train(start, x, y, plan), fresh)
    assert np.array_equal(first, kept)
    assert np.array_equal(first, fresh)
    assert np.array_equal(start, before)


@pytest.mark.parametrize("how", PLANS.values(), ids=PLANS)
def test_no_batches_change_nothing(how: dict[str, Any]) -> None:
    x, y = problem(3)
    change = small().train(some_model(small()), x, y, Plan([], 0.2, **how))
    assert change.shape == (small().dim,)
    assert not change.any()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
def test_a_model_that_diverged_gives_no_finite_change_and_no_warning(value: float) -> None:
    x, y = problem(6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start = np.full(small().dim, value, np.float32)
        assert not np.isfinite(small().train(start, x, y, Plan([np.arange(6)], 0.1))).all()
        assert not np.isfinite(small().scores(start, x)).all()


def test_one_example_that_is_not_a_number_spoils_its_own_scores_only() -> None:
    x, _ = problem(6)
    w = some_model(small())
    clean = small().scores(w, x)
    x[2, 70] = np.nan
    scores = small().scores(w, x)
    assert np.isnan(scores[2]).all()
    assert np.array_equal(np.delete(scores, 2, 0), np.delete(clean, 2, 0))


@pytest.mark.parametrize("waiting", [0, 7, 100])
def test_a_matrix_is_the_same_however_long_its_steps_wait(waiting: int) -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal((9, 6)).astype(np.float32)
    before, exact = start.copy(), start.astype(np.float64)
    matrix = DeferredMatrix(start, waiting)
    for count in (4, 1, 5, 4):
        outputs = rng.standard_normal((9, count)).astype(np.float32)
        inputs = rng.standard_normal((6, count)).astype(np.float32)
        np.testing.assert_allclose(matrix.times(inputs), exact @ inputs, rtol=0, atol=2e-5)
        np.testing.assert_allclose(
            matrix.transposed_times(outputs), exact.T @ outputs, rtol=0, atol=2e-5
        )
        matrix.subtract(outputs, inputs)
        exact -= outputs.astype(np.float64) @ inputs.T
    change = np.empty_like(start)
    matrix.write_change(change)
    np.testing.assert_allclose(change, exact - before, rtol=0, atol=2e-5)
    np.testing.assert_allclose(matrix.settled(), exact, rtol=0, atol=2e-5)
    assert np.array_equal(start, before)
