"""The LSTM by hand takes the steps of its torch module, whatever the plan, and keeps nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from rfa.errors import InvalidValueError
from rfa.lab.learners import lstm
from rfa.lab.learners.learner import Learner, Plan
from rfa.lab.learners.lstm import LstmLearner, LstmSize
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.tasks import shakespeare

torch: Any = pytest.importorskip("torch")

RATE = 0.64
CODES = np.random.default_rng(0).integers(0, 53, (64, 41)).astype(np.uint8)
LABELS = np.random.default_rng(1).integers(0, 53, 64)
ROWS = np.random.default_rng(2).permutation(64)
BATCHES = {
    "one": [ROWS[:10]],
    "odd ones": [ROWS[:10], ROWS[10:20], ROWS[20:23], ROWS[23:24]] * 2,
    "single examples": [ROWS[i : i + 1] for i in range(5)],
    "all at once": [ROWS] * 3,
}


def learners() -> tuple[Learner, NetworkLearner]:
    """The one by hand, and the plain one that it must equal."""
    plain = shakespeare.CharacterLearner(shakespeare.lstm_module, shakespeare.CLASSES)
    return shakespeare.lstm("cpu"), plain


def start() -> Any:
    """A model on which every parameter has been moved from its special beginnings."""
    by_hand, plain = learners()
    w = by_hand.initial(np.random.default_rng(3))
    return w + plain.train(w, CODES, LABELS, Plan([ROWS] * 20, 0.9))


def in_float64(w: Any, plan: Plan) -> Any:
    """What torch's own gradients change in double precision."""
    module: Any = shakespeare.lstm_module(torch).double()
    parameters = [p for p in module.parameters() if p.requires_grad]
    first = torch.from_numpy(w.astype(np.float64))
    torch.nn.utils.vector_to_parameters(first.clone(), parameters)
    codes = torch.from_numpy(CODES[:, : shakespeare.REACH]).long()
    read = torch.nn.functional.one_hot(codes, shakespeare.CLASSES).double()
    iterates: list[Any] = []
    for rows in plan.batches:
        scores = module.out(module.lstm(read[rows])[0][:, -1])
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(LABELS[rows]))
        gradient = torch.nn.utils.parameters_to_vector(torch.autograd.grad(loss, parameters))
        flat = torch.nn.utils.parameters_to_vector(parameters).detach()
        flat = flat - plan.rate * (gradient + plan.proximal * (flat - first))
        torch.nn.utils.vector_to_parameters(flat.clone(), parameters)
        iterates.append(flat.numpy())
    later = iterates[len(iterates) // 2 :] if plan.tail else iterates[-1:]
    return np.mean(later, axis=0) - first.numpy()


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("tail", [False, True], ids=["last", "tail"])
@pytest.mark.parametrize("proximal", [0.0, 0.7])
def test_the_steps_are_those_of_torch_in_float64(
    batches: list[Any], tail: bool, proximal: float
) -> None:
    w, plan = start(), Plan(batches, RATE, tail, proximal)
    found, expected = learners()[0].train(w, CODES, LABELS, plan), in_float64(w, plan)
    assert found.dtype == np.float32
    ends = np.cumsum([512 * 53, 512 * 128, 512, 53 * 128])
    cuts = [np.split(vector, ends) for vector in (found, expected, w)]
    for part, right, model in zip(*cuts, strict=True):
        rounded = len(batches) * 2**-24 * np.linalg.norm(model)  # each iterate to float32
        assert np.linalg.norm(part - right) < 1e-5 * np.linalg.norm(right) + rounded


def test_a_model_is_the_flat_vector_of_the_module() -> None:
    by_hand, plain = learners()
    w = by_hand.initial(np.random.default_rng(5))
    assert isinstance(by_hand, LstmLearner)
    assert (by_hand.dim, by_hand.classes) == (plain.dim, plain.classes)
    assert np.array_equal(w, plain.initial(np.random.default_rng(5)))
    module = by_hand.module(start())
    assert np.array_equal(
        torch.nn.utils.parameters_to_vector(p for p in module.parameters() if p.requires_grad)
        .detach()
        .numpy(),
        start(),
    )


@pytest.mark.parametrize("count", [0, 1, lstm.BLOCK, lstm.BLOCK + 1, 3 * lstm.BLOCK - 1])
def test_scores_are_the_modules_in_any_number_of_blocks(count: int) -> None:
    by_hand, w = learners()[0], start()
    x = np.resize(CODES, (count, 41))
    scores = by_hand.scores(w, x)
    assert scores.shape == (count, 53)
    with torch.no_grad():
        expected = by_hand.module(w)(torch.from_numpy(x)).numpy()
    assert np.allclose(scores, expected, rtol=0, atol=2e-6)


def test_what_was_trained_before_changes_no_bit() -> None:
    w, plan = start(), Plan(BATCHES["odd ones"], RATE)
    fresh = learners()[0]
    expected, scores = fresh.train(w, CODES, LABELS, plan), fresh.scores(w, CODES)
    used = learners()[0]
    for before in (w, np.full_like(w, np.nan), np.full_like(w, 1e30)):
        for batches in BATCHES.values():
            used.train(before, CODES[::-1], LABELS, Plan(batches, 0.1, tail=True, proximal=0.5))
        used.scores(before, CODES)
        assert np.array_equal(used.train(w, CODES, LABELS, plan), expected)
        assert np.array_equal(used.scores(w, CODES), scores)


def test_what_is_given_stays_as_it_is_and_may_be_read_only() -> None:
    w, x, y = start(), CODES.copy(), LABELS.copy()
    for array in (w, x, y):
        array.flags.writeable = False
    by_hand = learners()[0]
    assert by_hand.train(w, x, y, Plan(BATCHES["odd ones"], RATE)).any()
    assert not by_hand.train(w, x, y, Plan([], RATE, tail=True)).any()
    by_hand.scores(w, x)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38, -1e38])
