"""The corrupted share of each round, and what it does: part of the study of poisoned data.

A round draws its devices at random, so the share of its weight on corrupted devices varies. From
the rounds of runs in the store: what share the geometric median gives them, and how accuracy moves
between two evaluations, against the mean share in the rounds between.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from rfa._types import Floats
from rfa.aggregators import Mean
from rfa.lab.report.exhibit import Exhibit, Line, Panel, Spread, Table, Value, group
from rfa.lab.report.gather import Result, gather, height
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import Sweep
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices

BINS = 6
SHARE, MOVE = "weight of the corrupted", "change of accuracy"


@dataclasses.dataclass(frozen=True)
class Shares:
    """The corrupted share of each round of a run: of the weight alpha, and of beta if known."""

    result: Result
    alpha: Floats
    beta: Floats | None


def exhibit(sweep: Sweep, results: Sequence[Result], store: Store, data: Path | None) -> Exhibit:
    """Return the effect of the corrupted share of rounds, in the panels of the sweep."""
    runs = [shares(result, store, data) for result in results if not result.diverged]
    by_panel = group(runs, lambda run: run.result.cell.panel)
    panels: list[Panel] = []
    for view, label, make in VIEWS:
        for part in sweep.panels:
            lines = list(make(by_panel.get(part.name, [])))
            if lines:
                panels.append(
                    Panel(part.name, "corrupted weight of the round (%)", label, lines, view)
                )
    base = gather(sweep, results)
    return dataclasses.replace(base, panels=panels, tables=[_table(runs)])


def shares(result: Result, store: Store, data: Path | None) -> Shares:
    """The corrupted share of each round of a run."""
    settings = result.cell.settings
    task, training = find_task(settings.task), settings.training
    population = task.load(data, partition=training.partition, devices=training.devices)
    weights = Devices(settings, task, population).weights
    alpha: list[float] = []
    beta: list[float] = []
    for row in store.table("rounds", run=result.row["run"]):
        devices, bad = json.loads(row["devices"]), set(json.loads(row["corrupted"]))
        is_bad = np.array([device in bad for device in devices])
        alpha.append(float(weights[devices][is_bad].sum() / weights[devices].sum()))
        given = json.loads(row["weights"]) if row["weights"] else None
        if given is not None and len(given) == len(devices):
            beta.append(float(np.array(given)[is_bad].sum() / np.sum(given)))
    complete = len(beta) == len(alpha) and not isinstance(settings.aggregation, Mean)
    return Shares(result, np.array(alpha), np.array(beta) if complete else None)


def binned(x: Floats, y: Floats, bins: int = BINS) -> Iterator[tuple[float, Spread]]:
    """Means of y over bins of x that hold equally many."""
    order = np.argsort(x, kind="stable")
    for part in np.array_split(order, min(bins, len(order))):
        yield float(x[part].mean()), Spread([float(value) for value in y[part]])


def _shares(runs: Sequence[Shares]) -> Iterator[Line]:
    for run in runs:
        if run.beta is not None:
            yield _line(run, binned(100 * run.alpha, 100 * run.beta))
    if runs:
        lowest, highest = min(run.alpha.min() for run in runs), max(run.alpha.max() for run in runs)
        ends = [100 * float(lowest), 100 * float(highest)]
        yield Line.flat("as in the mean", ends, ends, dashed=True)


def _moves(runs: Sequence[Shares]) -> Iterator[Line]:
    for run in runs:
        x, y = moves(run)
        if x.size:
            yield _line(run, ((place, Spread([spread.mean])) for place, spread in binned(x, y)))


VIEWS = (
    (SHARE, "in the median (%)", _shares),
    (MOVE, "change in ten rounds (points)", _moves),
)


def moves(run: Shares) -> tuple[Floats, Floats]:
    """The mean corrupted share between two evaluations, and the change of accuracy; in per cent."""
    x: list[float] = []
    y: list[float] = []
    for before, after in pairwise(run.result.evaluations):
        x.append(100 * float(run.alpha[before["round"] : after["round"]].mean()))
        y.append(height(after, "test_accuracy") - height(before, "test_accuracy"))
    return np.array(x), np.array(y)


def _line(run: Shares, points: Iterable[tuple[float, Spread]]) -> Line:
    x, spreads = zip(*points, strict=True)
    return Line.over_seeds(run.result.cell.line, x, spreads)


def _table(runs: Sequence[Shares]) -> Table:
    head = ["panel", "line", "corrupted weight of a round, mean (%)", "lowest", "highest"]
    head += ["in the median, mean (%)", "correlation with the change of accuracy"]
    rows: list[list[Value]] = []
    for run in runs:
        x, y = moves(run)
        varied = x.size > 2 and float(x.std()) > 0 and float(y.std()) > 0  # noqa: PLR2004
        numbers: list[Value] = [
            100 * float(run.alpha.mean()),
            100 * float(run.alpha.min()),
            100 * float(run.alpha.max()),
            None if run.beta is None else 100 * float(run.beta.mean()),
            float(np.corrcoef(x, y)[0, 1]) if varied else None,
        ]
        rows.append([run.result.cell.panel, run.result.cell.line, *numbers])
    return Table("Corrupted weight by round", head, rows)
