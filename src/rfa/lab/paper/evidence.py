"""What the runs say, for the statements of `claims.py`: accuracies by place in a picture."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rfa.lab.errors import LabError
from rfa.lab.report.exhibit import Exhibit, Spread, group
from rfa.lab.report.gather import Result, height
from rfa.lab.runs.headline import ALL

POINT = 1.0
"""Accuracies closer than this, in per cent, count as equal."""

Clear: TypeAlias = bool | None
"""Whether something holds; None where that is not clear."""


class AbsentError(LabError):
    """There are no runs for a statement."""


@dataclass(frozen=True)
class Evidence:
    """The runs of all experiments, and what these show, by their names."""

    results: Mapping[str, Sequence[Result]]
    exhibits: Mapping[str, Exhibit]

    def runs(self, experiment: str, panel: str, line: str, value: Any = None) -> list[Result]:
        """The runs at one place of a picture.

        Raises:
            AbsentError: if there are none.
        """
        runs = [
            result
            for result in self.results.get(experiment, ())
            if (result.cell.panel, result.cell.line) == (panel, line)
            and (value is None or result.cell.value == value)
        ]
        if not runs:
            msg = f"{experiment}, {panel}, {line}"
            raise AbsentError(msg)
        return runs

    def end(
        self, experiment: str, panel: str, line: str, value: Any = None, *, measure: str = ALL
    ) -> Spread:
        """The accuracies at the end of the runs at one place: over all devices, or as told."""
        runs = self.runs(experiment, panel, line, value)
        return Spread([result.at_end(measure) for result in runs])

    def ends(
        self,
        experiment: str,
        panel: str,
        lines: Sequence[str],
        value: Any = None,
        *,
        measure: str = ALL,
    ) -> tuple[list[Spread], str]:
        """The same for several lines of a panel, and in words."""
        spreads = [self.end(experiment, panel, line, value, measure=measure) for line in lines]
        words = (f"{line} {say(end)}" for line, end in zip(lines, spreads, strict=True))
        return spreads, ", ".join(words)


def after(results: Sequence[Result], count: int, what: str = "round") -> Spread:
    """The accuracies at the last evaluations up to a number of rounds or of oracle calls."""
    last = [[e for e in result.evaluations if e[what] <= count][-1] for result in results]
    return Spread([height(evaluation, ALL) for evaluation in last])


def ahead(first: Spread, second: Spread) -> Clear:
    """Whether the first is better; not clear if they differ by less than the seeds do."""
    difference = first.mean - second.mean
    if abs(difference) <= max(_noise(first, second), POINT / 2):
        return None
    return difference > 0


def equal(first: Spread, second: Spread, within: float = POINT) -> Clear:
    """Whether two differ by less than a point; not clear if the seeds differ by more."""
    difference = abs(first.mean - second.mean)
    if difference <= within:
        return True
    return None if difference <= within + _noise(first, second) else False


def all_of(parts: Sequence[Clear]) -> Clear:
    """Whether all hold: one that does not is enough, and else one that is not clear."""
    return False if False in parts else None if None in parts else True


def _noise(first: Spread, second: Spread) -> float:
    """Half of the wider band of seeds; a point where a single seed tells nothing of it."""
    alone = POINT if min(len(first.values), len(second.values)) < 2 else 0.0  # noqa: PLR2004
    return max(first.high - first.low, second.high - second.low, 2 * alone) / 2


def without_corruption(
    evidence: Evidence, experiment: str, panel: str
) -> tuple[Spread, Spread, str]:
    """RFA and FedAvg without corruption, after the same number of rounds."""
    runs = evidence.runs(experiment, panel, "RFA", 0.0)
    rounds = min(result.cell.settings.rounds for result in runs)
    rfa = after(runs, rounds)
    fedavg = after(evidence.runs(experiment, panel, "FedAvg", 0.0), rounds)
    return rfa, fedavg, f"FedAvg {say(fedavg)}, RFA {say(rfa)} after {rounds} rounds"


def variation(results: Sequence[Result]) -> float:
    """How far seeds lie apart: the mean width of their band in the later half of the rounds.

    Raises:
        AbsentError: if there are no two seeds.
    """
    if len(results) < 2:  # noqa: PLR2004
        msg = "it takes two seeds"
        raise AbsentError(msg)
    late = [
        evaluation
        for result in results
        for evaluation in result.evaluations
        if evaluation["round"] > result.cell.settings.rounds / 2
    ]
    by_round = group(late, lambda evaluation: int(evaluation["round"])).values()
    spreads = [Spread([height(each, ALL) for each in some]) for some in by_round]
    return statistics.mean(spread.high - spread.low for spread in spreads)


def say(spread: Spread) -> str:
    """A mean, and from where to where the seeds are."""
    if len(spread.values) == 1:
        return f"{spread.mean:.1f}"
    return f"{spread.mean:.1f} ({spread.low:.1f} to {spread.high:.1f})"
