"""What the paper states about choices: personal parameters, calls, devices and local epochs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from rfa.lab.paper.evidence import AbsentError, Evidence, Place, after, at_end
from rfa.lab.paper.frozen import EXCESS, MEAN_SHARE, MEDIAN_SHARE, RATE
from rfa.lab.paper.statements import EMNIST, HIGH, LINES, POINT, SENT, statement
from rfa.lab.paper.verdicts import Fact, Finding
from rfa.lab.runs.headline import HONEST

FROZEN = ("frozen cohorts",)
HIGH_QUALITY = 1.0
"""How far an objective is above its minimum at most, in per cent, to be of high quality."""


@statement(
    "First, we observe that personalization leads to an improvement with no corruption for both "
    "FedAvg and RFA. For the EMNIST linear model, we get 70.1% and 69.9% respectively from 64.3% "
    "and 62.9%.",
    (*EMNIST, *SENT),
)
def personal_gain(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """Without corruption, personalized FedAvg and RFA are ahead of shared ones."""
    place = Place("personalization", f"{setting}, data", 0.0)
    for line in LINES:
        lines = (f"{line}, personalized", line)
        yield evidence.difference(place, lines, read=at_end(HONEST))


@statement(
    "Second, we observe that RFA exhibits greater robustness to corruption with personalization. "
    "At rho = 1/4 with the EMNIST linear model, RFA with personalization gives 66.4% (a reduction "
    "of 3.4%) while no personalization gives 52.8% (a reduction of 10.1%).",
    (*EMNIST, *SENT),
)
def personal_robust(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """From no corruption to a quarter poisoned, personalized RFA loses less, on honest devices."""
    place = Place("personalization", f"{setting}, data", 0.0)
    lines = ("RFA, personalized", "RFA")
    yield evidence.smaller_loss(place, HIGH, lines, read=at_end(HONEST))


@statement(
    "The results for Sent140 are similar, with the exception that FedAvg with personalization is "
    "nearly identical to RFA with personalization.",
    SENT,
)
def personal_equal(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """Personalized FedAvg and RFA are within a point, at 0 and at 1/4, on honest devices."""
    lines = ("FedAvg, personalized", "RFA, personalized")
    for level in (0.0, HIGH):
        place = Place("personalization", f"{setting}, data", level)
        yield evidence.difference(place, lines, read=at_end(HONEST), margin=POINT)


@statement(
    "We observe that a low communication budget is faster in the regime of low corruption, while "
    "more iterations work better in the high corruption regime.",
    EMNIST,
)
def budgets(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """After as many calls 2 per round beat 10 without corruption, and 10 beat 2 if omniscient."""
    for panel, lines in (
        ("no corruption", ("2 calls", "10 calls")),
        ("omniscient 0.25", ("10 calls", "2 calls")),
    ):
        place = Place("budget", f"{setting}, {panel}")
        runs = [run for line in lines for run in evidence.runs(place, line).values()]
        stayed = [run for run in runs if not run.diverged] or runs
        calls = min(run.row["oracle_calls"] for run in stayed)
        finding = evidence.difference(place, lines, read=after(calls, "oracle_calls"))
        yield dataclasses.replace(finding, words=f"{panel}, after {calls} calls, {finding.words}")


@statement(
    "[...] in the regime of low corruption, good performance is achieved by selecting 50 devices "
    "per round (5%), where as 10 devices per round (1%) is not enough.",
    EMNIST,
)
def ten_devices(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """Without corruption 100 devices are ahead of 10, and within two points of 50."""
    place = Place("devices", f"{setting}, no corruption")
    yield evidence.difference(place, ("100 devices", "10 devices"))
    yield evidence.difference(place, ("100 devices", "50 devices"), margin=2 * POINT)


@statement(
    "On the other hand, in high corruption regimes, we see the benefit of choosing more devices "
    "per round, as a few runs with 10 or 50 devices per round with omniscient corruption at 25% "
    "diverged.",
    EMNIST,
)
def small_cohorts(evidence: Evidence, setting: str) -> Iterator[Finding | Fact]:
    """Some runs with 10 or 50 devices diverge; 100 devices are ahead of 10."""
    place = Place("devices", f"{setting}, omniscient 0.25")
    lost: list[str] = []
    for line in ("10 devices", "50 devices"):
        runs = evidence.runs(place, line).values()
        lost += [f"{sum(run.diverged for run in runs)} of {len(runs)} with {line} diverged"]
    some = any(not text.startswith("0 of") for text in lost)
    yield Fact(", ".join(lost), some or None)
    yield evidence.difference(place, ("100 devices", "10 devices"))


@statement(
    "We see that the performance is always within one standard deviation of each other "
    "irrespective of the amount of local computation.",
    SENT,
)
def epochs(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """One local epoch and five are within a point, for FedAvg and RFA, at 0 and at 1/4."""
    for line in ("FedAvg", "RFA"):
        for level in (0.0, HIGH):
            place = Place("epochs", f"{setting}, {line}", level)
            finding = evidence.difference(place, ("5 epochs", "1 epoch"), margin=POINT)
            yield dataclasses.replace(finding, words=f"{line} at {level:g}, {finding.words}")


@statement(
    "However, we also note that RFA with a single local epoch is obtains a slightly lower test "
    "accuracy in the no-corruption regime than using more local computation.",
    SENT,
)
def one_epoch(evidence: Evidence, setting: str) -> Iterator[Finding]:
    """RFA with five local epochs is ahead of RFA with one, without corruption."""
    place = Place("epochs", f"{setting}, RFA", 0.0)
    yield evidence.difference(place, ("5 epochs", "1 epoch"))


@statement(
    "In fact, the smoothed Weiszfeld algorithm displays (local) linear convergence, as evidenced "
    "by the straight line in log scale.",
    FROZEN,
    gated=False,
)
def linear_rate(evidence: Evidence, setting: str) -> Iterator[Fact]:
    """On every frozen cohort a step shortens the distance to the median by a constant factor."""
    rates = [row[RATE] for row in _frozen(evidence, setting)]
    known = [float(rate) for rate in rates if rate is not None]
    if not known:
        yield Fact("no cohort has a constant factor", holds=False)
        return
    text = f"a step shortens the distance to {min(known):.2f} to {max(known):.2f} of it, "
    yield Fact(f"{text}on {len(known)} of {len(rates)} cohorts", len(known) == len(rates))


@statement(
    "Numerically, we find in [the figure] that [the smoothed Weiszfeld algorithm] is rapidly "
    "convergent, giving a high quality solution in 3 iterations.",
    FROZEN,
    gated=False,
)
def three_steps(evidence: Evidence, setting: str) -> Iterator[Fact]:
    """On every frozen cohort the objective is within 1 % of its minimum after three steps."""
    excess = [float(row[EXCESS]) for row in _frozen(evidence, setting)]
    near = sum(each <= HIGH_QUALITY for each in excess)
    words = f"{min(excess):.2g} to {max(excess):.2g} % above it, "
    yield Fact(f"{words}within 1 % on {near} of {len(excess)} cohorts", near == len(excess))


@statement(
    "We find that the smoothed geometric median does indeed assign lower weights to the "
    "corruptions, while only accessing the points via a secure average oracle.",
    FROZEN,
    gated=False,
)
def less_weight(evidence: Evidence, setting: str) -> Iterator[Fact]:
    """On every frozen cohort the corrupted have less weight in the median than in the mean."""
    rows = [row for row in _frozen(evidence, setting) if row[MEAN_SHARE] is not None]
    same = [row for row in rows if row[MEDIAN_SHARE] >= row[MEAN_SHARE]]
    words = f"less weight on {len(rows) - len(same)} of {len(rows)} cohorts"
    for row in same:
        words += f"; not on {row['task']}, {row['corruption']}: "
        words += f"{row[MEAN_SHARE]:.1f} % in the mean, {row[MEDIAN_SHARE]:.1f} in the median"
    yield Fact(words, None if same else True)


def _frozen(evidence: Evidence, setting: str) -> list[dict[str, Any]]:
    """The rows of the table of frozen cohorts.

    Raises:
        AbsentError: if there are none.
    """
    exhibit = evidence.exhibits.get("weiszfeld")
    if exhibit is None or not exhibit.tables[0].rows:
        raise AbsentError(setting)
    table = exhibit.tables[0]
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]
