"""What may be spent, what was spent by whom, and the noise that a budget asks for.

>>> budget = Budget(epsilon=8.0)
>>> z = multiplier_for(budget, queries=100, cohort=1000, honest=700, dim=7850)
>>> round(z, 2)
6.82
>>> spent = Charges()
>>> for _ in range(100):
...     spent = spent.after([3, 5], NoisySum(1000, 700, z, 7850).rho)
>>> round(spent.epsilon(budget.delta), 3), spent.overspent([3, 4], 0.1, budget)
(7.999, (3,))
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfa._checks import check_count, check_number
from rfa.errors import InvalidValueError
from rfa.privacy.noisy_sum import LARGEST_STD, LEAST_STD, NEAR_FACTOR, NoisySum
from rfa.privacy.zcdp import check_delta, epsilon_of, rho_of

DELTA = 1e-5
"""The delta where none is given: below one over the devices of most federations."""
SLACK = 1e-9
"""How far calibrated noise stays below its budget, in parts of it: more than what the rounding
errors of a million charges add up to, so that the last sum of a plan is never refused."""


@dataclass(frozen=True)
class Budget:
    """A privacy budget: a limit on all sums that a device is in, together.

    Attributes:
        epsilon: the logarithm of the factor by which the data of a device can change the
            probability of any outcome.
        delta: the delta of (epsilon, delta)-differential privacy.
    """

    epsilon: float
    delta: float = DELTA

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InvalidValueError: if a value is out of range; the message names it.
        """
        check_number("epsilon", self.epsilon, positive=True)
        check_delta(self.delta)

    @functools.cached_property
    def rho(self) -> float:
        """The largest charge, in zCDP, that the budget allows."""
        return rho_of(self.epsilon, self.delta)


@dataclass(frozen=True)
class Charges:
    """The charge of each device so far; an immutable value.

    *Formal guarantees*:
        a device is charged for the sums that it was in, and for no others
        (test_budget.py::test_each_device_is_charged_for_its_rounds_alone);
        charges that add up cover all sums together
        (test_exact_costs.py::test_charges_of_rounds_add_up).

    Attributes:
        charges: devices and their charges in zCDP, by the device.
    """

    charges: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Check the charges, and order them.

        Raises:
            InvalidValueError: if a charge is invalid, or a device is listed twice.
        """
        for device, rho in self.charges:
            check_count("device", device, least=0)
            check_number(f"the charge of device {device}", rho)
        ordered = tuple(sorted((int(device), float(rho)) for device, rho in self.charges))
        object.__setattr__(self, "charges", ordered)
        if len(self._by_device) != len(ordered):
            msg = "charges name a device twice: give one charge for each"
            raise InvalidValueError(msg)

    @functools.cached_property
    def _by_device(self) -> dict[int, float]:
        return dict(self.charges)

    def of(self, device: int) -> float:
        """The charge of a device; 0 for one that was in no sum."""
        return self._by_device.get(device, 0.0)

    def after(self, devices: Iterable[int], rho: float) -> Charges:
        """Return the charges after sums that cost each of these devices this charge.

        Raises:
            InvalidValueError: if the charge is out of range, or a device is named twice.
        """
        check_number("rho", rho)
        asked = list(devices)
        if len(set(asked)) != len(asked):
            msg = "a device is in a sum once: name each device once"
            raise InvalidValueError(msg)
        return Charges(tuple((self._by_device | {i: self.of(i) + rho for i in asked}).items()))

    @property
    def largest(self) -> float:
        """The charge of the device that was charged most; 0 for none."""
        return max((rho for _, rho in self.charges), default=0.0)

    def epsilon(self, delta: float = DELTA) -> float:
        """The epsilon, against the server, of the device that was charged most."""
        return epsilon_of(self.largest, delta)

    def overspent(self, devices: Iterable[int], rho: float, budget: Budget) -> tuple[int, ...]:
        """The devices of a sum that it would take over the budget."""
        check_number("rho", rho)
        return tuple(sorted(i for i in devices if self.of(i) + rho > budget.rho))

    def pack(self) -> dict[str, list[Any]]:
        """As plain values, for checkpoints."""
        return {"devices": [i for i, _ in self.charges], "rho": [rho for _, rho in self.charges]}

    @classmethod
    def unpack(cls, packed: Mapping[str, Sequence[Any]]) -> Charges:
        """The charges that `pack` packed.

        Raises:
            InvalidValueError: if these are no charges.
        """
        try:
            devices, rho = list(packed["devices"]), list(packed["rho"])
        except (KeyError, TypeError):
            msg = "no packed charges: there must be lists of devices and of rho"
            raise InvalidValueError(msg) from None
        if len(devices) != len(rho):
            msg = f"no packed charges: {len(devices)} devices and {len(rho)} charges"
            raise InvalidValueError(msg)
        return cls(tuple(zip(devices, rho, strict=True)))


def multiplier_for(  # noqa: PLR0913
    budget: Budget,
    *,
    queries: int,
    cohort: int,
    honest: int,
    dim: int,
    mass: bool = True,
    near: bool = True,
) -> float:
    """Return the smallest noise multiplier z with which the sums cost a device at most the budget.

    *Formal guarantees*:
        sums with this noise stay within the budget, those with less do not, and the last of them is
        not refused for a rounding error
        (test_budget.py::test_the_noise_of_a_budget_is_the_least_and_is_never_refused).

    Args:
        budget: the limit on their total cost.
        queries: the number of sums that one device is in, over all rounds.
        cohort: n, the number of devices that may be in a sum.
        honest: H = n - f - c, the number of honest devices that are in it for certain.
        dim: the number of coordinates d.
        mass: whether the mass is sent.
        near: whether the count of near devices is sent.

    Raises:
        InvalidValueError: if no noise is enough; the message says what would help.
    """
    check_count("queries", queries)
    allowed = budget.rho * (1 - SLACK) / queries

    def noisy(multiplier: float) -> NoisySum:
        return NoisySum(cohort, honest, multiplier, dim, mass, near)

    most = _most_noise(noisy, honest)
    if most.rho > allowed:
        epsilon = epsilon_of(most.rho * queries, budget.delta)
        msg = f"epsilon={budget.epsilon:g} cannot be had for {queries} sums of {dim} coordinates "
        msg += f"with {honest} honest devices: with all the noise that fits it is {epsilon:.3g}. "
        msg += (
            "Ask more devices per round, or take fewer rounds, a smaller model or a larger epsilon"
        )
        raise InvalidValueError(msg)
    return _least(most.multiplier, lambda z: _charge(noisy, z) <= allowed)


def _most_noise(noisy: Callable[[float], NoisySum], honest: int) -> NoisySum:
    """The sum with the most noise that leaves a digit to each number."""
    check_count("honest", honest)
    std = LARGEST_STD
    while True:
        try:
            return noisy(std * math.sqrt(honest) / NEAR_FACTOR * (1 - SLACK))
        except InvalidValueError:
            if std <= LEAST_STD:
                raise
            std //= 2


def _charge(noisy: Callable[[float], NoisySum], multiplier: float) -> float:
    """The charge of a sum; infinite for so little noise that whole numbers cannot hold the sum."""
    try:
        return noisy(multiplier).rho
    except InvalidValueError:
        return math.inf


def _least(enough: float, holds: Callable[[float], bool]) -> float:
    """The least float for which something holds, from one for which it does down to 0."""
    low, high = 0.0, enough
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
