"""The tables of attacks on the pages, from the numbers in docs/numbers/arena."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path

from rfa.lab.attacks.registry import NONE
from rfa.lab.paper.numbers import read_numbers
from rfa.lab.paper.reproduce import find_experiments
from rfa.lab.paper.scale import scaled_cells
from rfa.lab.report.arena import WORST, Bout, bouts
from rfa.lab.report.gather import Result
from rfa.lab.runs.sweep import Cell, make_sweep
from website.markdown import table

ROOT = Path(__file__).parents[1]
NUMBERS = ROOT / "docs" / "numbers" / "arena"
NAMES = {
    "fedavg": "FedAvg",
    "rfa": "RFA, three steps",
    "rfa-one-step": "one-step RFA",
    "centered-clipping": "centered clipping",
    "clipping with momentum": "centered clipping, worker momentum",
    "adaptive-clipping": "adaptive clipping",
    "block-clipping": "block clipping",
    "coordinate-median": "coordinate-wise median",
    "trimmed-mean": "trimmed mean",
    "multi-krum": "multi-Krum",
    "bulyan": "Bulyan",
    "nnm with momentum": "mixing, worker momentum",
    "dnc": "DnC",
    "flame": "FLAME",
    "signguard": "SignGuard",
    "fltrust": "FLTrust",
}
"""The defenses as the page names them."""


@functools.cache
def levels_of(experiment: str) -> dict[str, list[Bout]]:
    """Return the levels of an arena by task, each with the seeds of which all its runs are done."""
    (found,) = find_experiments([experiment], "arena", None)
    sweep = make_sweep(found.name, found.plan)
    kept = {run.name: run for run in read_numbers(NUMBERS)}
    cells = list(scaled_cells(sweep, found.scale))
    absent = {_part(cell) for cell in cells if cell.settings.run_name not in kept}
    done = [(c, kept[c.settings.run_name]) for c in cells if _part(c) not in absent]
    results = [Result(cell, run.row, run.evaluations) for cell, run in done]
    by_task: dict[str, list[Bout]] = {}
    for bout in bouts(sweep, results):
        by_task.setdefault(str(bout.panel.settings["task"]), []).append(bout)
    return by_task


def _part(cell: Cell) -> tuple[str, int]:
    """The task and level, and the seed of a run."""
    return cell.panel, cell.settings.seed


def worst_table(task: str) -> str:
    """The worst case of each defense at each level, private defenses first, best ones first."""
    levels = levels_of("arena-linear")[task]
    shown = sorted(NAMES, key=lambda name: (name not in levels[0].private, -_sum(levels, name)))
    head = [f"level {bout.panel.settings['rho']:g}" for bout in levels]
    rows: list[list[str]] = []
    for name in shown:
        first = NAMES[name] if name in levels[0].private else f"*{NAMES[name]}*"
        clean = f"{levels[0].score(NONE, name).spread.mean:.1f}"
        rows.append([first, clean, *(_worst(bout, name) for bout in levels)])
    return table(["defense", "no corruption", *head], rows, texts=1)


def liars_table(task: str) -> str:
    """The worst of the lies inside of the secure sum, at each level, by defense."""
    levels = levels_of("arena-liars")[task]
    head = [f"level {bout.panel.settings['rho']:g}" for bout in levels]
    rows: list[list[str]] = []
    for label in levels[0].defenses:
        clean = f"{levels[0].score(NONE, label).spread.mean:.1f}"
        rows.append([_LIARS[label], clean, *(_worst(bout, label) for bout in levels)])
    return table(["defense", "no lies", *head], rows, texts=1)


def short_table() -> str:
    """The worst cases of some defenses without their intervals, at the first two levels."""
    levels = levels_of("arena-linear")["sent140-linear"][:2]
    rows: list[list[str]] = []
    for name, needs in _SHORT.items():
        heights = [levels[0].heights(NONE), *(bout.heights(WORST) for bout in levels)]
        shown = [f"{height[name]:.1f} %" for height in heights]
        rows.append([f"{NAMES[name]}, {needs}", *shown])
    heads = ["", "no corruption", "a tenth of the data corrupted", "a quarter"]
    return table(heads, rows, texts=1)


def backdoor_table() -> str:
    """The backdoor that works best, and the accuracy in the worst case, of three defenses."""
    arena = levels_of("arena-backdoors")
    heads = [f"{what}: {NAMES[name]}" for what in ("backdoor", "accuracy") for name in _BESIDE]
    rows: list[list[str]] = []
    for task, name in _TASKS.items():
        for bout in arena.get(task, ()):
            level = f"{bout.panel.settings['rho']:g}"
            planted = [_backdoor(bout, defense) for defense in _BESIDE]
            rows.append([name, level, *planted, *(_worst(bout, each) for each in _BESIDE)])
    return table(["task", "level", *heads], rows, texts=1)


_LIARS = {
    "fedavg:clip_norm=1": "FedAvg, clipped",
    "rfa-one-step": "one-step RFA",
    "adaptive-clipping": "adaptive clipping",
    "rfa-one-step:groups=10": "one-step RFA in ten groups",
    "one-step with ledger": "one-step RFA in ten groups, with the ledger",
    "adaptive-clipping:groups=10": "adaptive clipping in ten groups",
    "clipping with ledger": "adaptive clipping in ten groups, with the ledger",
}
_BESIDE = ("rfa-one-step", "block-clipping", "coordinate-median")
_SHORT = {
    "fedavg": "needs sums only",
    "multi-krum": "sees every update",
    "coordinate-median": "sees every update",
    "rfa-one-step": "needs sums only",
}
_TASKS = {
    "emnist-linear:polarity=ink": "EMNIST, ink = 1",
    "emnist-linear": "EMNIST, paper = 1",
    "sent140-linear": "Sent140",
}


def _sum(levels: Sequence[Bout], defense: str) -> float:
    return sum(bout.heights(WORST)[defense] for bout in levels)


def _worst(bout: Bout, defense: str) -> str:
    case = bout.case(defense)
    text = f"{case.mean:.1f}"
    if math.isfinite(case.low):
        text += f" ({max(case.low, 0):.0f} to {min(case.high, 100):.0f})"
    return f"**{text}**" if bout.best and defense in bout.best else text


def _backdoor(bout: Bout, defense: str) -> str:
    """How often the best backdoor works, in percent: the mean, and the lowest and highest seed."""
    attack = bout.backdoor_case(defense).attack
    values = bout.scores[attack, defense].fooled.values()
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{sum(values) / len(values):.0f} ({low} to {high})"
