"""The batches of a device in a round."""

from __future__ import annotations

import numpy as np

from rfa.lab.learners.visits import Visits
from rfa.lab.settings.groups import Training


def draw_batches(count: int, training: Training, rng: np.random.Generator) -> Visits:
    """Return the batches of a device with this number of examples, one for each local step.

    The examples are shuffled once and split into batches, the last of which may be smaller; every
    epoch uses the same batches. With `batch_fraction`, there is one random batch.

    >>> from rfa.lab.randomness import stream
    >>> training = Training(batch_size=2, local_epochs=2)
    >>> [len(batch) for batch in draw_batches(5, training, stream(1))]
    [2, 2, 1, 2, 2, 1]
    """
    order = rng.permutation(count)
    size = training.batch_size
    if training.batch_fraction:
        size = max(1, round(training.batch_fraction * count))
        order = order[:size]
    steps = training.local_steps or training.local_epochs * -(-len(order) // size)
    return Visits.cut(order, size, steps)