def test_a_model_that_is_not_finite_raises_nothing(value: float) -> None:
    by_hand = learners()[0]
    w = np.full(by_hand.dim, value, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        change = by_hand.train(w, CODES, LABELS, Plan(BATCHES["odd ones"], RATE, proximal=0.5))
        by_hand.scores(w, CODES)
    assert np.isfinite(value) or not np.isfinite(change).any()


def test_a_rate_that_is_too_large_ends_in_numbers_that_are_not_finite() -> None:
    by_hand, w = learners()[0], start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        change = by_hand.train(w, CODES, LABELS, Plan([ROWS] * 4, 1e38))
    assert not np.isfinite(change).all()


def test_a_symbol_that_there_is_not_is_refused() -> None:
    by_hand, w, x = learners()[0], start(), CODES.copy()
    x[7, 3] = 53
    for use in (
        lambda: by_hand.scores(w, x),
        lambda: by_hand.train(w, x, LABELS, Plan([ROWS], RATE)),
    ):
        with pytest.raises(InvalidValueError, match="symbols must lie in 0 to 52, not in 0 to 53"):
            use()


def test_every_size_may_be_another() -> None:
    size = LstmSize(length=6, symbols=5, units=7, classes=3)

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            self.lstm = torch.nn.LSTM(size.symbols, size.units, batch_first=True)
            self.lstm.bias_hh_l0.requires_grad_(False).zero_()
            self.out = torch.nn.Linear(size.units, size.classes)

        def forward(self, x: Any) -> Any:
            read = torch.nn.functional.one_hot(x[:, : size.length].long(), size.symbols)
            return self.out(self.lstm(read.float())[0][:, -1])

    plain = NetworkLearner(lambda _: Module(), size.classes)
    rng = np.random.default_rng(0)
    w = rng.standard_normal(plain.dim).astype(np.float32)
    x, y = rng.integers(0, size.symbols, (9, 8)), rng.integers(0, size.classes, 9)
    plan = Plan([np.arange(4), np.arange(4, 9)] * 5, 0.5)
    expected = plain.train(w, x, y, plan)
    found = LstmLearner(plain, size).train(w, x, y, plan)
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)
