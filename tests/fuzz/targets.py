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
from tests.fuzz.receipts import Receipts
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
    "receipts": (Receipts, 0.10, 0.010),
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
) -> Iterator[Report]:
    """Play targets one after another, each for its part of the time, or of all inputs if given."""
    shares = {name: TARGETS[name][1:] for name in names}
    by_time, by_inputs = (sum(share[i] for share in shares.values()) for i in range(2))
    parts = range(processes) if at is None else range(1)
    with ProcessPoolExecutor(max(1, len(parts) - 1), mp_context=get_context("spawn")) as pool:
        for name, (time, part) in shares.items():
            count = EVER if not inputs else max(1, round(inputs * part / by_inputs))
            limit = EVER if inputs else seconds * time / by_time
            jobs = [(name, seed, _numbers(first, count, len(parts), at), limit) for first in parts]
            report = Report(name)
            elsewhere = [pool.submit(_play, *job) for job in jobs[1:]]
            report.add(_play(*jobs[0]))
            for each in elsewhere:
                report.add(each.result())
            yield report


def _numbers(first: int, count: int, step: int, at: int | None) -> range:
    return range(first, count, step) if at is None else range(at, at + 1)


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


HEAD = f"{'target':<10}{'inputs':>10}{'seconds':>9}{'per s':>9}{'unnamed':>9}  outcomes"


def show(report: Report) -> str:
    """A line of the table: what came of a target."""
    rate = report.inputs / report.seconds if report.seconds else 0.0
    outcomes = ", ".join(f"{name} {count}" for name, count in report.outcomes.most_common())
    return (
        f"{report.target:<10}{report.inputs:>10}{report.seconds:>9.1f}{rate:>9.0f}"
        f"{len(report.failures):>9}  {outcomes}"
    )


def total(reports: Sequence[Report]) -> Report:
    """What came of all targets."""
    found = Report("all")
    for one in reports:
        found.add(one)
    found.seconds = sum(one.seconds for one in reports)
    return found
