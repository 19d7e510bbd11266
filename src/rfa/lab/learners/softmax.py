"""Softmax of many classes, in the memory of the scores."""

from __future__ import annotations

import numpy as np

from rfa._types import Floats32, Ints


def exponentiate(scores: Floats32, axis: int) -> Floats32:
    """Replace scores by numbers in proportion to probabilities, and return their sums.

    The largest score of each example is subtracted first, so that no exponential overflows.

    Args:
        scores: the scores, which are overwritten.
        axis: the axis of the classes.
    """
    scores -= np.maximum.reduce(scores, axis=axis, keepdims=True)
    np.exp(scores, out=scores)
    return np.add.reduce(scores, axis=axis, keepdims=True)


def residuals(scores: Floats32, labels: Ints, *, axis: int) -> Floats32:
    """Return the gradient of each example's loss in its scores, in place: probability minus target.

    >>> residuals(np.zeros((1, 4), np.float32), np.array([1]), axis=1)
    array([[ 0.25, -0.75,  0.25,  0.25]], dtype=float32)
    """
    scores /= exponentiate(scores, axis)
    examples = np.arange(len(labels))
    scores[(labels, examples) if axis == 0 else (examples, labels)] -= 1
    return scores
