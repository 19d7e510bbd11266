"""The noise of a run: how much its sums hold, and what they cost each device.

With a budget and no multiplier, the noise is what K rounds may cost, where K is the largest number
of rounds that any one device takes part in: the run's own seed decides who does, so that K is known
before the first round. With both, the run ends before a round that would cost a device too much
(`meter.py`).
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rfa.aggregators.registry import build_private
from rfa.errors import MissingExtraError
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import split_cohort
from rfa.lab.simulation.losses import draw_losses, who_joins
from rfa.lab.training.devices import Devices
from rfa.privacy import (
    Budget,
    NoisySum,
    SampledRounds,
    multiplier_for,
    readers_epsilon,
)
from rfa.privacy.noisy_sum import MASS_FACTOR, NEAR_FACTOR
from rfa.secagg.statistics import mask_of_round, rows_of

FINE, FAR = 2e-3, 12.0
"""How near central noise is to the least that is enough, and how far from 1, in logarithms."""


@dataclass(frozen=True)
class RunNoise:
    """How much noise the sums of a run hold, and what they cost.

    Attributes:
        settings: the settings of the run.
        dim: the number of coordinates d.
        population: the devices in all.
        participations: K, the most rounds that any one device takes part in.
        multiplier: z, of a sum over the devices of a round, or over those that are simulated.
    """

    settings: Settings
    dim: int
    population: int
    participations: int
    multiplier: float
    _prices: dict[int, float] = field(default_factory=dict[int, float], compare=False, repr=False)
    _readers: dict[int, float | None] = field(
        default_factory=dict[int, "float | None"], compare=False, repr=False
    )

    @cached_property
    def budget(self) -> Budget | None:
        """What the sums may cost a device together; None for any cost."""
        privacy = self.settings.privacy
        return Budget(privacy.epsilon, privacy.delta) if privacy.epsilon else None

    @property
    def opened(self) -> float:
        """The multiplier of the sums that are made, over fewer devices than are simulated."""
        simulated = self.settings.privacy.noise_cohort
        if not simulated:
            return self.multiplier
        return self.multiplier * self.settings.training.devices_per_round / simulated

    def price(self, joined: int) -> float:
        """What a sum over a part of a cohort costs each of the devices that joined it."""
        if joined not in self._prices:
            shape = shape_of(self.settings, self.dim, joined)
            self._prices[joined] = NoisySum(multiplier=self.multiplier, **shape).rho
        return self._prices[joined]

    def check(self) -> None:
        """Check that sums of whole numbers can hold the noise, over those who are there.

        Raises:
            InvalidValueError: saying whether it is too much or too little.
        """
        for size in sorted(_sizes(self.settings)):
            self.price(size)
            shape = shape_of(self.settings, self.dim, size)
            shape |= {"cohort": size, "honest": self.settings.secure.terms.honest(size)}
            NoisySum(multiplier=self.opened, **shape)

    @property
    def round_price(self) -> float:
        """What a round costs each of its devices if all join; with central noise, tells of it."""
        layout = self.settings.layout
        if self.settings.privacy.is_central:
            return layout.queries * central_price(self.settings, self.multiplier)
        return layout.queries * self.price(self.settings.training.devices_per_round // layout.parts)

    @cached_property
    def told_price(self) -> float:
        """What a round tells readers of a device at the most: sums over fewer devices cost more."""
        if self.settings.privacy.is_central:
            return self.round_price
        return self.settings.layout.queries * max(map(self.price, _sizes(self.settings)))

    def readers_epsilon(self, rounds: int) -> float | None:
        """The epsilon of some rounds against readers of the models; None without the extra dp."""
        if rounds not in self._readers:
            self._readers[rounds] = _readers_epsilon(self, rounds)
        return self._readers[rounds]


def noise_of(devices: Devices) -> RunNoise | None:
    """The noise of a run; None for a run without.

    Raises:
        InvalidValueError: if no noise is enough for the budget; the message says what would help.
    """
    settings = devices.settings
    privacy = settings.privacy
    if not privacy.is_on:
        return None
    most = most_participations(devices)
    found = privacy.noise
    if not found:
        found = _central_multiplier(devices) if privacy.is_central else _multiplier(devices, most)
    noise = RunNoise(settings, devices.dim, devices.count, most, found)
    if not privacy.is_central:
        noise.check()
    return noise


def most_participations(devices: Devices) -> int:
    """K, the largest number of rounds that any one device takes part in, by the run's seed."""
    counts = np.zeros(devices.count, np.int64)
    for t in range(devices.settings.rounds):
        counts[devices.sample(t)] += 1
    return int(counts.max())


