"""Noise in a sum: which rounds can have it, and what each device adds before it masks.

Every whole number that a device adds, except the count, gets a sample of discrete Gaussian noise
(`crypto.gaussian`), on the scales of `rfa.privacy.NoisySum`. The count is exact, because the server
knows who takes part.

*Formal guarantees*, for at most c colluders and f drop-outs:
    without their noise, an opened sum still holds noise of at least z times the most that a device
    can add to it
    (secagg/test_noise.py::test_without_drop_outs_and_colluders_the_promised_noise_is_left);
    noise is fresh in every masked sum, from a key that has no other use
    (secagg/test_noise.py::test_noise_is_fresh_in_every_masked_sum_round_and_device,
    secagg/test_noise.py::test_the_key_of_the_noise_is_not_that_of_the_rounding);
    the round sends nothing else that depends on data
    (secagg/test_noise.py::test_devices_refuse_contradictions_by_name);
    an observer who knows everything except the honest noise distinguishes a device no better than
    its charge says
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
    """Return the scales and the charge of each sum of a round, for a cohort; None for no noise.

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
    """Return the least charge of a sum with noise of this multiplier, for any cohort.

    A push of S + sqrt(d) units is longer than u sqrt(H) / z, since S is that value, rounded down.
    """
    return 0.5 / noise / noise if noise else 0.0


def noise_fault(opening: OpenRound) -> str:
    """Return which option excludes the noise of a round, and the remedy; empty if none does."""
    noise, share, exact = opening.noise, opening.max_share, _exact_totals(opening)
    faults = [
        (noise < 0, "a multiplier is 0 for none, or positive"),
        (not opening.equal_weights, "it requires devices of equal weight: give equal_weights=True"),
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
    """Return the totals of a round that have no noise, except the count."""
    names = [row.name for row in rows_of(opening.statistics)]
    return ", ".join(name for name in names if name not in {*NOISY, COUNT.name})


def encode_noisy(local: LocalFacts, rows: Rows, scales: NoisySum, stream: NoiseStream) -> list[int]:
    """Return the tail of a device, with the first samples of its stream as noise."""
    units = units_of(scales)
    values = [math.floor(row.value(local) * units[row.name]) for row in rows]
    noisy = [place for place, row in enumerate(rows) if row.name in NOISY]
    for place, sample in zip(noisy, stream.draw(len(noisy)).tolist(), strict=True):
        values[place] += sample
    return [value % TAIL for value in values]


def decode_noisy(tail: Sequence[int], rows: Rows, scales: NoisySum) -> dict[str, float]:
    """Return the totals of the statistics by name; noise can make them negative, or too large."""
    units = units_of(scales)
    return {
        row.name: signed(total) / units[row.name] if row.name in NOISY else signed(total)
        for row, total in zip(rows, tail, strict=True)
    }


def units_of(scales: NoisySum) -> Mapping[str, int]:
    """Return the units in 1 of each statistic."""
    return {"mass": scales.mass_scale, "near": scales.near_scale, COUNT.name: 1}


def length_slack(scales: NoisySum, count: int, dim: int) -> float:
    """Return by how much noise can lengthen a push."""
    return scales.noise_of(count) * (math.sqrt(dim) + LENGTH_SLACK)


def add_noise(words: NDArray[np.int32], stream: NoiseStream) -> None:
    """Add the next samples of a stream to words, in place, a block at a time."""
    for start in range(0, len(words), SHORT):
        block = words[start : start + SHORT]
        np.add(block, stream.draw(len(block)), out=block)
