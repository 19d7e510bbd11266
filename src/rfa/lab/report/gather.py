"""From runs in the store to what is shown of them.

The accuracy "at the end" of a run is the mean over its evaluations in the last tenth of its rounds,
because runs under corruption swing; a run that diverged counts with its last evaluation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfa.lab.report.exhibit import Exhibit, Line, Panel, Spread, Table, Value
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import Cell, Sweep
from rfa.lab.settings.config import run_name

LABELS = {
    "test_accuracy": "test accuracy (%)",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "median_device": "accuracy of the median device (%)",
    "worst_tenth": "accuracy of the worst tenth (%)",
    "backdoor": "success of the backdoor (%)",
    "oracle_calls": "calls of the oracle",
    "round": "rounds",
    "uploads": "models that a device sends",
    "certificate": "largest share of a device in a step, proven (%)",
    "nu": "radius nu",
    "rho": "corruption level",
    "learning_rate": "learning rate",
    "devices_per_round": "devices in a round",
}
SHARES = ("test_accuracy", "median_device", "worst_tenth", "backdoor", "certificate")
"""Measures that are shown in per cent."""
NAMED: Mapping[str, Mapping[Any, str]] = {"nu": {0.0: "learned"}}
"""Settings whose values are shown side by side, not along an axis, and what some are called."""
LAST = 0.1
"""The share of a run's rounds that count as its end."""


@dataclass(frozen=True)
class Result:
    """A run as the store has it: its row, and its evaluations in order."""

    cell: Cell
    row: Mapping[str, Any]
    evaluations: Sequence[Mapping[str, Any]]

    @property
    def diverged(self) -> bool:
        """Whether the run was ended because it diverged."""
        return self.row["status"] == "diverged"

    def at_end(self, measure: str) -> float:
        """What the run has come to."""
        if measure == "certificate":
            return height(self.row, measure)
        after = math.floor((1 - LAST) * self.row["rounds"])
        late = [e for e in self.evaluations if e["round"] > after] or self.evaluations[-1:]
        if self.diverged:
            late = self.evaluations[-1:]
        return Spread([height(evaluation, measure) for evaluation in late]).mean


def height(evaluation: Mapping[str, Any], measure: str) -> float:
    """A measure of an evaluation as it is drawn: shares in per cent."""
    value = evaluation.get(measure)
    if value is None:
        return math.nan
    return 100 * value if measure in SHARES else float(value)


def find_results(store: Store, cells: Iterable[Cell]) -> list[Result]:
    """The runs of the cells that are done."""
    rows = {row["run"]: row for row in store.runs()}
    found: list[Result] = []
    for cell in cells:
        row = rows.get(run_name(cell.settings))
        if row is not None and row["status"] in ("finished", "diverged"):
            found.append(Result(cell, row, store.table("evaluations", run=row["run"])))
    return found


def gather(sweep: Sweep, results: Sequence[Result], **about: Any) -> Exhibit:
    """What a sweep shows: panels with lines, and the table behind them."""
    panels: list[Panel] = []
    if sweep.x:
        for measure in sweep.measures:
            panels += _levels(sweep, results, measure)
    else:
        for measure in sweep.measures:
            for axis in sweep.axes:
                panels += _curves(sweep, results, measure, axis)
    return Exhibit(
        name=sweep.name,
        title=sweep.title,
        claim=sweep.claim,
        paper=sweep.paper,
        panels=panels,
        tables=[_table(sweep, results)],
        data=_data(results),
        **about,
    )


def _levels(sweep: Sweep, results: Sequence[Result], measure: str) -> list[Panel]:
    """Panels with the end of each run against the setting x."""
    names = sweep.x in NAMED or any(isinstance(value, str | bool) for value in sweep.values)
    view = LABELS[measure] if len(sweep.measures) > 1 else ""
    panels: list[Panel] = []
    for panel in sweep.panels:
        own = [result for result in results if result.cell.panel == panel.name]
        lines: list[Line] = []
        for line in sweep.lines:
            ends = _by_value(sweep, [r for r in own if r.cell.line == line.name], measure)
            if ends:
                lines.append(_level_line(sweep, line.name, ends, own, names=names))
        if lines:
            panels.append(
                Panel(
                    title=panel.name,
                    x_label=LABELS.get(sweep.x, sweep.x.replace("_", " ")),
                    y_label=LABELS[measure],
                    lines=lines,
                    view=view,
                    ticks=[_tick(sweep.x, value) for value in sweep.values] if names else [],
                    note=_horizon(own),
                )
            )
    return panels


def _tick(x: str, value: Any) -> str:
    return NAMED.get(x, {}).get(value, f"{value:g}" if isinstance(value, float) else str(value))


def _by_value(
    sweep: Sweep, results: Sequence[Result], measure: str
) -> list[tuple[int, Any, Spread]]:
    ends: list[tuple[int, Any, Spread]] = []
    for place, value in enumerate(sweep.values):
        found = [result.at_end(measure) for result in results if result.cell.value == value]
        if found:
            ends.append((place, value, Spread(found)))
    return ends


def _level_line(
    sweep: Sweep,
    label: str,
    ends: Sequence[tuple[int, Any, Spread]],
    results: Sequence[Result],
    *,
    names: bool,
) -> Line:
    mine = [result for result in results if result.cell.line == label]
    return Line(
        label=label,
        x=[float(place) if names else float(value) for place, value, _ in ends],
        mean=[spread.mean for *_, spread in ends],
        low=[spread.low for *_, spread in ends],
        high=[spread.high for *_, spread in ends],
        seeds=max(len(spread.values) for *_, spread in ends),
        note=_lost(sweep, mine),
    )


