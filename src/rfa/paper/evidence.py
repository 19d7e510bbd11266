"""What the runs say, for the statements of `claims.py`: accuracies by place in a picture."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfa.report.exhibit import Exhibit, Spread
from rfa.report.gather import Result, height

POINT = 1.0
"""Accuracies closer than this, in per cent, count as equal."""


class Absent(Exception):  # noqa: N818
    """There are no runs for a statement."""


@dataclass(frozen=True)
class Evidence:
    """The runs of all experiments, and what the others show.

    Attributes:
        results: the runs of each experiment, by its name.
        exhibits: what each experiment shows, by its name.
    """

    results: Mapping[str, Sequence[Result]]
    exhibits: Mapping[str, Exhibit]

    def runs(self, experiment: str, panel: str, line: str, value: Any = None) -> list[Result]:
        """The runs at one place of a picture.

        Raises:
            Absent: if there are none.
        """
        found = [
            result
            for result in self.results.get(experiment, ())
            if (result.cell.panel, result.cell.line) == (panel, line)
            and (value is None or result.cell.value == value)
        ]
        if not found:
            msg = f"{experiment}, {panel}, {line}"
            raise Absent(msg)
        return found

    def end(self, experiment: str, panel: str, line: str, value: Any = None) -> Spread:
        """The accuracies at the end of the runs at one place."""
        found = self.runs(experiment, panel, line, value)
        return Spread([result.at_end("test_accuracy") for result in found])


def after(results: Sequence[Result], rounds: int) -> Spread:
    """The accuracies at the last evaluations up to a round."""
    return Spread(
        [
            [height(e, "test_accuracy") for e in result.evaluations if e["round"] <= rounds][-1]
            for result in results
        ]
    )


def equal(one: Spread, other: Spread) -> bool:
    """Whether two means differ by less than a point, or than the wider spread of their seeds."""
    wide = max(one.high - one.low, other.high - other.low, POINT)
    return abs(one.mean - other.mean) <= wide


def gap(evidence: Evidence, experiment: str, panel: str) -> tuple[float, str]:
    """How far RFA is behind FedAvg without corruption, after the same number of rounds."""
    rfa = evidence.runs(experiment, panel, "RFA", 0.0)
    rounds = min(result.row["rounds"] for result in rfa)
    mine = after(rfa, rounds)
    theirs = after(evidence.runs(experiment, panel, "FedAvg", 0.0), rounds)
    text = f"FedAvg {say(theirs)}, RFA {say(mine)} after {rounds} rounds"
    return theirs.mean - mine.mean, text


def swing(results: Sequence[Result]) -> float:
    """The standard deviation of accuracies, over seeds and evaluations of the later half."""
    heights = [
        height(evaluation, "test_accuracy")
        for result in results
        for evaluation in result.evaluations
        if evaluation["round"] > result.row["rounds"] / 2
    ]
    return statistics.pstdev(heights)


def say(spread: Spread) -> str:
    """A mean, and from where to where the seeds are."""
    if len(spread.values) == 1:
        return f"{spread.mean:.1f}"
    return f"{spread.mean:.1f} ({spread.low:.1f} to {spread.high:.1f})"
