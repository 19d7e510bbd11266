"""Exhibits of runs in the store.

The accuracy "at the end" of a run is the mean over its evaluations in the last tenth of its rounds,
because runs under corruption swing; a run that diverged counts with its last evaluation.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfa.lab.report.exhibit import Exhibit, Line, Panel, Spread, Table, Value, group
from rfa.lab.runs.headline import ALL, HONEST
from rfa.lab.runs.spent import simulated
from rfa.lab.runs.statistics import mean_interval
from rfa.lab.runs.store import DONE, Store
from rfa.lab.runs.sweep import Cell, Sweep

LABELS = {
    "test_accuracy": "test accuracy (%)",
    "honest_accuracy": "test accuracy of honest devices (%)",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "median_device": "accuracy of the median device (%)",
    "honest_median_device": "accuracy of the median honest device (%)",
    "worst_tenth": "accuracy of the worst tenth (%)",
    "honest_worst_tenth": "accuracy of the worst tenth of honest devices (%)",
    "backdoor": "success of the backdoor (%)",
    "oracle_calls": "calls of the oracle",
    "round": "rounds",
    "uploads": "models that a device sends",
    "certificate": "largest share of a device in a step, proven (%)",
    "nu": "radius nu",
    "rho": "corruption level",
    "learning_rate": "learning rate",
    "devices_per_round": "devices in a round",
    "epsilon": "epsilon",
    "epsilon_server": "epsilon against the server",
    "epsilon_readers": "epsilon against readers of the models",
}
SHARES = frozenset(name for name, label in LABELS.items() if label.endswith("(%)"))
"""Measures that are shown in per cent."""
TOLD = {
    ALL: {ALL: "accuracy (%)", HONEST: "honest devices (%)", "worst_tenth": "worst tenth (%)"},
    HONEST: {
        HONEST: "accuracy, honest devices (%)",
        ALL: "all devices (%)",
        "honest_worst_tenth": "worst tenth of honest devices (%)",
    },
}
"""The columns of a table of final results, by the accuracy that is drawn, which comes first."""
NAMED: Mapping[str, Mapping[Any, str]] = {"nu": {0.0: "learned"}, "epsilon": {0.0: "no noise"}}
"""Settings whose values are shown side by side, not along an axis, and names of some values."""
SPENT = {
    "epsilon, server": "epsilon_server",
    "epsilon, readers": "epsilon_readers",
    "noise multiplier": "noise_multiplier",
}
"""The columns of a table on the privacy of runs, if their sums hold noise."""
INTERVAL = ("95 % from", "to")
"""The interval of a mean over seeds."""
BY_DEVICE = "device"
LAST = 0.1
"""The fraction of a run's rounds that count as its end."""


@dataclass(frozen=True)
class Result:
    """A run in the store: its row, and its evaluations in order."""

    cell: Cell
    row: Mapping[str, Any]
    evaluations: Sequence[Mapping[str, Any]]

    @property
    def diverged(self) -> bool:
        """Whether the run was ended because it diverged."""
        return self.row["status"] == "diverged"

    def at_end(self, measure: str) -> float:
        """Return the number at the end of the run."""
        return number_at_end(self.row, self.evaluations, measure)


def number_at_end(
    row: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]], measure: str
) -> float:
    """Return the number at the end of a run, from its row and its evaluations in order."""
    if measure == "certificate":
        return height(row, measure)
    after = math.floor((1 - LAST) * row["rounds"])
    late = [each for each in evaluations if each["round"] > after] or evaluations[-1:]
    if row["status"] == "diverged":
        late = evaluations[-1:]
    return Spread([height(evaluation, measure) for evaluation in late]).mean


def height(evaluation: Mapping[str, Any], measure: str) -> float:
    """Return a measure of an evaluation as it is drawn: fractions in percent."""
    value = evaluation.get(measure)
    if value is None:
        return math.nan
    return 100 * value if measure in SHARES else float(value)


def find_results(store: Store, cells: Iterable[Cell]) -> list[Result]:
    """Return the runs of the cells that are done."""
    rows = {row["run"]: row for row in store.runs() if row["status"] in DONE}
    done = [(cell, rows.get(cell.settings.run_name)) for cell in cells]
    return [
        Result(cell, row, store.table("evaluations", run=row["run"])) for cell, row in done if row
    ]


