"""All targets, and how they are played side by side."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.fuzz.engine import Report, Target, play
from tests.fuzz.on_flower import Mods, Records, Strategies
from tests.fuzz.secure_sum import Codec, Devices, Memories, Servers, Vaults

TARGETS: dict[str, tuple[Callable[[Path], Target], float, float]] = {
    "codec": (Codec, 0.20, 0.640),
    "memory": (Memories, 0.05, 0.130),
    "device": (Devices, 0.25, 0.060),
    "server": (Servers, 0.15, 0.060),
    "records": (Records, 0.10, 0.0895),
    "mod": (Mods, 0.10, 0.015),
    "strategy": (Strategies, 0.08, 0.0005),
    "vault": (Vaults, 0.07, 0.005),
}
"""Each target, with its part of the time and its part of the inputs. A new one is a line here."""
EVER = 10**12


def fuzz(
    names: Sequence[str],
    seed: int,
    *,
    seconds: float = 60.0,
    inputs: int = 0,
    at: int | None = None,
    processes: int = 1,
) -> list[Report]:
    """Play targets, each for its part of the time, or of the inputs if their number is given."""
    shares = {name: TARGETS[name][1:] for name in names}
    by_time, by_inputs = (sum(share[i] for share in shares.values()) for i in range(2))
    reports: list[Report] = []
    for name, (time, part) in shares.items():
        count = EVER if not inputs else max(1, round(inputs * part / by_inputs))
        limit = EVER if inputs else seconds * time / by_time
        parts = range(processes) if at is None else range(1)
        report = Report(name)
        jobs = [(name, seed, _numbers(first, count, len(parts), at), limit) for first in parts]
        for each in _side_by_side(jobs):
            report.add(each)
        reports.append(report)
    return reports


def _numbers(first: int, count: int, step: int, at: int | None) -> range:
    return range(first, count, step) if at is None else range(at, at + 1)


def _side_by_side(jobs: list[tuple[str, int, range, float]]) -> Iterator[Report]:
    if len(jobs) == 1:
        yield _play(*jobs[0])
        return
    with ProcessPoolExecutor(len(jobs), mp_context=get_context("spawn")) as pool:
        yield from pool.map(_play, *zip(*jobs, strict=True))


def _play(name: str, seed: int, numbers: range, seconds: float) -> Report:
    memory = Path("/dev/shm")  # noqa: S108 a disk would cost the time of all targets
    home = memory if memory.is_dir() else None
    logger, level = logging.getLogger("flwr"), logging.getLogger("flwr").level
    logger.setLevel(logging.CRITICAL + 1)  # which refusals there are is counted
    try:
        with tempfile.TemporaryDirectory(prefix="rfa-fuzz-", dir=home) as folder:
            return play(name, TARGETS[name][0], Path(folder), seed, numbers, seconds)
    finally:
        logger.setLevel(level)


def show(reports: Sequence[Report]) -> str:
    """A table of what came of each target."""
    lines = [f"{'target':<10}{'inputs':>10}{'seconds':>9}{'per s':>9}{'unnamed':>9}  outcomes"]
    for one in (*reports, _total(reports)):
        rate = one.inputs / one.seconds if one.seconds else 0.0
        outcomes = ", ".join(f"{name} {count}" for name, count in one.outcomes.most_common())
        lines.append(
            f"{one.target:<10}{one.inputs:>10}{one.seconds:>9.1f}{rate:>9.0f}"
            f"{len(one.failures):>9}  {outcomes}"
        )
    return "\n".join(lines)


def _total(reports: Sequence[Report]) -> Report:
    total = Report("all")
    for one in reports:
        total.add(one)
    total.seconds = sum(one.seconds for one in reports)
    return total
