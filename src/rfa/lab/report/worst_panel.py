"""One matrix of a sweep: for each line and value, the panel with the lowest end.

It is for sweeps whose panels are attacks, because a server does not know the attack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rfa.lab.report.exhibit import Entry, Exhibit, Matrix, Spread, group
from rfa.lab.report.gather import LABELS, Result, gather, told_first
from rfa.lab.runs.statistics import mean_interval
from rfa.lab.runs.sweep import Sweep

Scores = Mapping[tuple[str, Any, str], Sequence[float]]
"""The accuracies of several seeds in per cent, by line, value and panel."""


def worst_panel(scores: Scores, line: str, value: Any) -> str:
    """Return the panel whose mean is lowest for a line at a value; empty if there were no runs."""
    means = {
        panel: Spread(values).mean
        for (name, at, panel), values in scores.items()
        if (name, at) == (line, value) and values
    }
    return min(means, key=means.__getitem__, default="")


def worst_matrix(
    title: str, scores: Scores, lines: Sequence[str], values: Sequence[Any], **about: Any
) -> Matrix:
    """Return the lowest mean of each line (a row) at each value (a column), and its panel."""
    return Matrix(
        title=title,
        label=about.pop("label", LABELS["test_accuracy"]),
        rows=list(lines),
        columns=[str(value) for value in values],
        entries=[[_entry(scores, line, value) for value in values] for line in lines],
        **about,
    )


def _entry(scores: Scores, line: str, value: Any) -> Entry:
    panel = worst_panel(scores, line, value)
    mean = mean_interval(scores.get((line, value, panel), ()))
    band = f"{mean.low:.1f} to {mean.high:.1f}" if mean.count > 1 else ""
    return Entry(mean.mean, note=", ".join(filter(None, (panel, band))))


def gather_worst(sweep: Sweep, results: Sequence[Result], **about: Any) -> Exhibit:
    """Return the exhibit of the worst panels: a matrix, and the table behind it."""
    exhibit = gather(sweep, results, **about)
    measure = told_first(sweep)
    places = group(results, lambda run: (run.cell.line, run.cell.value, run.cell.panel))
    scores = {place: [run.at_end(measure) for run in runs] for place, runs in places.items()}
    notes = [f"Worst of {', '.join(panel.name for panel in sweep.panels)}"]
    notes += list(dict.fromkeys(panel.note for panel in exhibit.panels))
    matrix = worst_matrix(
        sweep.title,
        scores,
        [line.name for line in sweep.lines],
        sweep.values,
        label=LABELS[measure],
        note=". ".join(filter(None, notes)) + ".",
    )
    columns = [f"{sweep.x} = {value}" for value in sweep.values]
    matrix = dataclasses.replace(matrix, columns=columns)
    return dataclasses.replace(exhibit, panels=(), matrices=[matrix])
