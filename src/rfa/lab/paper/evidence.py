"""The evidence of runs for statements of the paper: accuracies by place in a picture."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rfa._specs import parse_spec
from rfa.lab.errors import LabError
from rfa.lab.paper.verdicts import Finding
from rfa.lab.report.exhibit import Exhibit, Spread, group
from rfa.lab.report.gather import LAST, Result, height
from rfa.lab.runs.headline import ALL
from rfa.lab.runs.sweep import calls_per_round
from rfa.lab.settings.settings import Settings

NEAR = 10.0
"""A model has learned if its accuracy is at most this number of points below the paper's."""
LEARNED = {"emnist-linear": 64.3, "sent140-linear": 65.0, "emnist-convnet": 67.9}
"""The paper's accuracies without corruption. Of the ConvNet it states none: with a quarter of the
devices omniscient one-step RFA has 67.9. Where it states nothing, a model must be as many points
above the largest class."""
REDUCED = ("emnist-convnet", "shakespeare-lstm")
"""Deep nets, which may be judged after fewer rounds than the paper has, if they have learned."""
ARTIFICIAL = "artificial"
UNKNOWN = "the share of the largest class is not known without its data"


@dataclass(frozen=True)
class Reading:
    """A number that is read of a run, and whether at its end."""

    of: Callable[[Result], float]
    is_end: bool = False


class AbsentError(LabError):
    """There are no runs for a statement."""


@dataclass(frozen=True)
class Place:
    """Where runs are in the pictures, but for the line: experiment, panel, value on the axis."""

    experiment: str
    panel: str
    value: Any = None


@dataclass(frozen=True)
class Evidence:
    """The runs of all experiments, and what these show, by their names."""

    results: Mapping[str, Sequence[Result]]
    exhibits: Mapping[str, Exhibit]
    largest_class: Mapping[str, float] = field(default_factory=dict[str, float])  # by task, in %

    def runs(self, place: Place, line: str) -> dict[int, Result]:
        """The runs of one line at a place, by seed.

        Raises:
            AbsentError: if there are none.
        """
        runs = {
            result.cell.settings.seed: result
            for result in self.results.get(place.experiment, ())
            if (result.cell.panel, result.cell.line) == (place.panel, line)
            and (place.value is None or result.cell.value == place.value)
        }
        if not runs:
            msg = f"{place.experiment}, {place.panel}, {line}"
            raise AbsentError(msg)
        return runs

    def difference(  # noqa: PLR0913
        self,
        place: Place,
        lines: tuple[str, str],
        *,
        read: Reading | None = None,
        bound: float = 0.0,
        margin: float | None = None,
        digits: int = 1,
    ) -> Finding:
        """Return the first line minus the second, for each seed.

        Args:
            place: where the lines are.
            lines: the two.
            read: the number that is read of a run; by default the accuracy at its end.
            bound: the bound that the difference should exceed.
            margin: the largest distance to the bound, for equality.
            digits: the digits after the point that are shown.
        """
        reading = read or at_end()
        first, second = (self.runs(place, line) for line in lines)
        seeds = sorted(first.keys() & second.keys())
        pairs = [(reading.of(first[seed]), reading.of(second[seed])) for seed in seeds]
        ends = [Spread(values) for values in zip(*pairs, strict=True)] or [Spread(), Spread()]
        horizons = _horizons(first, second) if reading.is_end else ("", "")
        words = " minus ".join(
            f"{line} {end.mean:.{digits}f}{horizon}"
            for line, end, horizon in zip(lines, ends, horizons, strict=True)
        )
        why = self._why_open([*first.values(), *second.values()])
        return Finding(words, [a - b for a, b in pairs], bound, margin, why, digits)

    def smaller_loss(
        self, place: Place, value: float, lines: tuple[str, str], *, read: Reading | None = None
    ) -> Finding:
        """Return what the first line loses less than the second from a place to another value.

        Args:
            place: where the lines are before the loss.
            value: the value on the axis after it.
            lines: the two.
            read: the number that is read of a run; by default the accuracy at its end.
        """
        reading = read or at_end()
        before = [self.runs(place, line) for line in lines]
        behind = [self.runs(dataclasses.replace(place, value=value), line) for line in lines]
        all_runs = [*before, *behind]
        seeds = [seed for seed in sorted(before[0]) if all(seed in runs for runs in all_runs)]
        losses = [
            [reading.of(old[seed]) - reading.of(new[seed]) for seed in seeds]
            for old, new in zip(before, behind, strict=True)
        ]
        words = " minus ".join(
            f"loss of {line} {Spread(loss).mean:.1f}"
            for line, loss in zip(reversed(lines), reversed(losses), strict=True)
        )
        why = self._why_open([run for runs in all_runs for run in runs.values()])
        return Finding(words, [b - a for a, b in zip(*losses, strict=True)], why_open=why)

    def level(
        self, place: Place, line: str, *, above: float | None = None, below: float | None = None
    ) -> Finding:
        """The accuracies of a line at the end, which should be above a level, or below one."""
        runs = self.runs(place, line)
        ends = [at_end().of(runs[seed]) for seed in sorted(runs)]
        why = self._why_open(list(runs.values()))
        if below is None:
            return Finding(line, ends, above or 0.0, why_open=why)
        words = f"{line} {Spread(ends).mean:.1f}, below {below:.1f} by"
        return Finding(words, [below - end for end in ends], why_open=why)

    def lost(self, place: Place, line: str, task: str, near: float) -> Finding:
        """Whether a line ends near the share of the largest class, as a model that is lost."""
        share = self.largest_class.get(task)
        if share is None:
            return dataclasses.replace(self.level(place, line), why_open=UNKNOWN)
        return self.level(place, line, below=share + near)

    def has_learned(self, place: Place, line: str = "FedAvg") -> str:
        """Why runs without corruption have not learned; nothing if they have."""
        runs = list(self.runs(place, line).values())
        task = runs[0].cell.settings.task
        accuracy = statistics.mean(at_end().of(run) for run in runs)
        floor, paper = self.largest_class.get(task), LEARNED.get(parse_spec(task).name)
        if paper is None and floor is None:
            return UNKNOWN
        wanted = (floor or 0.0) + NEAR if paper is None else max(floor or 0.0, paper - NEAR)
        if accuracy > wanted:
            return ""
        return f"not trained: {accuracy:.1f} without corruption, not above {wanted:.1f}"

    def reduced(self, place: Place, line: str = "FedAvg") -> str:
        """How runs of a deep net are shorter than the paper's; nothing if they are not."""
        run = next(iter(self.runs(place, line).values()))
        short = too_short(run) if may_be_short(run) else ""
        devices = run.cell.settings.training.devices_per_round
        return f"a reduced horizon ({short}; {devices} devices per round)" if short else ""

    @staticmethod
    def _why_open(runs: Sequence[Result]) -> str:
        """Why runs cannot speak about the paper, if so."""
        reasons = [too_short(run) for run in runs if not may_be_short(run)]
        return next((reason for reason in reasons if reason), "")