def gather(sweep: Sweep, results: Sequence[Result], **about: Any) -> Exhibit:
    """Return the exhibit of a sweep: panels with lines, and the table behind them."""
    panels = [
        panel
        for measure in sweep.measures
        for axis in ([""] if sweep.x else sweep.axes)
        for panel in _panels(sweep, results, measure, axis)
    ]
    return Exhibit(
        name=sweep.name,
        title=sweep.title,
        claim=sweep.claim,
        paper=sweep.paper,
        panels=panels,
        tables=[_table(sweep, results)],
        data=_data(results),
        origins=origins(result.row for result in results),
        **about,
    )


def _panels(sweep: Sweep, results: Sequence[Result], measure: str, axis: str) -> Iterator[Panel]:
    """Yield panels with the end of runs against the setting x, or their course along an axis."""
    view = LABELS[measure] if axis == "" else f"{LABELS[measure]} against {LABELS[axis]}"
    several = len(sweep.measures) * (1 if sweep.x else len(sweep.axes)) > 1
    for part in sweep.panels:
        there = [result for result in results if result.cell.panel == part.name]
        runs = group(there, lambda result: result.cell.line)
        labels = [line.name for line in sweep.lines if line.name in runs]
        if labels:
            yield Panel(
                title=part.name,
                x_label=LABELS.get(axis or sweep.x, sweep.x.replace("_", " ")),
                y_label=LABELS[measure],
                lines=[
                    _curve(sweep, label, runs[label], measure, axis)
                    if axis
                    else _ends(sweep, label, runs[label], measure)
                    for label in labels
                ],
                view=view if several else "",
                ticks=[_tick(sweep.x, value) for value in sweep.values] if _named(sweep) else [],
                log_y=bool(axis) and "loss" in measure,
                note=_horizon(there),
            )


def _named(sweep: Sweep) -> bool:
    """Return whether the values of x have names instead of places on a numeric axis."""
    return sweep.x in NAMED or any(isinstance(value, str | bool) for value in sweep.values)


def _tick(x: str, value: Any) -> str:
    return NAMED.get(x, {}).get(value, f"{value:g}" if isinstance(value, float) else str(value))


def _ends(sweep: Sweep, label: str, results: Sequence[Result], measure: str) -> Line:
    """Return the end of runs at each value of the setting x."""
    runs = group(results, lambda result: result.cell.value)
    known = [(place, value) for place, value in enumerate(sweep.values) if value in runs]
    named = _named(sweep)
    x = [float(place) if named else float(value) for place, value in known]
    spreads = [Spread([result.at_end(measure) for result in runs[value]]) for _, value in known]
    return Line.over_seeds(label, x, spreads, _diverged(sweep, results))


def _curve(sweep: Sweep, label: str, results: Sequence[Result], measure: str, axis: str) -> Line:
    """Return the mean along an axis, over the seeds that did not diverge, or over all.

    Evaluations come after the same rounds for all seeds, so they are matched by rounds.
    """
    stayed = [result for result in results if not result.diverged] or list(results)
    evaluations = [evaluation for result in stayed for evaluation in result.evaluations]
    by_round = sorted(group(evaluations, lambda evaluation: int(evaluation["round"])).items())
    complete = [some for _, some in by_round if len(some) == len(stayed)]
    x = [Spread([_along(each, axis, stayed[0]) for each in some]).mean for some in complete]
    spreads = [Spread([height(each, measure) for each in some]) for some in complete]
    note = _diverged(sweep, results) + (", left out" if len(stayed) < len(results) else "")
    return Line.over_seeds(label, x, spreads, note)


def _diverged(sweep: Sweep, results: Sequence[Result]) -> str:
    """Return which runs diverged, in words."""
    runs = group(results, lambda result: result.cell.value)
    counts = {value: sum(run.diverged for run in runs.get(value, ())) for value in sweep.values}
    return ", ".join(
        f"{count} of {len(runs[value])} diverged{f' at {value}' if sweep.x else ''}"
        for value, count in counts.items()
        if count
    )


def _along(evaluation: Mapping[str, Any], axis: str, result: Result) -> float:
    """Return how far along an axis an evaluation is."""
    if axis == "uploads":
        return float(evaluation["round"] * result.cell.settings.layout.queries)
    return float(evaluation[axis])


