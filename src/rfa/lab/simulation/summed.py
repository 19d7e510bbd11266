"""The aggregators on sums by their names in the settings: the server's part of a round.

Nothing here holds an update: each part of the cohort is an oracle.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence

import numpy as np

from rfa._types import Vector
from rfa.aggregators.accelerated import accelerated
from rfa.aggregators.summed import (
    Steps,
    center_of_groups,
    centered_clipping,
    rfa,
    secure_mean,
    sub_cohorts,
)
from rfa.aggregators.weiszfeld import one_step, weiszfeld
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.outcome import Outcome
from rfa.oracle import RecordingOracle, SumOracle

UNCUT = 1e20
"""A length that no update has which is not rejected anyway."""


class Witness(RecordingOracle):
    """A recorded oracle, with the bound that its sums prove."""

    def certificate(self, *, guessed: bool) -> float | None:
        """A bound on the share of a device in the step that was taken, if there was one.

        Where the last sum was asked for at a guess, the step may be that of the sum before.
        """
        sums = (self.last, self.previous if guessed else None)
        return max((total.certificate() for total in sums if total), default=None)


def split_cohort(count: int, settings: Settings, t: int) -> list[list[int]]:
    """The rows of each part of the cohort of round t, at random; no part is empty."""
    parts = min(settings.parts, count)
    if parts == 1:
        return [list(range(count))]
    order = stream(settings.seed, "parts", t).permutation(count)
    return [sorted(map(int, rows)) for rows in np.array_split(order, parts)]


def ask_for_outcome(asks: Sequence[Witness], dim: int, settings: Settings, nu: float) -> Outcome:
    """The outcome of a round, from the sums of an oracle for each part of the cohort."""
    point = _aggregate(asks, dim, settings, nu)
    asked, told = [ask.calls for ask in asks], [ask.answers for ask in asks]
    together = sum if settings.schedule == "sub-cohorts" else max
    means = 1 if settings.takes_mean or not settings.uses_nu else 0
    guessed = settings.schedule == "accelerated"
    proven = [ask.certificate(guessed=guessed) for ask in asks]
    return Outcome(
        point.astype(np.float32),
        calls=together(asked),
        steps=together(told) - means,
        certificate=max(share for share in proven if share is not None),
        near=nearness(asks),
    )


def nearness(asks: Sequence[Witness]) -> float:
    """The share of the devices that the last sums count as near: of parts, the median."""
    return statistics.median(ask.last.near / ask.last.count for ask in asks if ask.last)


def _aggregate(asks: Sequence[SumOracle], dim: int, settings: Settings, nu: float) -> Vector:
    if settings.schedule == "sub-cohorts":
        return sub_cohorts(asks, np.zeros(dim), nu=nu)
    if settings.aggregator == "bucketing" or settings.groups > 1:
        return center_of_groups(asks, lambda ask: _of_part(ask, dim, settings, nu))
    return _of_part(asks[0], dim, settings, nu)


def _of_part(ask: SumOracle, dim: int, settings: Settings, nu: float) -> Vector:
    if settings.aggregator == "rfa-one-step":
        return one_step(ask, dim, nu=nu)
    if settings.aggregator == "adaptive-clipping":
        return secure_mean(ask, dim, radius=nu)
    if settings.aggregator == "centered-clipping":
        return centered_clipping(ask, np.zeros(dim), radius=nu, steps=settings.budget)
    if settings.aggregator != "rfa":
        return secure_mean(ask, dim, radius=_cut(settings))
    return rfa(
        ask,
        dim,
        nu=nu,
        budget=settings.budget,
        start=settings.start,
        radius=_cut(settings),
        steps=_steps(settings),
    )


def _cut(settings: Settings) -> float:
    """The norm to which means clip updates: they must fit a ring, if there is one."""
    return UNCUT if settings.secure == "off" else settings.clip_norm


def _steps(settings: Settings) -> Steps:
    if settings.schedule == "accelerated":
        return accelerated
    if settings.secure == "off" and settings.early_stop:
        return functools.partial(weiszfeld, early_stop=settings.early_stop)
    return weiszfeld
