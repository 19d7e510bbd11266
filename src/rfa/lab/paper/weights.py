"""The corrupted share of each round, and what it does: part of the study of poisoned data.

A round draws its devices at random, so the share of its weight on corrupted devices varies. From
the rounds of runs in the store: what share the geometric median gives them, and how accuracy moves
between two evaluations, against the mean share in the rounds between.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from rfa._types import Floats
from rfa.aggregators import Mean
from rfa.lab.datasets.cache import load
from rfa.lab.report.exhibit import Exhibit, Line, Panel, Spread, Table, Value
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
    """What the corrupted share of rounds does, panel by panel as in the sweep."""
    found = [shares(result, store, data) for result in results if not result.diverged]
    panels: list[Panel] = []
    for view, make in ((SHARE, _shares), (MOVE, _moves)):
        for part in sweep.panels:
            own = [one for one in found if one.result.cell.panel == part.name]
            lines = list(make(own))
            if lines:
                label = "in the median (%)" if view == SHARE else "change in ten rounds (points)"
                panels.append(
                    Panel(part.name, "corrupted weight of the round (%)", label, lines, view)
                )
    base = gather(sweep, results)
    return dataclasses.replace(base, panels=panels, tables=[_table(found)])


def shares(result: Result, store: Store, data: Path | None) -> Shares:
    """The corrupted share of each round of a run."""
    settings = result.cell.settings
    task = find_task(settings.task)
    weights = Devices(settings, task, load(task.reader, data)).weights
    alpha: list[float] = []
    beta: list[float] = []
    for row in store.table("rounds", run=result.row["run"]):
        devices, bad = json.loads(row["devices"]), set(json.loads(row["corrupted"]))
        own = weights[devices]
        is_bad = np.array([device in bad for device in devices])
        alpha.append(float(own[is_bad].sum() / own.sum()))
        given = json.loads(row["weights"]) if row["weights"] else None
        if given is not None and len(given) == len(devices):
            beta.append(float(np.array(given)[is_bad].sum() / np.sum(given)))
    whole = len(beta) == len(alpha) and not isinstance(settings.aggregation, Mean)
    return Shares(result, np.array(alpha), np.array(beta) if whole else None)


def binned(x: Floats, y: Floats, bins: int = BINS) -> Iterator[tuple[float, Spread]]:
    """Means of y over bins of x that hold equally many."""
    order = np.argsort(x, kind="stable")
    for part in np.array_split(order, min(bins, len(order))):
        yield float(x[part].mean()), Spread([float(value) for value in y[part]])


def _shares(found: Sequence[Shares]) -> Iterator[Line]:
    for one in found:
        if one.beta is not None:
            points = list(binned(100 * one.alpha, 100 * one.beta))
            yield _line(one.result.cell.line, points)
    if found:
        ends = [100 * float(min(one.alpha.min() for one in found))]
        ends.append(100 * float(max(one.alpha.max() for one in found)))
        yield Line("as in the mean", ends, ends, ends, ends, dashed=True)


def _moves(found: Sequence[Shares]) -> Iterator[Line]:
    for one in found:
        x, y = moves(one)
        if x.size:
            points = [(place, Spread([spread.mean])) for place, spread in binned(x, y)]
            yield _line(one.result.cell.line, points)


def moves(one: Shares) -> tuple[Floats, Floats]:
    """The mean corrupted share between two evaluations, and the change of accuracy; in per cent."""
    x: list[float] = []
    y: list[float] = []
    for before, after in pairwise(one.result.evaluations):
        between: Mapping[str, int] = {"from": before["round"], "to": after["round"]}
        x.append(100 * float(one.alpha[between["from"] : between["to"]].mean()))
        y.append(height(after, "test_accuracy") - height(before, "test_accuracy"))
    return np.array(x), np.array(y)


def _line(label: str, points: Sequence[tuple[float, Spread]]) -> Line:
    return Line(
        label,
        [x for x, _ in points],
        [spread.mean for _, spread in points],
        [spread.low for _, spread in points],
        [spread.high for _, spread in points],
        seeds=max(len(spread.values) for _, spread in points),
    )


def _table(found: Sequence[Shares]) -> Table:
    head = ["panel", "line", "corrupted weight of a round, mean (%)", "lowest", "highest"]
    head += ["in the median, mean (%)", "correlation with the change of accuracy"]
    rows: list[list[Value]] = []
    for one in found:
        x, y = moves(one)
        varied = x.size > 2 and float(x.std()) > 0 and float(y.std()) > 0  # noqa: PLR2004
        numbers: list[Value] = [
            100 * float(one.alpha.mean()),
            100 * float(one.alpha.min()),
            100 * float(one.alpha.max()),
            None if one.beta is None else 100 * float(one.beta.mean()),
            float(np.corrcoef(x, y)[0, 1]) if varied else None,
        ]
        rows.append([one.result.cell.panel, one.result.cell.line, *numbers])
    return Table("Corrupted weight by round", head, rows)
