"""Who drops out of secure sums, and when: by the run's seed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.secagg.in_process import Losses, answers
from rfa.secagg.messages.stages import START, Moment, Stage


def draw_losses(count: int, settings: Settings, t: int) -> Losses:
    """Who drops out of a round, by its row in the cohort, each before a random message."""
    masked_sums = settings.layout.queries * (2 if settings.secure.max_share else 1)
    rng = stream(settings.seed, "lost", t)
    gone = np.flatnonzero(rng.random(count) < settings.secure.dropout_rate)
    when = rng.integers(0, Moment(masked_sums - 1, Stage.UNMASK).number + 1, len(gone))
    return {int(row): Moment.numbered(int(number)) for row, number in zip(gone, when, strict=True)}


def who_joins(rows: Iterable[int], lost: Losses) -> list[int]:
    """Those of some rows that are still there when a round is opened."""
    return [row for row in rows if answers(row, START, lost)]
