"""Losses and correct answers, alone and beside others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.lab.training.answers import answers
from tests.lab.simulation.lab import tiny_devices


def parts(*counts: int) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(1)
    scores = [rng.normal(0, 5, (62, count)).astype(np.float32) for count in counts]
    ways = [np.ascontiguousarray(each.T) if i % 2 else each.T for i, each in enumerate(scores)]
    return ways, rng.integers(0, 62, sum(counts))


def test_they_are_those_of_softmax_in_double_precision() -> None:
    (scores,), y = parts(40)
    losses, right = answers([scores], y)
    wide, rows = scores.astype(np.float64), np.arange(40)
    np.testing.assert_allclose(losses, np.log(np.exp(wide).sum(axis=1)) - wide[rows, y], rtol=1e-6)
    assert (right == (wide.argmax(axis=1) == y)).all()


def test_an_example_gets_the_same_numbers_beside_any_others_to_the_bit() -> None:
    counts = (17, 178, 3, 50, 1)
    scores, y = parts(*counts)
    together = answers(scores, y)
    ends = np.cumsum(counts)
    for each, start, stop in zip(scores, ends - counts, ends, strict=True):
        alone = answers([each], y[start:stop])
        assert all(np.array_equal(a, b[start:stop]) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("examples", [0, 3])
def test_a_device_has_the_same_tally_whoever_is_evaluated_with_it(examples: int) -> None:
    devices = tiny_devices(eval_examples=examples)
    w, everyone = devices.initial(), range(devices.count)
    each = [devices.evaluate(w, device) for device in everyone]
    assert devices.evaluate_all(w, everyone) == each
    assert devices.evaluate_all(w, everyone[5:2:-1]) == each[5:2:-1]
    assert devices.evaluate_all(w, []) == []