def shape_of(settings: Settings, dim: int, joined: int) -> dict[str, Any]:
    """Return what decides the charge of a sum over a part of a cohort, except its noise.

    Where a larger cohort is simulated, it is that of as large a part of it.
    """
    simulated, cohort = settings.privacy.noise_cohort, settings.training.devices_per_round
    size = round(joined * simulated / cohort) if simulated else joined
    sent = sent_totals(settings)
    return {
        "cohort": size,
        "honest": settings.secure.terms.honest(size),
        "dim": dim,
        "mass": "mass" in sent,
        "near": "near" in sent,
    }


def central_price(settings: Settings, multiplier: float) -> float:
    """What a sum to which a trusted server adds the noise tells of a device to its readers."""
    sent = sent_totals(settings)
    factor = 1 + ("mass" in sent) / MASS_FACTOR**2 + ("near" in sent) / NEAR_FACTOR**2
    return factor / (2 * multiplier**2)


def noise_key(settings: Settings, t: int, row: int) -> bytes:
    """By what the device in a row of the cohort of round t draws its noise."""
    return stream(settings.seed, "noise", t, row).bytes(32)


def _multiplier(devices: Devices, participations: int) -> float:
    """The least multiplier with which all rounds cost no device more than the budget.

    Sums over fewer devices are rounded more coarsely and cost a little more; which sizes there will
    be the seed tells, too.
    """
    settings, privacy = devices.settings, devices.settings.privacy
    budget, queries = Budget(privacy.epsilon, privacy.delta), settings.layout.queries
    shapes = [shape_of(settings, devices.dim, size) for size in sorted(_sizes(settings))]
    sums = participations * queries
    return max(multiplier_for(budget, queries=sums, **shape) for shape in shapes)


def _sizes(settings: Settings) -> set[int]:
    """How many devices join the parts of the rounds, where their updates are finite."""
    count, parts = settings.training.devices_per_round, settings.layout.parts
    rounds = range(settings.rounds if settings.secure.dropout_rate else 1)
    least, sizes = settings.secure.terms.smallest(settings.layout.queries), {count // parts}
    for t in rounds:
        lost = draw_losses(count, settings, t)
        sizes |= {len(who_joins(rows, lost)) for rows in split_cohort(count, settings, t)}
    return {size for size in sizes if size >= least}


def _central_multiplier(devices: Devices) -> float:
    """The least multiplier, nearly, with which readers of all models learn no more than epsilon.

    Epsilon falls with the multiplier, about as a power of it: secants of logarithms find it.

    Raises:
        MissingExtraError: if the accountant for readers is not installed.
    """
    settings, privacy = devices.settings, devices.settings.privacy

    def excess(place: float) -> float:  # of the logarithm of epsilon
        noise = RunNoise(settings, devices.dim, devices.count, 0, math.exp(place))
        told = readers_epsilon(_sampled(noise, settings.rounds), privacy.delta)
        return math.log(max(told, math.exp(-FAR)) / privacy.epsilon)

    low, high = -FAR, FAR
    last, place = (-1.0, 1.0), 0.0  # as if epsilon fell as 1 / z
    while not -FINE <= (found := excess(place)) <= 0:
        low, high = (place, high) if found > 0 else (low, place)
        slope = (found - last[1]) / (place - last[0])
        last = place, found
        place -= (found + FINE / 2) / min(slope, -FINE)
        if not low < place < high:
            place = (low + high) / 2
    return math.exp(place)


def _sampled(noise: RunNoise, rounds: int) -> list[SampledRounds]:
    """Some rounds as the accountant for readers takes them."""
    drawn = noise.settings.training.devices_per_round
    return [SampledRounds(noise.told_price, drawn, noise.population, rounds)]


def _readers_epsilon(noise: RunNoise, rounds: int) -> float | None:
    if not rounds:
        return 0.0
    with contextlib.suppress(MissingExtraError):
        return readers_epsilon(_sampled(noise, rounds), noise.settings.privacy.delta)
    return None


def sent_totals(settings: Settings) -> frozenset[str]:
    """The names of the totals that travel beside the push."""
    mask = mask_of_round(
        build_private(settings.aggregation).statistics,
        queries=settings.layout.queries,
        max_share=0.0,
        equal_weights=True,
        noise=1.0,
    )
    return frozenset(row.name for row in rows_of(mask))
