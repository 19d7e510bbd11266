"""The whole numbers of a sum with noise: scales, headroom, and what the sum is charged.

Each device adds, before it masks, independent discrete Gaussian noise of variance u^2 to every
whole number that it sends. At least H = n - f - c of the devices in an opened sum are honest and
not known to the server, so that the sum holds noise of a variance of at least H u^2. Values travel
in units of 1 / S with

    S = floor(u sqrt(H) / z)        for the push,
    S_mass = floor(u sqrt(H) / (3 z)),   S_near = floor(u sqrt(H) / (10 z)),

so that the noise is at least z times what a device can add to the push, 3 z times what it can
add to the mass, and 10 z times what it can add to the count of those near. Rounding adds less than
1 to each of d coordinates, so that a device changes the push by at most S + sqrt(d) units. A sum of
discrete Gaussians of that many units is charged as a discrete Gaussian is (Kairouz, Liu and
Steinke 2021, Proposition 14, whose correction is far below any float for u >= 16), hence

    rho = ((S + sqrt(d))^2 + S_mass^2 + S_near^2) / (2 H u^2).

    >>> noise = NoisySum(cohort=1000, honest=700, multiplier=1.2, dim=7850)
    >>> noise.scale, round(noise.rho, 4)
    (45154, 0.3906)
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from rfa._checks import check_count, check_number
from rfa.errors import InvalidValueError

LARGEST_STD, LEAST_STD = 2048, 16
"""The standard deviation u of a device's noise in units: powers of two, as large as fits."""
REACH_OF_NOISE = 14
"""No sample is more standard deviations away from 0: the table of the sampler ends before."""
MASS_FACTOR, NEAR_FACTOR = 3, 10
"""How many times the multiplier of the push those of the mass and of the count of those near are:
with both, a sum costs 1.12 times the charge of the push alone, and steers nearly as well."""
HALF = 1 << 31


@dataclass(frozen=True)
class NoisySum:
    """The fixed point of a sum with noise, and its charge.

    *Formal guarantees*:
        no total of at most `cohort` devices that follow the protocol wraps around
        (test_noise_encoding.py::test_no_total_wraps_around,
        test_noisy_sum.py::test_the_largest_and_the_smallest_total_come_back_as_they_are);
        one device adds at most `scale + sqrt(dim)` units to the push, `mass_scale` to the mass and
        `near_scale` to those near
        (test_noise_encoding.py::test_no_device_adds_more_than_it_is_charged_for);
        a sum with the noise of `honest` devices, or more, tells no more than it is charged
        (test_exact_costs.py::test_a_number_of_a_sum,
        test_exact_costs.py::test_several_numbers_of_a_sum,
        test_exact_costs.py::test_more_noise_than_promised_costs_less).

    Attributes:
        cohort: n, the devices that may be in the sum.
        honest: H = n - f - c, the honest devices that are in it for sure.
        multiplier: z, the least noise of the sum over what one device can add to the push.
        dim: the number of coordinates d.
        mass: whether the mass travels.
        near: whether the count of those near travels.
    """

    cohort: int
    honest: int
    multiplier: float
    dim: int
    mass: bool = True
    near: bool = True

    def __post_init__(self) -> None:
        """Check the numbers, and prove that no total can wrap around, or refuse."""
        for name in ("cohort", "honest", "dim"):
            check_count(name, getattr(self, name))
        check_number("multiplier", self.multiplier, positive=True)
        if self.honest > self.cohort:
            msg = f"honest={self.honest} is more than the cohort of {self.cohort}"
            raise InvalidValueError(msg)
        if not self._fits(self.std):
            msg = f"noise of multiplier {self.multiplier:g} is too little for whole numbers of 32 "
            msg += f"bits over {self.cohort} devices: give more noise, or fewer devices per sum"
            raise InvalidValueError(msg)
        if self.near_scale < 1:
            msg = f"noise of multiplier {self.multiplier:g} leaves no digits of a sum over "
            msg += f"{self.honest} honest devices: give less noise, or more devices per sum"
            raise InvalidValueError(msg)

    @functools.cached_property
    def std(self) -> int:
        """u, the standard deviation of one device's noise in units: as large as fits."""
        std = LARGEST_STD
        while std > LEAST_STD and not self._fits(std):
            std //= 2
        return std

    @functools.cached_property
    def scale(self) -> int:
        """S, the units in 1 of the push."""
        return self._scale(self.std, 1)

    @functools.cached_property
    def mass_scale(self) -> int:
        """The units in a mass of 1."""
        return self._scale(self.std, MASS_FACTOR)

    @functools.cached_property
    def near_scale(self) -> int:
        """The units of one device that is near."""
        return self._scale(self.std, NEAR_FACTOR)

    @property
    def rho(self) -> float:
        """The charge of the sum, in zCDP, to each device that is in it."""
        units = (self.scale + math.sqrt(self.dim)) ** 2
        units += self.mass_scale**2 * self.mass + self.near_scale**2 * self.near
        return units / (2 * self.honest * self.std**2)

    def noise_of(self, devices: int) -> float:
        """The standard deviation of each coordinate of the push of a sum over that many devices."""
        return math.sqrt(devices) * self.std / self.scale

    def _scale(self, std: int, factor: int) -> int:
        """The largest S with S z factor <= u sqrt(H), exactly."""
        above, below = float(self.multiplier).as_integer_ratio()
        return math.isqrt((std * below) ** 2 * self.honest // (above * factor) ** 2)

    def _fits(self, std: int) -> bool:
        """Whether totals stay within 32 bits."""
        return self.cohort * (self._scale(std, 1) + 1 + REACH_OF_NOISE * std) < HALF
