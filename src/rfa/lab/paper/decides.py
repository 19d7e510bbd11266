"""What the effect of poisoned data depends on: weights in the median, and norms of updates.

A short poisoned update lies among the others, and the geometric median gives it more weight than
its share; a long one lies far away and gets less. Weights are means over all rounds of a run;
lengths are those of the updates of the next cohort from its last model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rfa.lab.paper.facts import add_facts, read_facts
from rfa.lab.paper.frozen import thaw
from rfa.lab.paper.weights import shares
from rfa.lab.report.exhibit import Exhibit, Line, Panel, Spread, Table, Value, group
from rfa.lab.report.gather import Result, gather
from rfa.lab.runs.headline import ALL
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import Sweep

MEAN, MEDIAN = "weight of the poisoned in the mean", "weight of the poisoned in the median"
HONEST, POISONED = "length of honest updates", "length of poisoned updates"
WEIGHTS, LENGTHS = "weight of the poisoned", "lengths of updates"
VIEWS = (
    (WEIGHTS, "weight of the poisoned devices (%)", (MEAN, MEDIAN), False),
    (LENGTHS, "length of an update, median device", (HONEST, POISONED), True),
)


def exhibit(
    sweep: Sweep, results: Sequence[Result], store: Store, out: Path, data: Path | None
) -> Exhibit:
    """Weights and lengths by setting, with the accuracies that come with them."""
    known = read_facts(out)
    new = {
        result.row["run"]: measure(result, store, out, data)
        for result in results
        if result.row["run"] not in known
    }
    add_facts(out, new)
    facts = known | new
    base = gather(sweep, results)
    weighed = {MEAN, MEDIAN, HONEST, POISONED} & {name for some in facts.values() for name in some}
    panels = [
        _panel(sweep, results, facts, view) for view in VIEWS if weighed & set(view[2])
    ]  # fmt: skip
    first = "test accuracy"
    curves = [dataclasses.replace(panel, view=first) for panel in base.panels]
    tables = [_table(sweep, results, facts), *base.tables]
    return dataclasses.replace(base, panels=[*curves, *panels], tables=tables)


def measure(result: Result, store: Store, out: Path, data: Path | None) -> dict[str, float]:
    """Return the measurements of a run; fewer without its rounds or its last model."""
    facts: dict[str, float] = {}
    if store.table("rounds", run=result.row["run"]):
        weighed = shares(result, store, data)
        facts[MEAN] = 100 * float(weighed.alpha.mean())
        if weighed.beta is not None:
            facts[MEDIAN] = 100 * float(weighed.beta.mean())
    attack = result.cell.settings.attack
    for cohort in thaw(result.cell.settings, out, data, [(attack.corruption, attack.rho)]):
        lengths = np.linalg.norm(cohort.updates.astype(np.float64), axis=1)
        facts[HONEST] = float(np.median(lengths[~cohort.bad]))
        if cohort.bad.any():
            facts[POISONED] = float(np.median(lengths[cohort.bad]))
    return facts


def _panel(
    sweep: Sweep,
    results: Sequence[Result],
    facts: dict[str, dict[str, float]],
    view: tuple[str, str, tuple[str, str], bool],
) -> Panel:
    """One view of all settings side by side, for each aggregator that has something to show."""
    title, label, measures, log = view
    runs = group(results, lambda result: (result.cell.panel, result.cell.line))
    lines: list[Line] = []
    for part in sweep.lines:
        for name in measures:
            read = _reader(facts, name)
            known = [
                (float(place), Spread(values))
                for place, panel in enumerate(sweep.panels)
                if (values := read(runs.get((panel.name, part.name), [])))
            ]
            if known:
                x, spreads = zip(*known, strict=True)
                lines.append(Line.over_seeds(f"{part.name}: {name}", x, spreads))
    ticks = [panel.name for panel in sweep.panels]
    return Panel(title, "setting", label, lines, view=title, ticks=ticks, log_y=log)


def _reader(
    facts: dict[str, dict[str, float]], name: str
) -> Callable[[Sequence[Result]], list[float]]:
    def read(results: Sequence[Result]) -> list[float]:
        values = [facts.get(result.row["run"], {}).get(name, math.nan) for result in results]
        return [value for value in values if math.isfinite(value)]

    return read


def _table(sweep: Sweep, results: Sequence[Result], facts: dict[str, dict[str, float]]) -> Table:
    head = ["setting", "line", "accuracy (%)", f"{MEAN} (%)", f"{MEDIAN} (%)", HONEST, POISONED]
    head += ["poisoned over honest", "seeds", "diverged"]
    runs = group(results, lambda result: (result.cell.panel, result.cell.line))
    rows: list[list[Value]] = []
    for panel in sweep.panels:
        for line in sweep.lines:
            some = runs.get((panel.name, line.name), [])
            if not some:
                continue
            means = [
                Spread(_reader(facts, name)(some)).mean for name in (MEAN, MEDIAN, HONEST, POISONED)
            ]
            accuracy = Spread([result.at_end(ALL) for result in some]).mean
            ratio = means[3] / means[2] if means[2] else math.nan
            numbers = [value if math.isfinite(value) else None for value in (*means, ratio)]
            diverged = sum(result.diverged for result in some)
            rows.append([panel.name, line.name, accuracy, *numbers, len(some), diverged])
    return Table("Weights and lengths", head, rows)
