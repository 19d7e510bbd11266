"""docs/byzfl.md: what the runs of byzfl's benchmark show, as a page with a picture and tables."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import byzfl_parts
from rfa.lab.report.exhibit import Matrix, Spread
from rfa.lab.report.heat import heat_figure
from rfa.lab.report.worst_panel import Scores, worst_matrix, worst_panel
from rfa.lab.runs.statistics import Interval, mean_interval
from rfa.lab.runs.sweep import Cell

if TYPE_CHECKING:
    from benchmarks.byzfl_benchmark import Row

MARGIN = 1.0
"""Points of accuracy by which two libraries may differ and still count as equal."""
OURS, THEIRS = LIBRARIES = ("rfa", "byzfl")
CASES = tuple(itertools.product((1, 2, 3, 4), range(3)))
"""Numbers of corrupted vectors and seeds with which parts are compared."""
DPI, WIDTH = 160, 120
TEMPLATE = Path(__file__).with_suffix(".md")


def write_page(docs: Path, rows: Sequence[Row], cells: Sequence[Cell]) -> None:
    """Write the page and its picture, from the seeds of which all runs are done."""
    done = complete(rows, cells)
    if not done:
        print("no seed is complete: there is no page yet")
        return
    lines = list(dict.fromkeys(cell.line for cell in cells))
    counts = sorted({row.corrupted for row in done})
    figure = heat_figure([_matrix(name, done, lines, counts) for name in LIBRARIES])
    figure.savefig(docs / "byzfl" / "heatmap.png", dpi=DPI)
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, told in (("agreement", _agreement(done, lines, counts)), ("parts", _parts())):
        text = text.replace(f"{{{name}}}", "\n".join(told))
    text = text.replace("{rounds}", str(done[0].rounds))
    (docs / "byzfl.md").write_text(text, encoding="utf-8")


def complete(rows: Sequence[Row], cells: Sequence[Cell]) -> list[Row]:
    """The rows of these cells' task and rounds whose seeds have all of their runs."""
    settings = cells[0].settings
    ours = [row for row in rows if (row.task, row.rounds) == (settings.task, settings.rounds)]
    wanted = {
        seed: sum(cell.settings.seed == seed for cell in cells)
        for seed in {cell.settings.seed for cell in cells}
    }
    there = {seed: sum(row.seed == seed for row in ours) for seed in wanted}
    return [row for row in ours if there.get(row.seed) == wanted.get(row.seed)]


def scores_of(name: str, rows: Sequence[Row]) -> Scores:
    """The accuracies of a library in the order of their seeds."""
    scores: dict[tuple[str, int, str], list[float]] = {}
    for row in sorted(rows, key=lambda row: row.seed):
        scores.setdefault((row.gamma, row.corrupted, row.attack), []).append(getattr(row, name))
    return scores


def _matrix(name: str, rows: Sequence[Row], lines: Sequence[str], counts: Sequence[int]) -> Matrix:
    title = f"{name} {importlib.metadata.version(name)}" if name == THEIRS else name
    matrix = worst_matrix(title, scores_of(name, rows), lines, counts)
    return dataclasses.replace(matrix, columns=[f"{count} corrupted" for count in counts])


