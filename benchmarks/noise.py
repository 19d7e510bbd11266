"""Noise in a secure sum: what it costs a device, against the same device without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.flower_secagg import show, update_of
from benchmarks.secagg import COHORT, LARGE, RING, SMALL, Alone
from rfa.secagg.crypto.gaussian import LARGEST_STD, NoiseStream, table_of
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.noise import add_noise

TURNS = 25


def run() -> Iterator[str]:
    """The whole report, line by line."""
    yield "## Noise in secure sums"
    yield ""
    yield (
        f"One of {COHORT} devices, with {RING.degree} neighbors, makes its masked input, in turns"
        " with noise and without. The last column has the samples of noise alone: discrete"
        " Gaussian ones, by inversion of a table to 128 bits, which is made once per process."
        " Processor time."
    )
    yield ""
    yield "| coordinates | masked input, ms | with noise, ms | times | samples alone, ms |"
    yield "|---|---|---|---|---|"
    table_of(LARGEST_STD)
    for dim in (SMALL, LARGE):
        plain, noisy, drawn = measure(dim)
        row = " | ".join([show(plain), show(noisy), f"{noisy / plain:.2f}", show(drawn)])
        yield f"| {dim:,} | {row} |"
    yield ""


def measure(dim: int) -> list[float]:
    """Milliseconds of a masked input without and with noise, and of the noise alone."""
    brought = Contribution(update_of(dim), equal_weights=True)

    def draw() -> None:
        add_noise(np.zeros(dim, np.int32), NoiseStream(LARGEST_STD, bytes(16)))

    plain, noisy = Alone(RING, brought), Alone(RING, brought, noise=1.0)
    calls: list[Callable[[], object]] = [plain.mask_again, noisy.mask_again, draw]
    taken = [[_timed(call) for call in calls] for _ in range(TURNS)]
    return [1e3 * statistics.median(column) for column in zip(*taken, strict=True)]


def _timed(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