def _table(sweep: Sweep, results: Sequence[Result]) -> Table:
    """Return the numbers at the end of runs, with those of the paper next to ours."""
    paper = {
        (entry["panel"], entry["line"], entry.get("value")): entry["paper"]
        for entry in sweep.numbers
    }
    head = ["panel", "line", *([LABELS.get(sweep.x, sweep.x)] if sweep.x else [])]
    told = TOLD[told_first(sweep)]
    head += [*list(told.values())[:1], "lowest", "highest", *INTERVAL, *list(told.values())[1:]]
    noisy = any(result.row.get("privacy") for result in results)
    head += ["seeds", "diverged", "rounds", "calls"] + (list(SPENT) if noisy else [])
    head += ["paper (%)"] if paper else []
    runs = group(results, lambda result: (result.cell.panel, result.cell.line, result.cell.value))
    rows: list[list[Value]] = []
    for panel, line, value in itertools.product(sweep.panels, sweep.lines, sweep.values):
        place = (panel.name, line.name, value)
        if place in runs:
            where = place if sweep.x else place[:2]
            numbers = _numbers(runs[place], list(told))
            numbers += _spent(runs[place]) if noisy else []
            rows.append([*where, *numbers, *([paper.get(place)] if paper else [])])
    return Table("At the end of the runs", head, rows)


def told_first(sweep: Sweep) -> str:
    """Return the first accuracy of a table: over honest devices if the pictures show that."""
    return HONEST if HONEST in sweep.measures and ALL not in sweep.measures else ALL


def _numbers(results: Sequence[Result], measures: Sequence[str]) -> list[Value]:
    accuracy, *others = (
        Spread([result.at_end(measure) for result in results]) for measure in measures
    )
    interval = mean_interval(accuracy.values)
    ends = (max(0.0, interval.low), min(100.0, interval.high))
    return [
        accuracy.mean,
        accuracy.low,
        accuracy.high,
        *(ends if math.isfinite(interval.low) else (None, None)),
        *(spread.mean for spread in others),
        len(results),
        sum(result.diverged for result in results),
        max(result.row["rounds"] for result in results),
        max(result.row["oracle_calls"] for result in results),
    ]


def _spent(results: Sequence[Result]) -> list[Value]:
    """Return the noise of runs, and the largest epsilon of any of them."""
    known = [[result.row[column] for result in results] for column in SPENT.values()]
    return [max((each for each in some if each is not None), default=None) for some in known]


def _horizon(results: Sequence[Result]) -> str:
    """Return how long the runs of a panel are, in words."""
    settings = [result.cell.settings for result in results]
    by_rounds = group(results, lambda result: result.cell.settings.rounds)
    lines = {
        rounds: ", ".join(dict.fromkeys(result.cell.line for result in some))
        for rounds, some in by_rounds.items()
    }
    parts = [f"{rounds} rounds of {names}" for rounds, names in lines.items()]
    if len(lines) == 1:
        parts = [f"{settings[0].rounds} rounds"]
    parts.append(
        f"{_listed(each.training.devices_per_round for each in settings)} devices per round"
    )
    seeds = {each.seed for each in settings}
    parts.append(f"seed{'s' if len(seeds) > 1 else ''} {_listed(seeds)}")
    examples = max(each.evaluation.examples for each in settings)
    if examples:
        parts.append(f"evaluated on at most {examples} examples per device")
    parts.append(simulated(each.privacy.noise_cohort for each in settings))
    return "; ".join(filter(None, parts))


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers))))


def _data(results: Sequence[Result]) -> list[str]:
    """Return the data used, a sentence for each task."""
    rows = [result.row for result in results]
    return list(dict.fromkeys(data_note(row, _partition(row)) for row in rows))


def origins(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the origin of runs in words: one line for each version and machine."""
    by_origin = group(rows, lambda row: row.get("origin") or "{}")
    return [_origin_words(json.loads(text), len(some)) for text, some in by_origin.items()]


def _origin_words(made: Mapping[str, str], runs: int) -> str:
    count = f"{runs} run{'s' if runs > 1 else ''}"
    return f"{count}: {', '.join(f'{name} {value}' for name, value in made.items()) or 'unknown'}"


def _partition(row: Mapping[str, Any]) -> str:
    return json.loads(row["settings"])["training"]["partition"]


def data_note(row: Mapping[str, Any], partition: str = BY_DEVICE) -> str:
    """Return the data of a run in words."""
    split = "" if partition == BY_DEVICE else f", partition {partition}"
    note = f": {row['note']}" if row["note"] else ""
    return f"{row['task']}, {row['devices']} devices{split}{note}"
