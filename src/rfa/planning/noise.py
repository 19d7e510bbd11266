"""How much noise a budget needs, the error that it adds to a step, and what reduces it.

A step is nu * push / mass. With noise of standard deviation s in each of d coordinates of the push
it is off by nu * sqrt(d) * s / mass, where

    s = z * sqrt(n / H)   (`NoisySum.noise_of`),   mass = MASS * n, or n for a mean.

This error is given over nu, half of the typical length of an update where nu is learned: steps are
about as long, or a little less (docs/privacy.md).

>>> request = NoiseRequest(Budget(8.0), rounds=100, devices=10**6, devices_per_round=1000, dim=7850)
>>> found = plan_noise(request)
>>> found.device_rounds, round(found.multiplier, 2), round(found.error, 2)
(5, 1.51, 0.27)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from rfa._checks import check_count, check_number
from rfa.aggregators import Layout
from rfa.errors import InvalidValueError, MissingExtraError
from rfa.numerics.draws import binomial_tail
from rfa.privacy import (
    Budget,
    NoisySum,
    SampledRounds,
    epsilon_of,
    multiplier_for,
    readers_epsilon,
)
from rfa.secagg.security.parameters import LARGEST_COHORT
from rfa.secagg.security.terms import Terms

MASS = 0.6
"""The mass of a device in a step: from 0.45 to 0.7 in our runs with a learned radius."""
MOST_ERROR = 1.0
"""The error of a step, over nu, that plans ask for: our runs lost nothing up to twice as much."""
HOPELESS_ERROR = 8.0
"""The error of a step, over nu, beyond which runs hardly learn: EMNIST lost a third there."""
LARGEST_DIM, LARGEST_ROUNDS, LARGEST_EPSILON = 1 << 40, 1 << 30, 1e4
"""Where the search for what would help ends."""


@dataclass(frozen=True)
class NoiseRequest:
    """A request for rounds with noise that cost no device more than a budget.

    Attributes:
        budget: the privacy budget of a device for all sums together.
        rounds: the rounds T.
        devices: the number of devices in the population.
        devices_per_round: the number of devices in a round, which are drawn at random.
        dim: the parameters of the model.
        layout: how the aggregator queries a cohort.
        terms: what the secure sum tolerates.
        mass: whether the aggregator reads the mass.
        near: whether it reads the number of devices that are near.
        confidence: the probability that no device is drawn more often than planned.
        mass_share: the mass of a step divided by the number of its devices.
    """

    budget: Budget
    rounds: int
    devices: int
    devices_per_round: int
    dim: int
    layout: Layout = field(default_factory=Layout)
    terms: Terms = field(default_factory=Terms)
    mass: bool = True
    near: bool = True
    confidence: float = 0.95
    mass_share: float = MASS

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InvalidValueError: if a value is out of range; the message names it.
        """
        for name in ("rounds", "devices", "devices_per_round", "dim"):
            check_count(name, getattr(self, name))
        check_number("mass_share", self.mass_share, positive=True)
        check_draw(self.devices, self.devices_per_round)

    @functools.cached_property
    def device_rounds(self) -> int:
        """The largest number of rounds of any device, from the distribution of the draw."""
        fraction = self.devices_per_round / self.devices
        accepted = (1 - self.confidence) / self.devices
        return _first(
            lambda count: binomial_tail(count + 1, self.rounds, fraction) <= accepted, self.rounds
        )

    @functools.cached_property
    def noise(self) -> NoisySum:
        """The sums of a part with the least noise that stays within the budget.

        Raises:
            InvalidValueError: if no noise is enough; the message says what would help.
        """
        part = self.devices_per_round // self.layout.parts
        shape = {"cohort": part, "honest": self.terms.honest(part), "dim": self.dim}
        sent = {"mass": self.mass, "near": self.near}
        queries = self.device_rounds * self.layout.queries
        return NoisySum(
            multiplier=multiplier_for(self.budget, queries=queries, **shape, **sent),
            **shape,
            **sent,
        )

    @property
    def error(self) -> float:
        """The length of the noise in a step over nu; infinite where no noise is enough."""
        try:
            noise = self.noise
        except InvalidValueError:
            return math.inf
        return math.sqrt(self.dim) * noise.noise_of(noise.cohort) / (self.mass_share * noise.cohort)


