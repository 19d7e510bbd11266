"""What one device adds with noise, and what totals with noise can be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rfa.aggregators import RFA, Mean, OneStepRFA
from rfa.errors import InvalidValueError
from rfa.oracle import RecordingOracle, Sum
from rfa.privacy import NoisySum
from rfa.privacy.noisy_sum import HALF, REACH_OF_NOISE
from rfa.secagg import fixed_point
from rfa.secagg.crypto.gaussian import NoiseStream, table_of
from rfa.secagg.errors import (
    ImplausibleSumError,
    ParameterError,
)
from rfa.secagg.fixed_point import Contribution, Encoding
from rfa.secagg.security.terms import Terms
from rfa.secagg.statistics import mask_of
from rfa.secagg.words import TAIL

ZERO = np.zeros(0, np.float32)
KEY, NOISE = bytes(range(16)), bytes(range(16, 32))
TOTALS = mask_of(("mass", "near"))
TERMS = Terms(colluder_fraction=0.3, max_dropout_fraction=0.3, min_honest_fraction=0.2)


@pytest.mark.parametrize("dim", [1, 3, 100])
@settings(max_examples=50)
@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1e9), st.integers(0, 2**32 - 1))
def test_no_device_adds_more_than_it_is_charged_for(
    dim: int, z: float, length: float, seed: int
) -> None:
    """S + sqrt(d) units to the push, S_mass to the mass, S_near to those near."""
    rng = np.random.default_rng(seed)
    try:
        scales = NoisySum(cohort=20, honest=12, multiplier=z, dim=dim)
    except InvalidValueError:
        return
    direction = rng.standard_normal(dim)
    update = (length * direction / np.linalg.norm(direction)).astype(np.float32)
    code = Encoding(20, TOTALS, True, scales)
    part = code.encode(Contribution(update, equal_weights=True), ZERO, 1.0, KEY, noise=NOISE)
    stream = NoiseStream(scales.std, NOISE)
    mass, near = (value - int(stream.draw(1)[0]) for value in part.tail[:2])
    words = part.words.view(np.int32).astype(np.int64) - stream.draw(dim)
    assert math.sqrt(float((words**2).sum())) <= scales.scale + math.sqrt(dim)
    assert 0 <= mass % TAIL <= scales.mass_scale
    assert near % TAIL in (0, scales.near_scale)
    assert part.tail[2] == 1


def short(_push: object) -> float:
    """A length that is plausible."""
    return 0.0


@pytest.mark.parametrize("cohort", [3, 10, 1000, 20_000])
@pytest.mark.parametrize("sign", [-1, 1])
def test_no_total_wraps_around(cohort: int, sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the least noise that fits, and the largest sample for every device at once."""
    low, high = 1e-9, 1e3
    for _ in range(60):
        middle = math.sqrt(low * high)
        try:
            NoisySum(cohort, cohort, middle, 2)
        except InvalidValueError:
            low = middle
        else:
            high = middle
    scales = NoisySum(cohort, cohort, high, 2)
    reach_of = table_of(scales.std).largest
    assert reach_of < REACH_OF_NOISE * scales.std

    class Extreme(NoiseStream):
        def draw(self, count: int) -> NDArray[np.int16]:
            return np.full(count, sign * reach_of, np.int16)

    monkeypatch.setattr(fixed_point, "NoiseStream", Extreme)
    code = Encoding(cohort, TOTALS, True, scales)
    update = np.array([sign, 0.0], np.float32)
    part = code.encode(Contribution(update, equal_weights=True), ZERO, 1.0, KEY, noise=NOISE)
    one = part.words.view(np.int32).astype(np.int64)
    assert cohort * np.abs(one).max() < HALF
    words = (cohort * part.words.astype(np.uint64)).astype(np.uint32)
    tail = [cohort * value % TAIL for value in part.tail]
    monkeypatch.setattr(fixed_point, "length_of", short)  # it is as long as no honest sum is
    total = code.decode(words, tail)
    assert total.sum.push.tolist() == (cohort * one / scales.scale).tolist()
    assert total.sum.count == cohort


SCALES = NoisySum(cohort=10, honest=6, multiplier=1.0, dim=4)
CODE = Encoding(10, TOTALS, True, SCALES)


def decoded(push: float, mass: float, near: float, count: int) -> fixed_point.Total:
    words = np.zeros(4, np.int32)
    words[0] = round(push * SCALES.scale)
    units = SCALES.mass_scale, SCALES.near_scale, 1
    tail = [round(a * b) % TAIL for a, b in zip((mass, near, count), units, strict=True)]
    return CODE.decode(words.view(np.uint32), tail)


def test_totals_may_be_less_than_nothing_or_more_than_all() -> None:
    for mass, near in ((-30.0, -120.0), (44.0, 150.0)):
        total = decoded(3.0, mass, near, 8)
        assert total.sum.mass == pytest.approx(mass, rel=1e-3)
        assert total.sum.near == pytest.approx(near, rel=1e-2)
        assert total.sum.noise == SCALES.noise_of(8)
        assert (total.mass, total.metrics) == (0, ())
        assert total.statistics["count"] == total.sum.weight == 8


@pytest.mark.parametrize("count", [-1, 0, 11, 1 << 40])
def test_the_count_is_exact(count: int) -> None:
    with pytest.raises(ImplausibleSumError, match="the total count"):
        decoded(0.0, 4.0, 4.0, count)


def test_a_push_is_no_longer_than_devices_and_noise_make_it() -> None:
    longest = 8 + SCALES.noise_of(8) * (math.sqrt(4) + 10)
    decoded(longest, 4.0, 4.0, 8)
    with pytest.raises(ImplausibleSumError, match="the push is"):
        decoded(longest + 0.1, 4.0, 4.0, 8)


def test_an_encoding_with_noise_needs_a_key_and_one_without_takes_none() -> None:
    part = Contribution(np.ones(2, np.float32), equal_weights=True)
    noisy = Encoding(10, TOTALS, True, NoisySum(cohort=10, honest=6, multiplier=1.0, dim=2))
    for code, key in ((noisy, None), (Encoding(10), NOISE)):
        with pytest.raises(ParameterError, match="if and only if devices have a key for it"):
            code.encode(part, ZERO, 1.0, KEY, noise=key)


def test_a_sum_with_noise_proves_no_largest_share() -> None:
    total = Sum(np.zeros(2), 3.0, 5.0, 3.5, 5, None, noise=0.5)
    with pytest.raises(InvalidValueError, match=r"noise \(of 0.5 in each coordinate\) proves no"):
        total.certificate()
    oracle = RecordingOracle(lambda _v, _nu: total)
    oracle(np.zeros(2), 1.0)
    for aggregator in (RFA(), OneStepRFA(), Mean(), RFA(schedule="accelerated")):
        assert aggregator.certificate(oracle) is None