def _horizons(*lines: Mapping[int, Result]) -> list[str]:
    """The rounds of each line in words; only after the last one if they are the same."""
    rounds = [{run.cell.settings.rounds for run in runs.values()} for runs in lines]
    words = [f" ({' or '.join(map(str, sorted(each)))} rounds)" for each in rounds]
    same = all(each == rounds[-1] for each in rounds)
    return [*([""] * (len(words) - 1)), words[-1]] if same else words


def too_short(result: Result) -> str:
    """Whether a run is shorter than the paper's, in rounds and in calls, in words."""
    settings = result.cell.settings
    whole = Settings.of(settings.task, aggregator=parse_spec(settings.aggregator).name)
    short = settings.rounds < whole.rounds
    calls = settings.rounds * calls_per_round(settings), whole.rounds * calls_per_round(whole)
    if short and calls[0] < calls[1]:
        return f"{settings.rounds} rounds, the paper has {whole.rounds}"
    return ""


def may_be_short(result: Result) -> bool:
    """Whether a run may be shorter than the paper's and still be judged."""
    return parse_spec(result.cell.settings.task).name in REDUCED


def is_artificial(runs: Mapping[int, Result]) -> bool:
    """Whether the devices of runs are made up."""
    return any(ARTIFICIAL in str(result.row.get("note")) for result in runs.values())


def at_end(measure: str = ALL) -> Reading:
    """Read the end of a run."""
    return Reading(lambda result: result.at_end(measure), is_end=True)


def after(count: int, what: str = "round") -> Reading:
    """Read the last tenth of a number of rounds, or of oracle calls: the mean, as at the end."""

    def read(result: Result) -> float:
        known = [each for each in result.evaluations if each[what] <= count]
        late = [each for each in known if each[what] > (1 - LAST) * count] or known[-1:]
        return statistics.mean(height(each, ALL) for each in late)

    return Reading(read)


def swing(rounds: int) -> Reading:
    """Read how far the accuracy of a run swings in the later half of some rounds.

    It is the deviation from a straight line, so that to learn is not to swing.
    """

    def read(result: Result) -> float:
        late = _late(result, rounds)
        if len(late) < 3:  # noqa: PLR2004
            return float("nan")
        times = [float(each["round"]) for each in late]
        heights = [height(each, ALL) for each in late]
        line = statistics.linear_regression(times, heights)
        return statistics.pstdev(h - line.slope * t for t, h in zip(times, heights, strict=True))

    return Reading(read)


def band(results: Sequence[Result], rounds: int) -> float:
    """How far seeds lie apart: the mean width of their band in the later half of some rounds."""
    late = [evaluation for result in results for evaluation in _late(result, rounds)]
    by_round = group(late, lambda evaluation: int(evaluation["round"])).values()
    spreads = [Spread([height(each, ALL) for each in some]) for some in by_round]
    return statistics.mean(spread.high - spread.low for spread in spreads)


def _late(result: Result, rounds: int) -> list[Mapping[str, Any]]:
    """The evaluations of a run in the later half of some rounds."""
    return [each for each in result.evaluations if rounds / 2 < each["round"] <= rounds]
