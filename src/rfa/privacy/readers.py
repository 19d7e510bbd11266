"""Epsilon against readers of the models, who see neither the sums nor who took part.

They do not know who was in a round, which makes epsilon smaller than against the server. By how
much depends on how cohorts are drawn:

    fixed     m of N devices, without replacement, as the lab and Flower draw them.
    poisson   each device by itself with probability m / N. Few systems draw so; papers count so.

The second is often taken for the first, and is too small by a factor where there is little noise:
where a device is drawn another is not, so that its data can move a sum by twice its length. Both
are computed from privacy loss distributions with Google's dp-accounting, rounded up (extra `dp`).
What one round of fixed size tells at most is exact here (decision 0020). With q = m / N, mu the
length of a device's part over the noise, and data sets that differ in one device, which has data in
the first and none in the second, the largest delta at epsilon = log e >= 0 is

    q (F(-t) - (a - e) F(-t - 2 mu) - e F(-t - mu)),    a = 1 + (e - 1) / q,
    (a - e) exp(-2 mu^2 - 2 mu t) + e exp(-mu^2 / 2 - mu t) = 1 for t,

F being the normal distribution function; the other way round it is q times that of Gaussian noise
at log a. Rounds compose, also unequal ones.

    >>> rounds = [SampledRounds(rho=0.02, cohort=100, population=1000, count=100)]
    >>> round(readers_epsilon(rounds, 1e-5), 2), round(readers_epsilon(rounds, 1e-5, "poisson"), 2)
    (0.93, 0.76)
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rfa._checks import check_choice, check_count, check_number
from rfa._types import Floats
from rfa.errors import InvalidValueError, MissingExtraError
from rfa.privacy.zcdp import check_delta

SAMPLING = ("fixed", "poisson")
_REACH = 10.0
"""Losses are followed for this number of deviations of the noise; those beyond are certain."""
_LARGEST_RHO = 50.0
"""Rounds with less noise than a tenth of what a device adds tell all of those who are drawn."""
_STEP, _LEAST_POINTS, _MOST_POINTS = 1e-3, 200, 10_000
"""Losses are rounded up to this, or to a value that leaves this number of them."""
_ERROR, _FEW_ROUNDS, _LEAST_ERRORS = 1e-16, 1000, 100
"""Transforms of composed losses are off by a few parts in 10^17 a round, some rounds at the least:
by less than this. A delta must be this number of times larger."""


@dataclass(frozen=True)
class SampledRounds:
    """Rounds of one kind.

    Attributes:
        rho: the charge of a round to each of its devices, of all of its sums together.
        cohort: the devices that are drawn for a round.
        population: of how many.
        count: the rounds.
    """

    rho: float
    cohort: int
    population: int
    count: int = 1

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InvalidValueError: if a value is out of range; the message names it.
        """
        check_number("rho", self.rho)
        for name in ("cohort", "population"):
            check_count(name, getattr(self, name))
        check_count("count", self.count, least=0)
        if self.cohort > self.population:
            msg = (
                f"cohort={self.cohort} is more than the population: give at most {self.population}"
            )
            raise InvalidValueError(msg)

    @property
    def fraction(self) -> float:
        """The probability with which a device is drawn."""
        return self.cohort / self.population

    @property
    def shift(self) -> float:
        """How far a device moves the sums of a round at most, over their noise: 1 / z_eff."""
        return math.sqrt(2 * self.rho)


def readers_epsilon(
    rounds: Iterable[SampledRounds], delta: float, sampling: str = "fixed"
) -> float:
    """Return the epsilon of any one device against those who see only the models.

    *Formal guarantees*:
        no data set makes a round of fixed size reveal more
        (privacy/test_readers.py::test_no_data_set_is_told_more_about_in_one_round,
        privacy/test_readers.py::test_no_other_device_makes_it_worse);
        nor in several (privacy/test_readers.py::test_no_data_set_is_told_more_about_in_two_rounds);
        rounding errors do not make it smaller
        (privacy/test_readers.py::test_a_tiny_delta_is_not_lost_in_rounding_errors).

    The noise is treated as Gaussian. It consists of integers, but with hundreds of units or more
    that changes no digit that is shown. Cohorts must be drawn at random, independent of the data
    and of earlier draws, and stay secret. If all devices are in each round, nothing is uncertain,
    and the result is that of Gaussian noise. The same holds if floats do not resolve the delta, or
    if there is hardly any noise.

    Args:
        rounds: the rounds, in any order.
        delta: the delta of (epsilon, delta)-differential privacy.
        sampling: how cohorts were drawn: "fixed" or "poisson".

    Raises:
        InvalidValueError: if a value is out of range.
        MissingExtraError: if devices were sampled and dp-accounting is not installed.
    """
    check_delta(delta)
    check_choice("sampling", sampling, SAMPLING)
    kinds = [kind for kind in rounds if kind.rho and kind.count]
    if not kinds:
        return 0.0
    without = gaussian_epsilon(math.sqrt(sum(kind.count * 2 * kind.rho for kind in kinds)), delta)
    error = _ERROR * (_FEW_ROUNDS + sum(kind.count for kind in kinds))
    lost = max(kind.rho for kind in kinds) > _LARGEST_RHO or delta < _LEAST_ERRORS * error
    if lost or all(kind.fraction == 1 for kind in kinds):
        return without
    reach = [_largest_loss(kind.shift, kind.fraction) for kind in kinds]
    step = max(min(_STEP, min(reach) / _LEAST_POINTS), max(reach) / _MOST_POINTS)
    make = {"fixed": _fixed, "poisson": _poisson}[sampling]
    losses = [make(kind.shift, kind.fraction, step).self_compose(kind.count) for kind in kinds]
    told = functools.reduce(lambda one, other: one.compose(other), losses)
    return min(without, float(told.get_epsilon_for_delta(delta - error)))