def _agreement(rows: Sequence[Row], lines: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    """What came out: in a word, as a picture, and cell by cell."""
    ours, theirs = (scores_of(name, rows) for name in LIBRARIES)
    seeds = sorted({row.seed for row in rows})
    cells = [_cell(ours, theirs, line, count) for line in lines for count in counts]
    equal = sum(_is_equal(difference) for *_, difference in cells)
    zero = sum(difference.low <= 0 <= difference.high for *_, difference in cells)
    same = sum(row.rfa == row.byzfl for row in rows)
    off = max(abs(row.rfa - row.byzfl) for row in rows)
    yield "## What came out"
    yield ""
    yield textwrap.fill(
        f"**In {equal} of {len(cells)} cells the 95 % interval of the difference lies within "
        f"{MARGIN:g} point of accuracy, and in {zero} it contains zero.** Of all {len(rows)} runs, "
        f"{same} end with the same accuracy to the last of the test images; the largest difference "
        f"of a single run is {off:.1f} points. Seeds: {', '.join(map(str, seeds))}.",
        WIDTH,
    )
    yield ""
    yield "![Accuracy under the worst attack, by rfa and by byzfl](byzfl/heatmap.png)"
    yield ""
    yield textwrap.fill(
        "Accuracy (%) under the worst of the three attacks, mean over seeds with its 95 % "
        "interval. Each library has its own worst attack; the table names rfa's. The difference is "
        "taken seed by seed. Seconds of processor are means over attacks and seeds.",
        WIDTH,
    )
    yield ""
    yield "| gamma | f | worst attack | rfa | byzfl | difference | equal | rfa, s | byzfl, s |"
    yield "|---|---:|---|---:|---:|---:|---|---:|---:|"
    places = itertools.product(lines, counts)
    for (line, count), (attack, a, b, difference) in zip(places, cells, strict=True):
        here = [row for row in rows if (row.gamma, row.corrupted) == (line, count)]
        yield (
            f"| {line.removeprefix('gamma ')} | {count} | {attack} | {_told(a)} | {_told(b)} "
            f"| {_told(difference, '+.2f')} | {'yes' if _is_equal(difference) else 'not shown'} "
            f"| {_mean(here, 'rfa_seconds')} | {_mean(here, 'byzfl_seconds')} |"
        )
    yield ""
    yield from _by_attack(rows)


def _cell(ours: Scores, theirs: Scores, line: str, count: int) -> tuple[str, *tuple[Interval, ...]]:
    """The worst attack on ours, both worst cases, and their difference by seed."""
    worst = [(scores, worst_panel(scores, line, count)) for scores in (ours, theirs)]
    a, b = (scores[line, count, attack] for scores, attack in worst)
    gaps = [one - other for one, other in zip(a, b, strict=True)]
    return worst[0][1], mean_interval(a), mean_interval(b), mean_interval(gaps)


def _is_equal(difference: Interval) -> bool:
    return difference.low > -MARGIN and difference.high < MARGIN


def _told(interval: Interval, form: str = ".1f") -> str:
    reach = (interval.high - interval.low) / 2
    return f"{interval.mean:{form}} ± {reach:.2f}" if interval.count > 1 else f"{interval.mean:.1f}"


def _by_attack(rows: Sequence[Row]) -> Iterator[str]:
    yield "| attack | runs | same accuracy | largest difference | rfa, s | byzfl, s | byzfl / rfa |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for attack in dict.fromkeys(row.attack for row in rows):
        here = [row for row in rows if row.attack == attack]
        same = sum(row.rfa == row.byzfl for row in here)
        off = max(abs(row.rfa - row.byzfl) for row in here)
        ratio = sum(row.byzfl_seconds for row in here) / sum(row.rfa_seconds for row in here)
        yield (
            f"| {attack} | {len(here)} | {same} | {off:.2f} | {_mean(here, 'rfa_seconds')} "
            f"| {_mean(here, 'byzfl_seconds')} | {ratio:.1f} |"
        )
    total = [sum(getattr(row, f"{name}_seconds") for row in rows) for name in LIBRARIES]
    today = datetime.datetime.now(datetime.UTC).date()
    yield ""
    yield textwrap.fill(
        f"All runs took rfa {total[0]:.0f} and byzfl {total[1]:.0f} seconds of one processor, with "
        f"evaluations; rfa's are with checkpoints and the store of results, too. Other work ran on "
        f"the machine meanwhile, so ratios tell more than seconds. {today}.",
        WIDTH,
    )


def _mean(rows: Sequence[Row], name: str) -> str:
    return f"{Spread([getattr(row, name) for row in rows]).mean:.1f}"


def _parts() -> Iterator[str]:
    largest: dict[str, float] = {}
    compared: tuple[Callable[..., Iterator[tuple[str, object, object]]], ...] = (
        byzfl_parts.aggregates,
        byzfl_parts.attacks,
    )
    for part, (corrupted, seed) in itertools.product(compared, CASES):
        for name, ours, theirs in part(corrupted, seed):
            gap = byzfl_parts.distance(ours, theirs)
            largest[name] = max(gap, largest.get(name, 0.0))
    for name, gap in largest.items():
        yield f"| {name} | {gap:.0e} |"