def _lost(sweep: Sweep, results: Sequence[Result]) -> str:
    """Which runs diverged, in words."""
    parts: list[str] = []
    for value in sweep.values:
        there = [result for result in results if result.cell.value == value]
        lost = sum(result.diverged for result in there)
        if lost:
            where = f" at {value}" if sweep.x else ""
            parts.append(f"{lost} of {len(there)} diverged{where}")
    return ", ".join(parts)


def _curves(sweep: Sweep, results: Sequence[Result], measure: str, axis: str) -> list[Panel]:
    """Panels with each line from the first evaluation to the last."""
    several = len(sweep.measures) * len(sweep.axes) > 1
    view = f"{LABELS[measure]} against {LABELS[axis]}" if several else ""
    panels: list[Panel] = []
    for panel in sweep.panels:
        own = [result for result in results if result.cell.panel == panel.name]
        lines = [
            _curve(sweep, line.name, mine, measure, axis)
            for line in sweep.lines
            if (mine := [result for result in own if result.cell.line == line.name])
        ]
        if lines:
            panels.append(
                Panel(
                    title=panel.name,
                    x_label=LABELS[axis],
                    y_label=LABELS[measure],
                    lines=lines,
                    view=view,
                    log_y="loss" in measure,
                    note=_horizon(own),
                )
            )
    return panels


def _curve(sweep: Sweep, label: str, results: Sequence[Result], measure: str, axis: str) -> Line:
    """The mean over the seeds that stayed; over all of them where none did.

    Evaluations come after the same rounds for all seeds, so they are matched by rounds.
    """
    stayed = [result for result in results if not result.diverged] or list(results)
    by_round: dict[int, list[Mapping[str, Any]]] = {}
    for result in stayed:
        for evaluation in result.evaluations:
            by_round.setdefault(evaluation["round"], []).append(evaluation)
    whole = [found for _, found in sorted(by_round.items()) if len(found) == len(stayed)]
    spreads = [Spread([height(evaluation, measure) for evaluation in found]) for found in whole]
    return Line(
        label=label,
        x=[Spread([_along(one, axis, stayed[0]) for one in found]).mean for found in whole],
        mean=[spread.mean for spread in spreads],
        low=[spread.low for spread in spreads],
        high=[spread.high for spread in spreads],
        seeds=len(stayed),
        note=_lost(sweep, results) + (", left out" if len(stayed) < len(results) else ""),
    )


def _along(evaluation: Mapping[str, Any], axis: str, result: Result) -> float:
    """How far along an axis an evaluation is."""
    if axis == "uploads":
        return float(evaluation["round"] * result.cell.settings.layout.queries)
    return float(evaluation[axis])


def _table(sweep: Sweep, results: Sequence[Result]) -> Table:
    """Every number that is drawn at the end of runs, the paper's beside ours."""
    paper = {
        (entry["panel"], entry["line"], entry.get("value")): entry["paper"]
        for entry in sweep.numbers
    }
    head = ["panel", "line", *([LABELS.get(sweep.x, sweep.x)] if sweep.x else [])]
    head += ["accuracy (%)", "lowest", "highest", "worst tenth (%)", "seeds", "diverged"]
    head += ["rounds", "calls"] + (["paper (%)"] if paper else [])
    rows: list[list[Value]] = []
    for panel in sweep.panels:
        for line in sweep.lines:
            for value in sweep.values:
                place = (panel.name, line.name, value)
                found = [r for r in results if (r.cell.panel, r.cell.line, r.cell.value) == place]
                if found:
                    own: list[Value] = [*place[:2], *([value] if sweep.x else []), *_numbers(found)]
                    rows.append(own + ([paper.get(place)] if paper else []))
    return Table("At the end of the runs", head, rows)


def _numbers(found: Sequence[Result]) -> list[Value]:
    accuracy = Spread([result.at_end("test_accuracy") for result in found])
    return [
        accuracy.mean,
        accuracy.low,
        accuracy.high,
        Spread([result.at_end("worst_tenth") for result in found]).mean,
        len(found),
        sum(result.diverged for result in found),
        max(result.row["rounds"] for result in found),
        max(result.row["oracle_calls"] for result in found),
    ]


def _horizon(results: Sequence[Result]) -> str:
    """How long the runs of a panel are, in words."""
    rounds: dict[int, list[str]] = {}
    for result in results:
        names = rounds.setdefault(result.cell.settings.rounds, [])
        if result.cell.line not in names:
            names.append(result.cell.line)
    if len(rounds) == 1:
        parts = [f"{next(iter(rounds))} rounds"]
    else:
        parts = [f"{count} rounds of {', '.join(names)}" for count, names in rounds.items()]
    cohorts = sorted({result.cell.settings.devices_per_round for result in results})
    parts.append(f"{', '.join(map(str, cohorts))} devices a round")
    parts.append(_seeds({result.cell.settings.seed for result in results}))
    shares = {result.cell.settings.eval_examples for result in results} - {0}
    if shares:
        parts.append(f"evaluated on at most {max(shares)} examples a device")
    return "; ".join(parts)


def _seeds(seeds: set[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))}"


def _data(results: Sequence[Result]) -> list[str]:
    """The data used, a sentence for each task."""
    sentences: dict[str, None] = {}
    for result in results:
        row = result.row
        split = ", dealt out at random" if json.loads(row["settings"])["iid"] else ""
        note = f": {row['note']}" if row["note"] else ""
        sentences[f"{row['task']}, {row['devices']} devices{split}{note}"] = None
    return list(sentences)
