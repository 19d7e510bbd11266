"""From the numbers of seeds to a verdict, by tests that are wrong in at most 5 % of the cases.

A statement is made of findings that must all hold. A finding compares numbers, one for each seed,
with a bound: differences of two methods after the same seed, which share their cohorts and their
corrupted devices, or the accuracies of one.

confirmed     every finding holds at the level of 5 %: the 95 % interval lies beyond the bound, or,
              for equality, two one-sided tests at 5 % put the difference within the margin
refuted       the interval of some finding lies on the other side; with several findings intervals
              are wider in proportion (Bonferroni), so that one of many is not refuted by chance
inconclusive  neither
open          there is no test: too few seeds, a shorter horizon, or a model that has not learned
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rfa.lab.runs.statistics import Interval, mean_interval

CONFIRMED, REFUTED, INCONCLUSIVE, OPEN = "confirmed", "refuted", "inconclusive", "open"
LEVEL = 0.05
MIN_SEEDS = 3


@dataclass(frozen=True)
class Finding:
    """Numbers, one for each seed, that should lie above a bound, or within a margin of it.

    Attributes:
        words: the numbers, for a reader.
        values: the compared numbers, one for each seed.
        bound: the bound that they should exceed.
        margin: the largest distance to the bound, for equality.
        why_open: why there is no test, if so.
        digits: the digits after the point that are shown.
    """

    words: str
    values: Sequence[float] = ()
    bound: float = 0.0
    margin: float | None = None
    why_open: str = ""
    digits: int = 1

    @property
    def interval(self) -> Interval:
        """The mean, and its 95 % interval."""
        return mean_interval(self.values)

    @property
    def reason(self) -> str:
        """Why there is no test; nothing where there is one."""
        if self.why_open:
            return self.why_open
        if len(self.values) < MIN_SEEDS:
            seeds = "1 seed" if len(self.values) == 1 else f"{len(self.values)} seeds"
            return f"{seeds} of at least {MIN_SEEDS}"
        if not all(map(math.isfinite, self.values)):
            return "a number is not finite"
        return ""

    @property
    def holds(self) -> bool:
        """Whether it is shown to be so."""
        if self.margin is None:
            return self.interval.low > self.bound
        both = mean_interval(self.values, 1 - LEVEL)  # two one-sided tests
        return self.bound - self.margin < both.low and both.high < self.bound + self.margin

    def fails(self, findings: int = 1) -> bool:
        """Return whether it is refuted, as one of this number of findings."""
        wide = mean_interval(self.values, 1 - LEVEL / 2 / findings)
        if self.margin is None:
            return wide.high < self.bound
        return wide.high < self.bound - self.margin or wide.low > self.bound + self.margin

    @property
    def verdict(self) -> str:
        """The verdict of this finding alone."""
        return conclude([self])


@dataclass(frozen=True)
class Fact:
    """A statement that is true or false for all seeds; None if it cannot be decided."""

    words: str
    holds: bool | None

    reason = ""

    def fails(self, findings: int = 1) -> bool:
        """Whether it is not so."""
        del findings
        return self.holds is False


def conclude(findings: Sequence[Finding | Fact]) -> str:
    """The verdict on a statement that is made of findings."""
    if not findings or any(finding.reason for finding in findings):
        return OPEN
    if all(finding.holds for finding in findings):
        return CONFIRMED
    tested = sum(isinstance(finding, Finding) for finding in findings)
    return REFUTED if any(finding.fails(max(1, tested)) for finding in findings) else INCONCLUSIVE


def told(finding: Finding | Fact) -> str:
    """A finding with its interval, or why it is open."""
    if finding.reason:
        return f"{finding.words} ({finding.reason})"
    if isinstance(finding, Fact):
        return finding.words
    interval = finding.interval
    bound = f"above {finding.bound:g}" if finding.margin is None else _near(finding)
    mean, low, high = (
        f"{each:+.{finding.digits}f}" for each in (interval.mean, interval.low, interval.high)
    )
    spread = f"{mean} ({low} to {high})"
    return f"{finding.words}: {spread}, should be {bound}, {interval.count} seeds"


def _near(finding: Finding) -> str:
    around = f" of {finding.bound:g}" if finding.bound else ""
    return f"within {finding.margin:g}{around}"
