"""The whole numbers of a sum with noise: headroom, scales and charge, exactly."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rfa.errors import InvalidValueError
from rfa.privacy import NoisySum
from rfa.privacy.noisy_sum import LARGEST_STD, LEAST_STD, REACH_OF_NOISE

WRAP = 1 << 32


@st.composite
def noisy_sums(draw: st.DrawFn) -> NoisySum:
    cohort = draw(st.integers(1, 1 << 20) | st.integers(1, 100))
    values = {
        "cohort": cohort,
        "honest": draw(st.integers(1, cohort)),
        "multiplier": draw(st.floats(1e-4, 1e4)),
        "dim": draw(st.integers(1, 1 << 40)),
    }
    flags = {"mass": draw(st.booleans()), "near": draw(st.booleans())}
    try:
        return NoisySum(**values, **flags)
    except InvalidValueError:
        assume(False)
        raise


@given(noise=noisy_sums())
def test_the_largest_and_the_smallest_total_come_back_as_they_are(noise: NoisySum) -> None:
    """Also with the largest noise of every device; twice the noise would not have to fit."""
    for sign in (1, -1):
        part = sign * (noise.scale + 1 + REACH_OF_NOISE * noise.std)
        wrapped = noise.cohort * part % WRAP
        assert (wrapped - WRAP if wrapped >= WRAP // 2 else wrapped) == noise.cohort * part


@given(noise=noisy_sums())
def test_the_noise_of_a_device_is_as_fine_as_fits(noise: NoisySum) -> None:
    assert LEAST_STD <= noise.std <= LARGEST_STD
    assert noise.std & (noise.std - 1) == 0
    if noise.std < LARGEST_STD:
        twice = math.isqrt(
            math.floor(Fraction(4 * noise.std**2 * noise.honest) / Fraction(noise.multiplier) ** 2)
        )
        assert noise.cohort * (twice + 1 + REACH_OF_NOISE * 2 * noise.std) >= WRAP // 2


@given(noise=noisy_sums())
def test_scales_are_the_largest_whole_numbers_that_keep_the_multipliers(noise: NoisySum) -> None:
    variance = noise.std**2 * noise.honest
    for factor, scale in ((1, noise.scale), (3, noise.mass_scale), (10, noise.near_scale)):
        z = Fraction(noise.multiplier) * factor
        assert (scale * z) ** 2 <= variance < ((scale + 1) * z) ** 2
        assert scale >= 1


@given(noise=noisy_sums())
def test_the_charge_is_the_formula_in_many_digits(noise: NoisySum) -> None:
    with localcontext() as context:
        context.prec = 60
        push = (noise.scale + Decimal(noise.dim).sqrt()) ** 2
        beside = noise.mass_scale**2 * noise.mass + noise.near_scale**2 * noise.near
        exact = (push + beside) / (2 * noise.honest * noise.std**2)
    assert noise.rho == pytest.approx(float(exact), rel=1e-14)


@given(noise=noisy_sums())
def test_what_is_not_sent_is_not_charged_and_rounding_is(noise: NoisySum) -> None:
    bare = NoisySum(noise.cohort, noise.honest, noise.multiplier, noise.dim, False, False)
    full = NoisySum(noise.cohort, noise.honest, noise.multiplier, noise.dim)
    assert bare.rho < full.rho
    # the push alone without rounding would cost at most 1 / (2 z^2), which the scale rounds down
    assert bare.rho > (bare.scale / bare.std) ** 2 / (2 * bare.honest)


@settings(max_examples=30)
@given(
    z=st.floats(0.2, 20),
    dim=st.integers(1, 3000),
    seed=st.integers(0, 2**32 - 1),
    short=st.floats(0, 1),
)
def test_no_part_of_a_device_is_longer_than_is_charged_for(
    z: float, dim: int, seed: int, short: float
) -> None:
    """A push of length at most 1, rounded up or down at random in each coordinate."""
    noise, rng = NoisySum(20, 14, z, dim), np.random.default_rng(seed)
    push = rng.standard_normal(dim) * (rng.random(dim) < 0.5)
    push *= short / max(1e-300, float(np.linalg.norm(push)))
    units = np.floor(push * noise.scale + rng.random(dim))
    assert np.linalg.norm(units) <= noise.scale + math.sqrt(dim)
    worst = np.where(push > 0, np.ceil(push * noise.scale), np.floor(push * noise.scale))
    assert np.linalg.norm(worst) <= noise.scale + math.sqrt(dim)


def test_the_numbers_of_a_thousand_devices() -> None:
    noise = NoisySum(cohort=1000, honest=700, multiplier=1.2, dim=7850)
    assert (noise.std, noise.scale) == (2048, 45154)
    assert noise.noise_of(700) == pytest.approx(1.2, rel=1e-4)
    assert noise.noise_of(1000) == pytest.approx(1.2 * math.sqrt(1000 / 700), rel=1e-4)
    effective = 1 / math.sqrt(2 * NoisySum(1000, 700, 1.2, 1).rho)
    assert effective / 1.2 == pytest.approx(0.944, abs=1e-3), "z_m = 3 z and z_b = 10 z"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"cohort": 0}, "cohort must be a whole number from 1 on"),
        ({"honest": 0}, "honest must be"),
        ({"honest": 101}, "honest=101 is more than the cohort of 100"),
        ({"dim": 0}, "dim must be"),
        ({"multiplier": 0}, "multiplier must be a positive number"),
        ({"multiplier": math.nan}, "multiplier must be a positive number"),
        ({"multiplier": 1e-6}, "too little for whole numbers of 32 bits .* give more noise"),
        ({"multiplier": 1e5}, "leaves no digits .* give less noise, or more devices"),
        ({"cohort": 1 << 24}, "too little for whole numbers"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(values: dict[str, float], what: str) -> None:
    usual = {"cohort": 100, "honest": 70, "multiplier": 1.0, "dim": 10}
    with pytest.raises(InvalidValueError, match=what):
        NoisySum(**{**usual, **values})  # pyright: ignore[reportArgumentType]
