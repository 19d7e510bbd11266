"""Charges against what sums really tell, by direct summation over the noise of the devices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rfa._types import Floats
from rfa.privacy import NoisySum, epsilon_of
from tests.privacy.exact import delta_of, discrete_gaussian, epsilon_at, product, shifted, summed

DELTAS = (1e-2, 1e-4, 1e-6, 1e-9)


def check(p: Floats, q: Floats, rho: float, *, loose: float = 1.4) -> None:
    """The charge covers what two worlds tell, and is not far above it."""
    for delta in DELTAS:
        claimed = epsilon_of(rho, delta)
        assert delta_of(p, q, claimed) <= delta * (1 + 1e-9)
        assert claimed <= loose * epsilon_at(p, q, delta) + 0.05


@pytest.mark.parametrize("std", [16, 32])
@pytest.mark.parametrize("honest", [1, 2, 5])
@pytest.mark.parametrize("shift", [1, 7, 40, 100])
def test_a_number_of_a_sum(std: int, honest: int, shift: int) -> None:
    total = summed(discrete_gaussian(std), honest)
    check(*shifted(total, shift), rho=shift**2 / (2 * honest * std**2))


def test_half_of_the_charge_would_not_cover_it() -> None:
    """So the check above would notice a forgotten factor of two."""
    p, q = shifted(summed(discrete_gaussian(16), 3), 40)
    rho = 40**2 / (2 * 3 * 16**2)
    assert delta_of(p, q, epsilon_of(rho / 2, 1e-6)) > 1e-6


@pytest.mark.parametrize("shifts", [(20, 7), (20, -20), (33, 1)])
def test_several_numbers_of_a_sum(shifts: tuple[int, int]) -> None:
    """Push and mass, or two coordinates: one device moves both."""
    total = summed(discrete_gaussian(16, reach=9), 2)
    pairs = [shifted(total, shift) for shift in shifts]
    check(*product(pairs), rho=sum(shift**2 for shift in shifts) / (2 * 2 * 16**2))


@pytest.mark.parametrize(("first", "second"), [(20, 20), (30, 9)])
def test_charges_of_rounds_add_up(first: int, second: int) -> None:
    """Also of rounds with other noise: the second has three honest devices, the first two."""
    pairs = [
        shifted(summed(discrete_gaussian(16, reach=9), 2), first),
        shifted(summed(discrete_gaussian(16, reach=9), 3), second),
    ]
    rho = first**2 / (2 * 2 * 16**2) + second**2 / (2 * 3 * 16**2)
    check(*product(pairs), rho=rho)


def test_more_noise_than_promised_costs_less() -> None:
    """Where nobody is lost there are more devices in a sum than are sure to be."""
    for devices in (3, 4, 6):
        p, q = shifted(summed(discrete_gaussian(16), devices), 40)
        for delta in DELTAS:
            assert delta_of(p, q, epsilon_of(40**2 / (2 * 3 * 16**2), delta)) <= delta


@pytest.mark.parametrize("multiplier", [0.5, 1.2, 7.0])
def test_a_sum_as_it_is_sent(multiplier: float) -> None:
    """One coordinate, at the scale and the noise of the protocol: 2048 units a device."""
    noise = NoisySum(3, 3, multiplier, 1, mass=False, near=False)
    single = discrete_gaussian(noise.std)
    size = 1 << math.ceil(math.log2(3 * single.size))
    total = np.maximum(0, np.fft.irfft(np.fft.rfft(single, size) ** 3, size)[: 3 * single.size - 2])
    p, q = shifted(np.asarray(total, np.float64), noise.scale + 1)
    check(p, q, noise.rho)
