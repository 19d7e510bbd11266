"""Zero-concentrated differential privacy: charges that add up, and their epsilon.

A sum with Gaussian noise of standard deviation z times what one device can change it by is
rho-zCDP with rho = 1 / (2 z^2). Charges of several sums add up, whatever was asked in which order
(Bun and Steinke 2016). A total charge rho means (epsilon, delta) for every delta at once:

    epsilon(rho, delta) = min over a > 1 of a rho + log(1 / (a delta)) / (a - 1) + log(1 - 1 / a)

(Canonne, Kamath and Steinke 2020, Proposition 12), which is never more than the closed form
rho + 2 sqrt(rho log(1 / delta)).

    >>> round(epsilon_of(0.5, 1e-5), 3), round(rho_of(8.0, 1e-5), 3)
    (4.728, 1.23)
"""

from __future__ import annotations

import math

from rfa._checks import check_number
from rfa.errors import InvalidValueError

LEAST_DELTA = 1e-15
"""Below this, what samplers and floating point leave out would no longer be negligible."""
_STEPS = 100
"""Thirds of an interval of 120: more than the digits of a float."""


def epsilon_of(rho: float, delta: float) -> float:
    """Return the epsilon of a total charge at a delta.

    *Formal guarantee*: it is never below what Gaussian noise of this charge costs exactly
    (test_zcdp.py::test_it_is_above_what_gaussian_noise_exactly_costs_and_not_by_much).

    Args:
        rho: the charge, 0 or more.
        delta: the delta of (epsilon, delta)-differential privacy, below 1.

    Raises:
        InvalidValueError: if a value is out of range.
    """
    check_number("rho", rho)
    check_delta(delta)
    if rho == 0:
        return 0.0
    # with a = 1 + t the bound is convex in log t around its minimum: search for that by thirds
    low, high = -60.0, 60.0
    for _ in range(_STEPS):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if _bound(rho, delta, left) <= _bound(rho, delta, right):
            high = right
        else:
            low = left
    return max(0.0, min(_bound(rho, delta, low), rho + 2 * math.sqrt(-rho * math.log(delta))))


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest charge whose epsilon at a delta is at most this one.

    *Formal guarantee*: its epsilon is not above this one, and that of a larger charge is
    (test_zcdp.py::test_rho_is_the_largest_charge_of_an_epsilon).

    Raises:
        InvalidValueError: if a value is out of range.
    """
    check_number("epsilon", epsilon, positive=True)
    check_delta(delta)
    low, high = 0.0, epsilon  # epsilon_of(rho) exceeds rho for a delta below 1/2
    while epsilon_of(high, delta) <= epsilon:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low


def check_delta(delta: float) -> None:
    """Check that a delta has a meaning.

    Raises:
        InvalidValueError: naming it.
    """
    check_number("delta", delta, positive=True)
    if not LEAST_DELTA <= delta < 1:
        msg = f"delta must be from {LEAST_DELTA:g} to below 1, such as 1e-5, not {delta!r}"
        raise InvalidValueError(msg)


def large_delta(delta: float, devices: float) -> str:
    """Return a warning with the remedy if delta is too large for this number of devices, or "".

    A mechanism that reveals everything about each device with probability delta satisfies every
    epsilon.

    >>> large_delta(1e-5, 1000), large_delta(1e-5, 2_000_000)
    ('', 'it may reveal everything about 20 of 2000000 devices: give a delta of 1e-07 or less')
    """
    told = delta * devices
    if told < 1:
        return ""
    fine = 10.0 ** -math.ceil(math.log10(devices) + 1e-9)
    who = f"{told:.0f} of {devices:.0f} devices"
    return f"it may reveal everything about {who}: give a delta of {fine:g} or less"


def _bound(rho: float, delta: float, log_t: float) -> float:
    """The bound at a = 1 + t."""
    t = math.exp(log_t)
    inverse = math.log1p(t)  # log a
    return (1 + t) * rho - (math.log(delta) + inverse) / t + log_t - inverse
