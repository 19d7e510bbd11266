"""The batches of a device in a round."""

from __future__ import annotations

import itertools

import numpy as np

from rfa.lab.learners.learner import Batch
from rfa.lab.settings.settings import Settings


def draw_batches(count: int, settings: Settings, rng: np.random.Generator) -> list[Batch]:
    """The batches of a device with so many examples, one for each local step.

    The examples are shuffled once and cut into batches, the last of which may be smaller; every
    epoch goes through the same batches. With `batch_fraction`, there is one batch, at random.

    >>> from rfa.lab.randomness import stream
    >>> settings = Settings("emnist-linear", batch_size=2, local_epochs=2)
    >>> [len(batch) for batch in draw_batches(5, settings, stream(1))]
    [2, 2, 1, 2, 2, 1]
    """
    order = rng.permutation(count)
    if settings.batch_fraction:
        size = max(1, round(settings.batch_fraction * count))
        once = [order[:size]]
    else:
        once = [order[i : i + settings.batch_size] for i in range(0, count, settings.batch_size)]
    steps = settings.local_steps or settings.local_epochs * len(once)
    return list(itertools.islice(itertools.cycle(once), steps))
