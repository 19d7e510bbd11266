"""The LSTM's gradient and local training against the plain torch module and its autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.federated.learner import Plan
from rfa.federated.lstm import LstmLearner

CLASSES, HIDDEN, WINDOW = 53, 128, 20


def examples(n: int, seed: int = 0, columns: int = WINDOW) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, CLASSES, (n, columns)).astype(np.uint8)
    return x, rng.integers(0, CLASSES, n)


def batches(n: int, size: int) -> list[Any]:
    return [np.arange(k, min(k + size, n)) for k in range(0, n, size)]


def model(seed: int = 0) -> Any:
    """A model whose parameters are all different from zero and from one another."""
    rng = np.random.default_rng(seed)
    w = LstmLearner().initial(rng)
    return w + rng.normal(0, 0.05, w.size).astype(np.float32)


class Reference:
    """The plain module, with a flat vector as its parameters."""

    def __init__(self, w: Any, *, double: bool = False) -> None:
        torch: Any = pytest.importorskip("torch")
        self.torch = torch
        self.dtype = torch.float64 if double else torch.float32
        self.lstm = torch.nn.LSTM(CLASSES, HIDDEN, batch_first=True).to(self.dtype)
        self.linear = torch.nn.Linear(HIDDEN, CLASSES).to(self.dtype)
        self.parameters = [*self.lstm.parameters(), *self.linear.parameters()]
        flat = torch.from_numpy(w.copy()).to(self.dtype)
        torch.nn.utils.vector_to_parameters(flat, self.parameters)

    def vector(self) -> Any:
        return self.torch.cat([p.detach().reshape(-1) for p in self.parameters]).numpy().copy()

    def scores(self, x: Any) -> Any:
        codes = self.torch.from_numpy(x[:, :WINDOW].astype(np.int64))
        one_hot = self.torch.nn.functional.one_hot(codes, CLASSES).to(self.dtype)
        return self.linear(self.lstm(one_hot)[0][:, -1])

    def iterates(self, x: Any, y: Any, plan: Plan) -> list[Any]:
        """The models after each step of plain SGD."""
        loss = self.torch.nn.CrossEntropyLoss()
        sgd = self.torch.optim.SGD(self.parameters, lr=plan.rate)
        vectors: list[Any] = []
        for batch in plan.batches:
            sgd.zero_grad()
            loss(self.scores(x[batch]), self.torch.from_numpy(y[batch])).backward()
            sgd.step()
            vectors.append(self.vector())
        return vectors

    def gradient(self, x: Any, y: Any) -> Any:
        loss = self.torch.nn.CrossEntropyLoss()
        loss(self.scores(x), self.torch.from_numpy(y)).backward()
        return self.torch.cat([p.grad.reshape(-1) for p in self.parameters]).numpy()

    def split(self, vector: Any) -> list[Any]:
        sizes = [p.numel() for p in self.parameters]
        return np.split(vector, np.cumsum(sizes)[:-1])


def distance(got: Any, expected: Any) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 12])
def test_one_step_follows_the_gradient_of_autograd(n: int, double: bool) -> None:
    w, (x, y) = model(), examples(n)
    reference = Reference(w, double=double)
    expected = reference.gradient(x, y)
    # A large step: a change is read off a float32 model, whose rounding must not count.
    change = LstmLearner().train(w, x, y, Plan([np.arange(n)], 1024.0))
    assert change.dtype == np.float32
    got = reference.split(change / -1024.0)
    for part, other in zip(got, reference.split(expected), strict=True):
        assert distance(part, other) < 1e-5


@pytest.mark.parametrize("double", [False, True])
def test_a_round_changes_what_plain_sgd_changes(double: bool) -> None:
    w, (x, y) = model(1), examples(297, 1)
    plan = Plan(batches(297, 10), 0.8)
    assert [len(batch) for batch in plan.batches] == [10] * 29 + [7]
    expected = Reference(w, double=double).iterates(x, y, plan)[-1] - w
    assert distance(LstmLearner().train(w, x, y, plan), expected) < 1e-5


def test_batches_may_repeat_and_mix_rows() -> None:
    w, (x, y) = model(), examples(9)
    plan = Plan([np.array([3, 3, 8, 0]), np.array([5]), np.array([8, 2, 1, 0])], 0.5)
    expected = Reference(w).iterates(x, y, plan)[-1] - w
    assert distance(LstmLearner().train(w, x, y, plan), expected) < 1e-5


@pytest.mark.parametrize("n", [1, 255, 256, 600])
def test_scores_are_those_of_the_module(n: int) -> None:
    w, (x, _) = model(), examples(n)
    expected = Reference(w).scores(x).detach().numpy()
    scores = LstmLearner().scores(w, x)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


def test_no_examples_have_no_scores() -> None:
    x, _ = examples(0)
    assert LstmLearner().scores(model(), x).shape == (0, CLASSES)


@pytest.mark.parametrize("steps", [1, 2, 5, 6])
def test_tail_is_the_average_of_the_later_half(steps: int) -> None:
    w, (x, y) = model(), examples(10 * steps)
    plan = Plan(batches(10 * steps, 10), 0.8, tail=True)
    later = Reference(w).iterates(x, y, plan)[-((steps + 1) // 2) :]
    expected = np.mean(later, axis=0, dtype=np.float64) - w
    assert distance(LstmLearner().train(w, x, y, plan), expected) < 1e-5


def test_columns_beyond_the_window_do_not_matter() -> None:
    w, (x, y) = model(), examples(10, columns=80)
    learner, plan = LstmLearner(), Plan(batches(10, 10), 0.5)
    short = np.ascontiguousarray(x[:, :WINDOW])
    assert (learner.train(w, x, y, plan) == learner.train(w, short, y, plan)).all()
    assert (learner.scores(w, x) == learner.scores(w, short)).all()


def test_start_is_left_as_it_is_and_rounds_do_not_depend_on_those_before() -> None:
    learner, w, (x, y) = LstmLearner(), model(), examples(34)
    before, plan = w.copy(), Plan(batches(34, 10), 0.5)
    change = learner.train(w, x, y, plan)
    again = change.copy()
    learner.train(w + 1, x, y, plan)
    learner.scores(w - 1, x)
    assert (w == before).all()
    assert (change == again).all()
    assert (learner.train(w, x, y, plan) == change).all()


@pytest.mark.parametrize("tail", [False, True])
def test_no_batches_change_nothing(tail: bool) -> None:
    x, y = examples(3)
    change = LstmLearner().train(model(), x, y, Plan([], 0.5, tail=tail))
    assert change.shape == (LstmLearner().dim,)
    assert (change == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_so_without_complaint(bad: float) -> None:
    learner, w, (x, y) = LstmLearner(), model(), examples(20)
    plan = Plan(batches(20, 10), 0.5)
    healthy = learner.train(w, x, y, plan)
    sick = w.copy()
    sick[::1000] = bad
    change = learner.train(sick, x, y, plan)
    assert np.isnan(change).any()
    assert (learner.train(w, x, y, plan) == healthy).all()


def test_large_models_saturate_without_complaint() -> None:
    learner, (x, y) = LstmLearner(), examples(10)
    change = learner.train(1000 * model(), x, y, Plan(batches(10, 10), 0.5))
    assert np.isfinite(change).all()


def test_the_first_model_is_glorot_uniform_with_a_forget_bias() -> None:
    learner = LstmLearner()
    assert learner.dim == 512 * 53 + 512 * 128 + 2 * 512 + 53 * 128 + 53
    w = learner.initial(np.random.default_rng(0))
    assert w.shape == (learner.dim,)
    assert w.dtype == np.float32
    w_ih, w_hh, b_ih, b_hh, v, a = np.split(w, np.cumsum([512 * 53, 512 * 128, 512, 512, 53 * 128]))
    for part, fans in [(w_ih, 53 + 512), (w_hh, 128 + 512), (v, 128 + 53)]:
        limit = np.sqrt(6 / fans)
        assert 0.99 * limit < np.abs(part).max() <= np.float32(limit)
        assert part.std() == pytest.approx(limit / np.sqrt(3), rel=0.02)
    assert (b_ih.reshape(4, 128) == [[0], [1], [0], [0]]).all()
    assert (b_hh == 0).all()
    assert (a == 0).all()
    assert (learner.initial(np.random.default_rng(0)) == w).all()


def test_codes_that_are_no_characters_are_refused() -> None:
    x, y = examples(4)
    x[2, 3] = 60
    with pytest.raises(ValueError, match="codes below 53, not 20 columns up to 60"):
        LstmLearner().train(model(), x, y, Plan([], 0.5))
    with pytest.raises(ValueError, match="at least 20 columns"):
        LstmLearner().scores(model(), x[:, :19])
