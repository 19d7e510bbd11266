"""Noise in a sum: which rounds can have it, and what each device adds before it masks.

Every whole number that a device adds, but for the count, gets a sample of discrete Gaussian noise
(`crypto.gaussian`), on the scales of `rfa.privacy.NoisySum`. Who takes part the server knows: the
count is exact.

*Formal guarantees*, for at most c colluders and f drop-outs:
    an opened sum holds noise of at least z times what a device can add to it, without theirs
    (secagg/test_noise.py::test_without_drop_outs_and_colluders_the_promised_noise_is_left);
    noise is fresh in every masked sum, from a key that is used for nothing else
    (secagg/test_noise.py::test_noise_is_fresh_in_every_masked_sum_round_and_device,
    secagg/test_noise.py::test_the_key_of_the_noise_is_not_that_of_the_rounding);
    nothing else travels in the round that depends on data
    (secagg/test_noise.py::test_devices_refuse_contradictions_by_name);
    whoever knows all but the honest noise tells a device no better than it is charged
    (test_noise_audit.py::test_the_server_tells_a_device_no_better_than_its_charge_says).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rfa.errors import InvalidValueError
from rfa.privacy import NoisySum
from rfa.secagg.crypto.gaussian import NoiseStream
from rfa.secagg.errors import ParameterError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.push import SHORT
from rfa.secagg.security.parameters import Parameters
from rfa.secagg.statistics import COUNT, NOISY, LocalFacts, Rows, rows_of, signed
from rfa.secagg.words import TAIL

LENGTH_SLACK = 10.0
"""Noise of d coordinates is longer than sqrt(d) + 10 standard deviations in one of 10^21 sums."""


def noisy_sum(opening: OpenRound, parameters: Parameters) -> NoisySum | None:
    """The scales and the charge of each sum of a round, for a cohort; None for no noise.

    Raises:
        ParameterError: if the noise is too little or too much for the cohort.
    """
    if not opening.noise:
        return None
    names = {row.name for row in rows_of(opening.statistics)}
    try:
        return NoisySum(
            cohort=parameters.cohort,
            honest=parameters.honest,
            multiplier=opening.noise,
            dim=opening.dim,
            mass="mass" in names,
            near="near" in names,
        )
    except InvalidValueError as error:
        raise ParameterError(str(error)) from None


def least_charge(noise: float) -> float:
    """What each sum with noise of this multiplier is charged at the least, whatever its cohort.

    A push of S + sqrt(d) units is longer than u sqrt(H) / z, since S is that, rounded down.
    """
    return 0.5 / noise / noise if noise else 0.0


def noise_fault(opening: OpenRound) -> str:
    """What does not go with the noise of a round, and the remedy; empty if all does."""
    noise, share, exact = opening.noise, opening.max_share, _exact_totals(opening)
    faults = [
        (noise < 0, "a multiplier is 0 for none, or positive"),
        (not opening.equal_weights, "it is for devices that weigh the same: equal_weights=True"),
        (
            opening.metrics,
            f"{opening.metrics} metrics would be summed without it: give metrics=0, and evaluate "
            "where the data is the server's own",
        ),
        (share, f"the shares that max_share={share:g} limits are of exact sums: give max_share=0"),
        (exact, f"the totals {exact} would be summed without it: only mass and near have noise"),
    ]
    why = next((why for wrong, why in faults if wrong), "")
    return f"noise={noise:g}: {why}" if noise and why else ""


def _exact_totals(opening: OpenRound) -> str:
    """The totals of a round that have no noise, but for the count."""
    names = [row.name for row in rows_of(opening.statistics)]
    return ", ".join(name for name in names if name not in {*NOISY, COUNT.name})


def encode_noisy(local: LocalFacts, rows: Rows, scales: NoisySum, stream: NoiseStream) -> list[int]:
    """The tail of a device: the first samples of its stream are those of the tail."""
    units = units_of(scales)
    values = [math.floor(row.value(local) * units[row.name]) for row in rows]
    noisy = [place for place, row in enumerate(rows) if row.name in NOISY]
    for place, sample in zip(noisy, stream.draw(len(noisy)).tolist(), strict=True):
        values[place] += sample
    return [value % TAIL for value in values]


def decode_noisy(tail: Sequence[int], rows: Rows, scales: NoisySum) -> dict[str, float]:
    """The totals of the statistics by name, which may be negative, or more than devices have."""
    units = units_of(scales)
    return {
        row.name: signed(total) / units[row.name] if row.name in NOISY else signed(total)
        for row, total in zip(rows, tail, strict=True)
    }


def units_of(scales: NoisySum) -> Mapping[str, int]:
    """The units in 1 of each statistic."""
    return {"mass": scales.mass_scale, "near": scales.near_scale, COUNT.name: 1}


def length_slack(scales: NoisySum, count: int, dim: int) -> float:
    """By how much noise can make a push longer."""
    return scales.noise_of(count) * (math.sqrt(dim) + LENGTH_SLACK)


def add_noise(words: NDArray[np.int32], stream: NoiseStream) -> None:
    """Add the next samples of a stream to words, in place, a block at a time."""
    for start in range(0, len(words), SHORT):
        block = words[start : start + SHORT]
        np.add(block, stream.draw(len(block)), out=block)
