"""What the runs say, for the statements of `claims.py`: accuracies by place in a picture."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rfa.lab.errors import LabError
from rfa.lab.report.exhibit import Exhibit, Spread
from rfa.lab.report.gather import Result, height

ACCURACY = "test_accuracy"
POINT = 1.0
"""Accuracies closer than this, in per cent, count as equal."""

Clear: TypeAlias = bool | None
"""Whether something holds; None where that is not clear."""


class AbsentError(LabError):
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
            AbsentError: if there are none.
        """
        found = [
            result
            for result in self.results.get(experiment, ())
            if (result.cell.panel, result.cell.line) == (panel, line)
            and (value is None or result.cell.value == value)
        ]
        if not found:
            msg = f"{experiment}, {panel}, {line}"
            raise AbsentError(msg)
        return found

    def end(self, experiment: str, panel: str, line: str, value: Any = None) -> Spread:
        """The accuracies at the end of the runs at one place."""
        found = self.runs(experiment, panel, line, value)
        return Spread([result.at_end(ACCURACY) for result in found])


def after(results: Sequence[Result], rounds: int) -> Spread:
    """The accuracies at the last evaluations up to a round."""
    return Spread(
        [
            [height(e, ACCURACY) for e in result.evaluations if e["round"] <= rounds][-1]
            for result in results
        ]
    )


def after_calls(results: Sequence[Result], calls: int) -> Spread:
    """The accuracies at the last evaluations up to a number of calls of the oracle."""
    return Spread(
        [
            [height(e, ACCURACY) for e in result.evaluations if e["oracle_calls"] <= calls][-1]
            for result in results
        ]
    )


def ahead(one: Spread, other: Spread, by: float = 0.0) -> Clear:
    """Whether one is better than another; not clear if they differ by less than the seeds do."""
    difference = one.mean - other.mean - by
    if abs(difference) <= max(_noise(one, other), POINT / 2):
        return None
    return difference > 0


def equal(one: Spread, other: Spread, within: float = POINT) -> Clear:
    """Whether two differ by less than a point; not clear if the seeds differ by more."""
    difference = abs(one.mean - other.mean)
    if difference <= within:
        return True
    return None if difference <= within + _noise(one, other) else False


def all_of(parts: Sequence[Clear]) -> Clear:
    """Whether all hold: one that does not is enough, and else one that is not clear."""
    return False if False in parts else None if None in parts else True


def _noise(one: Spread, other: Spread) -> float:
    """Half of the wider band of seeds; a point where a single seed tells nothing of it."""
    alone = POINT if min(len(one.values), len(other.values)) < 2 else 0.0  # noqa: PLR2004
    return max(one.high - one.low, other.high - other.low, 2 * alone) / 2


def without_corruption(
    evidence: Evidence, experiment: str, panel: str
) -> tuple[Spread, Spread, str]:
    """RFA and FedAvg without corruption, after the same number of rounds."""
    rfa = evidence.runs(experiment, panel, "RFA", 0.0)
    rounds = min(result.cell.settings.rounds for result in rfa)
    mine = after(rfa, rounds)
    theirs = after(evidence.runs(experiment, panel, "FedAvg", 0.0), rounds)
    text = f"FedAvg {say(theirs)}, RFA {say(mine)} after {rounds} rounds"
    return mine, theirs, text


def variation(results: Sequence[Result]) -> float:
    """How far seeds lie apart: the mean width of their band in the later half of the rounds.

    Raises:
        AbsentError: if there are no two seeds.
    """
    if len(results) < 2:  # noqa: PLR2004
        msg = "it takes two seeds"
        raise AbsentError(msg)
    by_round: dict[int, list[float]] = {}
    for result in results:
        for evaluation in result.evaluations:
            if evaluation["round"] > result.cell.settings.rounds / 2:
                by_round.setdefault(evaluation["round"], []).append(height(evaluation, ACCURACY))
    return statistics.mean(max(heights) - min(heights) for heights in by_round.values())


def say(spread: Spread) -> str:
    """A mean, and from where to where the seeds are."""
    if len(spread.values) == 1:
        return f"{spread.mean:.1f}"
    return f"{spread.mean:.1f} ({spread.low:.1f} to {spread.high:.1f})"