@dataclass(frozen=True)
class Enough:
    """Changes that are each enough for an error of MOST_ERROR; None if no value is.

    Attributes:
        devices_per_round: the smallest number of devices per round.
        dim: the largest model.
        rounds: the most rounds.
        epsilon: the smallest epsilon, in tenths.
    """

    devices_per_round: int | None
    dim: int | None
    rounds: int | None
    epsilon: float | None

    def describe(self) -> list[str]:
        """In words."""
        known = [
            (self.devices_per_round, f"{self.devices_per_round} devices per round"),
            (self.dim, f"a model of at most {self.dim or 0:,} parameters"),
            (self.rounds, f"at most {self.rounds} round{'s' * (self.rounds != 1)}"),
            (self.epsilon, f"an epsilon of {self.epsilon or 0:g}"),
        ]
        return [text for value, text in known if value is not None]


@dataclass(frozen=True)
class NoisePlan:
    """The noise that a budget needs, its privacy and its error.

    Attributes:
        multiplier: z, the least noise of a sum divided by what one device can add to the push.
        effective: z_eff = 1 / sqrt(2 rho), which includes mass, near and rounding.
        rho: the charge of a round to each of its devices.
        device_rounds: the largest planned number of rounds of one device.
        delta: the delta of (epsilon, delta)-differential privacy.
        epsilon: against the server, which knows who takes part.
        readers_epsilon: against those who see only the models; None without the extra dp.
        error: the norm of the noise in a step, divided by nu.
        enough: changes that are enough for an error of MOST_ERROR.
    """

    multiplier: float
    effective: float
    rho: float
    device_rounds: int
    delta: float
    epsilon: float
    readers_epsilon: float | None
    error: float
    enough: Enough

    @property
    def verdict(self) -> str:
        """Whether a model will be learned, in words."""
        if self.error <= MOST_ERROR:
            return "little is lost"
        return "learning is slower" if self.error <= HOPELESS_ERROR else "hopeless"


def check_draw(devices: int, devices_per_round: int) -> None:
    """Check that a round can be drawn from a population.

    Raises:
        InvalidValueError: if it takes more devices than there are.
    """
    if devices_per_round > devices:
        msg = f"devices_per_round={devices_per_round} is more than devices={devices}: give at most "
        raise InvalidValueError(msg + f"{devices}")


def plan_noise(request: NoiseRequest) -> NoisePlan:
    """Plan the noise of a budget.

    Raises:
        InvalidValueError: if no noise is enough; the message says what would help.
    """
    enough = Enough(
        devices_enough(request),
        _largest(request, "dim", LARGEST_DIM),
        _largest(request, "rounds", LARGEST_ROUNDS),
        _epsilon_enough(request),
    )
    try:
        noise = request.noise
    except InvalidValueError as error:
        helps = ", or ".join(enough.describe()) or "nothing is enough"
        msg = f"{error}. For an error of {MOST_ERROR:g}: {helps}"
        raise InvalidValueError(msg) from None
    rho = request.layout.queries * noise.rho
    return NoisePlan(
        multiplier=noise.multiplier,
        effective=1 / math.sqrt(2 * noise.rho),
        rho=rho,
        device_rounds=request.device_rounds,
        delta=request.budget.delta,
        epsilon=epsilon_of(request.device_rounds * rho, request.budget.delta),
        readers_epsilon=_readers_epsilon(request, rho),
        error=request.error,
        enough=enough,
    )


def _readers_epsilon(request: NoiseRequest, rho: float) -> float | None:
    rounds = SampledRounds(rho, request.devices_per_round, request.devices, request.rounds)
    with contextlib.suppress(MissingExtraError):
        return readers_epsilon([rounds], request.budget.delta)
    return None


def _fits(request: NoiseRequest) -> bool:
    return request.error <= MOST_ERROR


def devices_enough(request: NoiseRequest) -> int | None:
    """The least devices per round for an error of MOST_ERROR; None if all are too few."""
    most = min(request.devices, LARGEST_COHORT * request.layout.parts)
    least = request.layout.parts * request.terms.smallest(request.layout.queries)
    if least > most or not _fits(dataclasses.replace(request, devices_per_round=most)):
        return None
    return least + _first(
        lambda more: _fits(dataclasses.replace(request, devices_per_round=least + more)),
        most - least,
    )


def _largest(request: NoiseRequest, name: str, most: int) -> int | None:
    """The largest value of a count with which the error is small enough."""
    found = _first(lambda value: not _fits(dataclasses.replace(request, **{name: value + 1})), most)
    return found or None


def _epsilon_enough(request: NoiseRequest) -> float | None:
    """The least epsilon, of two digits, with which the error is small enough."""

    def fits(tenths: int) -> bool:
        budget = Budget((tenths + 1) / 10, request.budget.delta)
        return _fits(dataclasses.replace(request, budget=budget))

    most = round(10 * LARGEST_EPSILON) - 1
    return (_first(fits, most) + 1) / 10 if fits(most) else None


def _first(holds: Callable[[int], bool], most: int) -> int:
    """The first number from 0 on from which on something holds; `most` without asking."""
    low, high = -1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
