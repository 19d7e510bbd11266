"""An attack on opened sums: is a device told better than its charge says?

The server knows everything but the honest noise: the updates of all others, who takes part, and the
noise of the promised colluders; and as many devices drop out as may. The sum has a canary in it, or
a bystander in its place, whose part is known as well. What is left of the sum without the known
parts is noise, with the canary or without it, and the best test of which (Neyman and Pearson) adds
up push, mass and near by what the canary adds to each. So it is if all three have the noise that
they should; each of them is looked at by itself, too. From how often a test is right follows a
lower bound on epsilon, by the intervals of Clopper and Pearson. Keys are given: each run is the
same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from rfa._types import Floats, Floats32
from rfa.privacy import NoisySum, epsilon_of
from rfa.secagg import fixed_point
from rfa.secagg.crypto.gaussian import NoiseStream, Samples
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Profile
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.in_process import InProcess
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.noise import noisy_sum
from rfa.secagg.oracle import SecureOracle, open_round
from rfa.secagg.security.parameters import Parameters
from rfa.secagg.security.terms import Terms
from rfa.secagg.transcript import noise_key
from rfa.secagg.unmasked import UnmaskedOracle

TERMS = Terms(colluder_fraction=0.4, max_dropout_fraction=0.3)
COUNT, DIM, NU, Z = 10, 4, 1.0, 1.0
CANARY, BYSTANDER, COLLUDERS, GONE = 0, 1, (2, 3, 4, 5), (8, 9)
"""Who is who; the canary or the bystander drops out beside two others."""
DELTAS = (0.01, 0.1)
TRIALS, REAL = 1500, 30
"""Sums in each world, and how many of them are by the real protocol."""
THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 2.5)
"""Of the evidence, which is 1 on average if the canary is there, and else 0."""
FAILURE = 0.001
"""How rarely any of the bounds of an audit fails."""
OPENING = open_round(
    1, TERMS, queries=1, dim=DIM, statistics=("mass", "near"), equal_weights=True, noise=Z
)
PARAMETERS = TERMS.parameters(COUNT)


def part_of(device: int) -> Contribution:
    """The canary is as far away as its push is long; all others are at zero."""
    update: Floats32 = np.zeros(DIM, np.float32)
    update[0] = NU * (device == CANARY)
    return Contribution(update, equal_weights=True)


PARTS = {device: part_of(device) for device in range(COUNT)}


def keys_of(what: str) -> dict[int, bytes]:
    return {device: hashlib.sha256(f"{what} {device}".encode()).digest() for device in PARTS}


def evidence(trial: int, *, there: bool) -> Floats:
    """How much a sum looks as if the canary were in it: all of it, and each number by itself."""
    lost = dict.fromkeys((*GONE, BYSTANDER if there else CANARY), Moment(0, Stage.SUM))
    rounding, noise = (keys_of(f"{what} {trial} {there}") for what in ("rounding", "noise"))
    ask: UnmaskedOracle | SecureOracle
    if trial < REAL:
        devices = {
            device: Device(part, Profile(device), rounding=rounding[device], noise=noise[device])
            for device, part in PARTS.items()
        }
        ask = SecureOracle(OPENING, TERMS, PARTS, InProcess(devices, lost))
    else:
        ask = UnmaskedOracle(OPENING, TERMS, PARTS, rounding=rounding, noise=noise, lost=lost)
    total = ask(np.zeros(DIM), NU)
    scales = fixed_point.noisy_sum(OPENING, PARAMETERS)
    assert scales is not None
    assert total.count == PARAMETERS.survivors
    adds = np.array([scales.mass_scale, scales.near_scale, scales.scale])
    left = np.array([total.need("mass"), total.need("near"), total.push[0]]) * adds
    left[:2] -= (total.count - there) * adds[:2]  # the others have a mass of 1, and are near
    for colluder in COLLUDERS:
        key = noise_key(noise[colluder], 0)
        left -= fixed_point.NoiseStream(scales.std, key).draw(3)
    return np.array([left @ adds / (adds @ adds), *(left / adds)])


def at_least(successes: int, trials: int, failure: float) -> float:
    """A lower bound on a probability, by Clopper and Pearson, that fails so rarely."""
    if not successes:
        return 0.0
    numbers = np.arange(successes, trials + 1)
    choose = np.array([math.lgamma(k + 1) + math.lgamma(trials - k + 1) for k in numbers.tolist()])
    low, high = 0.0, successes / trials
    for _ in range(60):
        chance = (low + high) / 2
        logs = numbers * math.log(chance) + (trials - numbers) * math.log1p(-chance) - choose
        tail = float(np.exp(logs + math.lgamma(trials + 1)).sum())
        low, high = (chance, high) if tail < failure else (low, chance)
    return low


def epsilon_at_least(without: Floats, present: Floats, delta: float) -> float:
    """A lower bound on the epsilon of a mechanism, from evidence in both worlds."""
    (trials, tests), best = present.shape, 0.0
    failure = FAILURE / (2 * tests * len(THRESHOLDS))
    for test, threshold in itertools.product(range(tests), THRESHOLDS):
        right = at_least(int((present[:, test] > threshold).sum()), trials, failure)
        wrong = 1 - at_least(int((without[:, test] <= threshold).sum()), trials, failure)
        if right > delta:
            best = max(best, math.log((right - delta) / wrong))
    return best


def audit(trials: int = TRIALS) -> dict[float, float]:
    """A lower bound on epsilon for each delta."""
    without, present = (
        np.array([evidence(trial, there=there) for trial in range(trials)])
        for there in (False, True)
    )
    return {delta: epsilon_at_least(without, present, delta) for delta in DELTAS}


def claims() -> dict[float, float]:
    """What devices charge themselves for such a sum."""
    scales = noisy_sum(OPENING, PARAMETERS)
    assert scales is not None
    return {delta: epsilon_of(scales.rho, delta) for delta in DELTAS}


def test_the_server_tells_a_device_no_better_than_its_charge_says() -> None:
    """And not much worse, so that an audit would find a mechanism that leaks more."""
    assert (PARAMETERS.num_dropouts, PARAMETERS.num_colluders, PARAMETERS.honest) == (3, 4, 3)
    found = audit()
    for delta, claim in claims().items():
        assert claim / 3 < found[delta] < claim


class HalfAsWide(NoiseStream):
    """A sampler that is broken."""

    def __init__(self, std: int, key: bytes) -> None:
        super().__init__(std // 2, key)


class Forgetful(NoiseStream):
    """A sampler that leaves one number of a sum without noise: the mass, by default."""

    place = 0

    def draw(self, count: int) -> Samples:
        """The next samples."""
        first = not self._drawn
        samples = super().draw(count)
        if first and count > self.place:
            samples[self.place] = 0
        return samples


class NearForgotten(Forgetful):
    """One that leaves the count of those near without noise."""

    place = 1


def as_if_nobody_were_lost(opening: OpenRound, parameters: Parameters) -> NoisySum | None:
    """Scales that count on the noise of drop-outs and colluders."""
    scales = noisy_sum(opening, parameters)
    return scales and dataclasses.replace(scales, honest=parameters.cohort)


BROKEN: dict[str, tuple[int, str, Callable[..., object]]] = {
    "half the noise": (TRIALS, "NoiseStream", HalfAsWide),
    "no noise in the mass": (200, "NoiseStream", Forgetful),
    "no noise in the count of those near": (200, "NoiseStream", NearForgotten),
    "drop-outs forgotten": (TRIALS, "noisy_sum", as_if_nobody_were_lost),
}
"""What may go wrong, and the sums in each world in which an audit finds it."""


@pytest.mark.parametrize("name", BROKEN)
def test_the_audit_finds_what_is_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = claims()
    trials, where, what = BROKEN[name]
    monkeypatch.setattr(fixed_point, where, what)
    found = audit(trials)
    assert any(found[delta] > claim for delta, claim in claimed.items()), (found, claimed)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (40, 2500)])
def test_the_bounds_of_clopper_and_pearson(successes: int, trials: int) -> None:
    """They are where so many successes, or more, become as rare as the bound may fail."""
    bound = at_least(successes, trials, 0.025)
    if successes == 0:
        assert bound == 0
        return
    chances = [
        math.comb(trials, k) * bound**k * (1 - bound) ** (trials - k) for k in range(successes)
    ]
    assert 1 - sum(chances) == pytest.approx(0.025, rel=1e-6)
