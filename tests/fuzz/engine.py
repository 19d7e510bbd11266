"""Plays a target for a while, input after input, and keeps count of what came of each.

Input number i of a target is drawn from a generator seeded with (seed, target, i): a failure is
repeated with `python -m tests.fuzz --seed S --target T --at i`. An input must be accepted, or
refused by a named error with a text; all else, and whatever takes longer than `SLOW` seconds, is
a failure.
"""

from __future__ import annotations

import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Protocol

from rfa.secagg.errors import MessageError, SecAggError

SLOW = 60
"""Seconds of the processor that no single input may take."""
ACCEPTED = "accepted"
MOST_FAILURES = 20


class Target(Protocol):
    """Something to be fuzzed.

    Attributes:
        last: the last input, to be shown if it fails.
    """

    last: Any

    def one(self, rng: Random) -> str:
        """Try an input: what came of it, "accepted" or the name of an error."""
        ...


class SlowError(Exception):
    """An input took too long."""


@dataclass
class Report:
    """What came of a target.

    Attributes:
        target: its name.
        inputs: how many there were.
        seconds: how long they took.
        outcomes: how often each outcome came.
        failures: the number of each input that failed, and how.
    """

    target: str
    inputs: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    failures: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def add(self, other: Report) -> None:
        """Add what came of another part of the inputs."""
        self.inputs += other.inputs
        self.seconds = max(self.seconds, other.seconds)
        self.outcomes += other.outcomes
        self.failures += other.failures


def named(error: SecAggError) -> str:
    """The name of an error that says what it is.

    Raises:
        AssertionError: if it does not.
    """
    assert type(error) not in (SecAggError, MessageError), "an error without a name of its own"
    assert str(error).strip(), f"{type(error).__name__} without a text"
    return type(error).__name__


def play(  # noqa: PLR0917
    name: str,
    make: Callable[[Path], Target],
    folder: Path,
    seed: int,
    numbers: range,
    seconds: float,
) -> Report:
    """Try inputs of these numbers, until there are no more or the time is up."""
    report, target = Report(name), make(folder)
    began = time.monotonic()
    before = signal.signal(signal.SIGVTALRM, _too_slow)
    try:
        for number in numbers:
            if time.monotonic() - began > seconds or len(report.failures) >= MOST_FAILURES:
                break
            _try(report, target, seed, number)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    report.seconds = time.monotonic() - began
    return report


def _try(report: Report, target: Target, seed: int, number: int) -> None:
    rng = Random(f"{seed} {report.target} {number}")  # noqa: S311 not for secrets
    signal.setitimer(signal.ITIMER_VIRTUAL, SLOW)
    report.inputs += 1
    try:
        report.outcomes[target.one(rng)] += 1
    except Exception:  # noqa: BLE001 whatever it is, it has no name
        shown = repr(target.last)
        report.failures.append((number, f"{traceback.format_exc()}\n{shown[:20_000]}"))


def _too_slow(number: int, frame: FrameType | None) -> None:
    msg = f"an input took more than {SLOW} s"
    raise SlowError(msg)
