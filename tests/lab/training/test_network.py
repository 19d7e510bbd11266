"""The LSTM of the paper as a learner, and what any network must hold to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.lab.learners.learner import Plan
from rfa.lab.tasks import shakespeare

torch: Any = pytest.importorskip("torch")

CODES = np.random.default_rng(0).integers(0, 53, (23, 41)).astype(np.uint8)
LABELS = np.random.default_rng(1).integers(0, 53, 23)
BATCHES = [np.arange(10), np.arange(10, 20), np.arange(20, 23)] * 2


def by_hand(start: Any, rate: float) -> list[Any]:
    """The iterates of plain torch SGD, each as a flat vector."""
    module = shakespeare.lstm_module(torch)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    torch.nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), trained)
    optimizer = torch.optim.SGD(trained, lr=rate)
    iterates: list[Any] = []
    for rows in BATCHES:
        optimizer.zero_grad()
        scores = module(torch.from_numpy(CODES[rows]))
        torch.nn.functional.cross_entropy(scores, torch.from_numpy(LABELS[rows])).backward()
        optimizer.step()
        flat = torch.nn.utils.parameters_to_vector(trained)
        iterates.append(flat.detach().numpy().copy())
    return iterates


def test_a_round_of_the_lstm_equals_a_plain_loop() -> None:
    learner = shakespeare.lstm("cpu")
    start = learner.initial(np.random.default_rng(2))
    before = start.copy()
    change = learner.train(start, CODES, LABELS, Plan(BATCHES, 0.64))
    iterates = by_hand(start, 0.64)
    assert np.array_equal(start, before)
    assert np.linalg.norm(change - (iterates[-1] - start)) < 1e-5 * np.linalg.norm(change)
    tail = learner.train(start, CODES, LABELS, Plan(BATCHES, 0.64, tail=True))
    expected = np.mean(iterates[3:], axis=0) - start
    assert np.linalg.norm(tail - expected) < 1e-5 * np.linalg.norm(expected)


def test_the_lstm_is_the_papers() -> None:
    learner = shakespeare.lstm("cpu")
    w = learner.initial(np.random.default_rng(0))
    assert learner.dim == len(w) == 4 * 128 * (53 + 128 + 1) + 53 * 129
    biases = w[4 * 128 * (53 + 128) :][:512].reshape(4, 128)
    assert biases[1].min() == 1  # the forget gate, and nothing else
    assert biases.sum() == 128
    for kernel in (w[: 512 * 53], w[512 * 53 : 512 * 181]):
        assert 0.95 < np.abs(kernel).max() / np.sqrt(6 / (512 + 53 + 128)) <= 1


def test_only_the_first_twenty_characters_are_read() -> None:
    learner = shakespeare.lstm("cpu")
    w = learner.initial(np.random.default_rng(0))
    other = CODES.copy()
    other[:, 20:] = 0
    assert np.array_equal(learner.scores(w, CODES), learner.scores(w, other))
    other[:, 19] ^= 1
    assert not np.array_equal(learner.scores(w, CODES), learner.scores(w, other))


def test_no_step_changes_nothing_and_nan_stays_nan() -> None:
    learner = shakespeare.lstm("cpu")
    w = learner.initial(np.random.default_rng(0))
    assert not learner.train(w, CODES, LABELS, Plan([], 0.1)).any()
    w[:] = np.nan
    assert np.isnan(learner.train(w, CODES, LABELS, Plan(BATCHES, 0.1))).all()


def test_an_answer_is_not_overwritten_by_the_next() -> None:
    learner = shakespeare.lstm("cpu")
    w = learner.initial(np.random.default_rng(0))
    first = learner.train(w, CODES, LABELS, Plan(BATCHES, 0.1))
    kept = first.copy()
    learner.train(w, CODES, LABELS, Plan(BATCHES, 0.9))
    assert np.array_equal(first, kept)