def gaussian_epsilon(shift: float, delta: float) -> float:
    """Return the smallest epsilon of Gaussian noise that a device shifts by `mu` deviations."""
    low, high = 0.0, 1.0
    while _gaussian_delta(high, shift) > delta:
        low, high = high, 2 * high
    if _gaussian_delta(0.0, shift) <= delta:
        return 0.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if _gaussian_delta(middle, shift) <= delta else (middle, high)
    return high


def _gaussian_delta(epsilon: float, shift: float) -> float:
    """The delta of the same at an epsilon."""
    here, there = (epsilon / shift - shift / 2), (epsilon / shift + shift / 2)
    tail = math.erfc(there / math.sqrt(2)) / 2
    grown = math.exp(epsilon + math.log(tail)) if tail else 0.0
    return math.erfc(here / math.sqrt(2)) / 2 - grown


def _package(name: str) -> Any:
    """A module of dp-accounting, or of scipy, which it brings.

    Raises:
        MissingExtraError: naming the extra that brings it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        msg = "what readers of the models learn takes dp-accounting: pip install 'rfa[dp]' "
        raise MissingExtraError(msg + f"({error})") from error


def _largest_loss(shift: float, fraction: float) -> float:
    """How far losses of a round are followed."""
    loss = (2 * shift) ** 2 / 2 + _REACH * 2 * shift
    return math.log1p(fraction * math.expm1(loss))


@functools.lru_cache(maxsize=64)
def _poisson(shift: float, fraction: float, step: float) -> Any:
    """The losses of a round in which each device is by itself."""
    distribution = _package("dp_accounting.pld.privacy_loss_distribution")
    return distribution.from_gaussian_mechanism(
        1 / shift, value_discretization_interval=step, sampling_prob=fraction
    )


@functools.lru_cache(maxsize=64)
def _fixed(shift: float, fraction: float, step: float) -> Any:
    """The losses of a round of fixed size, for a device that has data and for one without."""
    distribution = _package("dp_accounting.pld.privacy_loss_distribution")
    pmf = _package("dp_accounting.pld.pld_pmf")
    most = math.ceil(_largest_loss(shift, fraction) / step)
    epsilons = np.arange(-most, most + 1, dtype=np.float64) * step
    leaves, joins = (
        _leaves(np.abs(epsilons), shift, fraction),
        _joins(np.abs(epsilons), shift, fraction),
    )
    both = [
        pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -most, most, profile)
        for profile in (_glued(epsilons, leaves, joins), _glued(epsilons, joins, leaves))
    ]
    return distribution.PrivacyLossDistribution(*both)


def _glued(epsilons: Floats, forth: Floats, back: Floats) -> Floats:
    """Deltas at all epsilons: below 0 they are those of the neighbors the other way round."""
    negative = np.minimum(epsilons, 0.0)
    below = -np.expm1(negative) + np.exp(negative) * back
    return np.clip(np.where(epsilons >= 0, forth, below), 0.0, 1.0)


def _leaves(epsilon: Floats, shift: float, fraction: float) -> Floats:
    """H at e = exp(epsilon) of a device with data against none: the largest over all data."""
    special = _package("scipy.special")
    with np.errstate(divide="ignore"):
        log_apart = _log_expm1(epsilon) + np.log1p(-fraction) - np.log(fraction)
    linear = epsilon - shift**2 / 2
    square = np.exp(log_apart - 2 * shift**2 - 2 * linear)
    t = (linear + np.log1p(np.sqrt(1 + 4 * square)) - math.log(2)) / shift
    told = np.exp(log_apart + special.log_ndtr(-t - 2 * shift))
    told += np.exp(epsilon + special.log_ndtr(-t - shift))
    return fraction * (special.ndtr(-t) - told)


def _joins(epsilon: Floats, shift: float, fraction: float) -> Floats:
    """The same of none against a device with data."""
    special = _package("scipy.special")
    base = np.logaddexp(_log_expm1(epsilon) - math.log(fraction), 0.0)
    told = np.exp(base + special.log_ndtr(-base / shift - shift / 2))
    return fraction * (special.ndtr(-base / shift + shift / 2) - told)


def _log_expm1(epsilon: Floats) -> Floats:
    """The logarithm of exp(epsilon) - 1, also where that is too large for a float."""
    with np.errstate(divide="ignore"):
        return epsilon + np.log(-np.expm1(-epsilon))
