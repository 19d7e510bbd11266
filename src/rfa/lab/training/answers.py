"""The losses of examples, and which of them are classified correctly, from scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Floats32, Ints


@np.errstate(over="ignore", invalid="ignore")  # a diverged model has no finite loss
def answers(parts: Sequence[Floats32], y: Ints) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the loss of each example, and whether it is classified correctly.

    Several parts together cost less than one after another. An example gets the same numbers with
    any other parts: BLAS may sum over classes in another order at another row or in another memory
    layout, so these sums are taken part by part, in one layout.

    Args:
        parts: the scores, in parts of some examples each.
        y: the classes of all examples.
    """
    scores = np.concatenate(parts, out=np.empty((len(y), parts[0].shape[1]), np.float32))
    rows = np.arange(len(y))
    best = scores.argmax(axis=1)
    top, own = scores[rows, best], scores[rows, y]
    scores -= top[:, None]
    np.exp(scores, out=scores)
    ones, sums, stop = np.ones(scores.shape[1], np.float32), np.empty_like(top), 0
    for part in parts:
        start, stop = stop, stop + len(part)
        np.dot(scores[start:stop], ones, out=sums[start:stop])
    return np.add(np.log(sums), top - own, dtype=np.float64), best == y
