"""The tables of attacks on the pages, from the numbers in docs/numbers/arena."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rfa.lab.attacks.registry import NONE
from rfa.lab.paper.numbers import Kept, read_numbers
from rfa.lab.paper.reproduce import find_experiments
from rfa.lab.paper.scale import scaled_cells
from rfa.lab.report.arena import BACKDOOR, MEAN, WORST, Bout, bouts
from rfa.lab.report.exhibit import Spread, group
from rfa.lab.report.gather import Result
from rfa.lab.runs.headline import ALL
from rfa.lab.runs.sweep import Cell, Sweep, make_sweep
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
    by_task: dict[str, list[Bout]] = {}
    for bout in bouts(*_done(experiment)):
        by_task.setdefault(str(bout.panel.settings["task"]), []).append(bout)
    return by_task


@functools.cache
def without_attackers() -> dict[tuple[str, str], list[Result]]:
    """Return the runs without attackers, by task and defense."""
    _, results = _done("arena-baselines")
    return group(results, lambda result: (result.cell.settings.task, result.cell.line))


def _done(experiment: str) -> tuple[Sweep, list[Result]]:
    """Return an experiment, and its runs of panels and seeds of which all runs are done."""
    (found,) = find_experiments([experiment], "arena", None)
    sweep = make_sweep(found.name, found.plan)
    planned = [
        (cell, _kept().get(cell.settings.run_name)) for cell in scaled_cells(sweep, found.scale)
    ]
    absent = {_part(cell) for cell, run in planned if run is None}
    return sweep, [
        Result(cell, run.row, run.evaluations)
        for cell, run in planned
        if run is not None and _part(cell) not in absent
    ]


@functools.cache
def _kept() -> dict[str, Kept]:
    return {run.name: run for run in read_numbers(NUMBERS)}


def _part(cell: Cell) -> tuple[str, int]:
    """The task and level, and the seed of a run."""
    return cell.panel, cell.settings.seed


def worst_table(task: str) -> str:
    """The worst case of each defense at each level, private defenses first, best ones first."""
    levels = levels_of("arena-linear")[task]
    order = _best_first(levels)
    rows = [*_by_level(levels, {name: _slanted(levels[0], name) for name in order})]
    rows.append([*_server_alone(task), *("the same" for _ in levels)])
    return table(_heads(levels, "no corruption"), rows, texts=1)


def polarity_table() -> str:
    """The worst case of some defenses where paper is 1, and the backdoor that works best."""
    (bout,) = levels_of("arena-polarity")["emnist-linear"]
    order = _best_first([bout])
    by_level = _by_level([bout], {name: _slanted(bout, name) for name in order})
    rows = [[*row, _backdoor(bout, name)] for name, row in zip(order, by_level, strict=True)]
    rows.append([*_server_alone("emnist-linear"), "the same", "-"])
    return table([*_heads([bout], "no corruption"), "best backdoor"], rows, texts=1)


def liars_table(task: str) -> str:
    """The worst of the lies inside of the secure sum, at each level, by defense."""
    levels = levels_of("arena-liars")[task]
    rows = _by_level(levels, {label: _LIARS[label] for label in levels[0].defenses})
    return table(_heads(levels, "no lies"), [*rows], texts=1)


def short_table() -> str:
    """The worst cases of some defenses on two tasks, at the lower levels, without intervals."""
    heads, columns = [""], list[Mapping[str, float]]()
    for task, subject in _SUBJECTS.items():
        levels = [b for b in levels_of("arena-linear")[task] if b.panel.settings["rho"] in _LOW]
        columns += [levels[0].heights(NONE), *(bout.heights(WORST) for bout in levels)]
        heads.append(f"{subject}: no corruption")
        heads += [f"{_LOW[bout.panel.settings['rho']]} corrupted" for bout in levels]
    rows = [
        [f"{NAMES[name]}, {needs}", *(f"{heights[name]:.1f} %" for heights in columns)]
        for name, needs in _SHORT.items()
    ]
    return table(heads, rows, texts=1)


def backdoor_table() -> str:
    """How often the backdoor that works best does, against three defenses."""
    arena = levels_of("arena-backdoors")
    rows: list[list[str]] = []
    for task, name in _TASKS.items():
        base = [without_attackers()[task, defense] for defense in _BESIDE]
        rows.append([name, "no attacker", *(_planted(_fooled(runs)) for runs in base)])
        for bout in arena.get(task, ()):
            level = f"{bout.panel.settings['rho']:g}"
            rows.append([name, level, *(_backdoor(bout, defense) for defense in _BESIDE)])
    return table(["task", "level", *(NAMES[name] for name in _BESIDE)], rows, texts=1)


def beside_table() -> str:
    """What accuracy three defenses keep in the worst of the attacks that know block clipping."""
    arena = levels_of("arena-backdoors")
    rows = [
        [name, f"{bout.panel.settings['rho']:g}", *(_worst(bout, defense) for defense in _BESIDE)]
        for task, name in _TASKS.items()
        for bout in arena.get(task, ())
    ]
    return table(["task", "level", *(NAMES[name] for name in _BESIDE)], rows, texts=1)


def long_table() -> str:
    """How often each backdoor works against block clipping after ten times as many rounds."""
    rows: list[list[str]] = []
    for task, name in _TASKS.items():
        for bout in levels_of("arena-long").get(task, ()):
            (defense,) = bout.defenses
            shown = [_planted([*bout.score(a, defense).fooled.values()]) for a in bout.attacks]
            rows.append([name, f"{bout.score(NONE, defense).spread.mean:.1f}", *shown])
    attacks = next(iter(levels_of("arena-long").values()))[0].attacks
    return table(["task", "accuracy, no attacker", *(f"`{a}`" for a in attacks)], rows, texts=1)


def known_backdoors_table() -> str:
    """How often the best of the four backdoors of the literature works, against each defense."""
    arena = levels_of("arena-linear")
    levels = {
        f"{name}, {bout.panel.settings['rho']:g}": bout
        for task, name in _TASKS.items()
        for bout in arena.get(task, ())
        if bout.panel.settings["rho"] in _LOW
    }
    first = next(iter(levels.values()))
    rows = [
        [_slanted(first, name), *(_backdoor(bout, name) for bout in levels.values())]
        for name in sorted(NAMES, key=lambda name: name not in first.private)
    ]
    return table(["defense", *levels], rows, texts=1)


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
    "multi-krum": "sees every update, is told the level",
    "dnc": "sees every update, is told the level",
    "coordinate-median": "sees every update",
    "fltrust": "sees every update, has clean examples",
    "rfa-one-step": "needs sums only",
    "rfa": "needs sums only",
}
_SUBJECTS = {"sent140-linear": "tweets", "emnist-linear:polarity=ink": "characters"}
_LOW = {0.1: "a tenth", 0.25: "a quarter"}
_TASKS = {
    "emnist-linear:polarity=ink": "EMNIST, ink = 1",
    "emnist-linear": "EMNIST, paper = 1",
    "sent140-linear": "Sent140",
}


def _by_level(levels: Sequence[Bout], names: Mapping[str, str]) -> Iterator[list[str]]:
    """The worst cases of defenses at each level, and without corruption."""
    for name, shown in names.items():
        clean = f"{levels[0].score(NONE, name).spread.mean:.1f}"
        yield [shown, clean, *(_worst(bout, name) for bout in levels)]


def _server_alone(task: str) -> list[str]:
    """How a server ends that trains on the clean examples of FLTrust."""
    alone = Spread([run.at_end(ALL) for run in without_attackers()[task, "server-alone"]])
    return ["*the server alone*", f"{alone.mean:.1f}"]


def _heads(levels: Sequence[Bout], clean: str) -> list[str]:
    return ["defense", clean, *(f"level {bout.panel.settings['rho']:g}" for bout in levels)]


def _slanted(bout: Bout, name: str) -> str:
    """The name of a defense, slanted if it must see single updates."""
    return NAMES[name] if name in bout.private else f"*{NAMES[name]}*"


def _best_first(levels: Sequence[Bout]) -> list[str]:
    """The defenses, private ones first, by the sum of their worst cases."""
    heights = [bout.heights(WORST) for bout in levels]

    def place(name: str) -> tuple[bool, float]:
        return name not in levels[0].private, -sum(each[name] for each in heights)

    return sorted(levels[0].defenses, key=place)


def _worst(bout: Bout, defense: str) -> str:
    case = bout.case(defense)
    text = f"{case.mean:.1f}"
    if math.isfinite(case.low):
        text += f" ({max(case.low, 0):.0f} to {min(case.high, 100):.0f})"
    return f"**{text}**" if defense in _shown_ahead(bout) else text


def _shown_ahead(bout: Bout) -> set[str]:
    """The best defenses, if anything is shown to be ahead of FedAvg."""
    best = bout.best or set[str]()
    return set() if MEAN in best else best


def _backdoor(bout: Bout, defense: str) -> str:
    """How often the best backdoor works, in percent: the mean, and the lowest and highest seed."""
    attack = bout.backdoor_case(defense).attack
    return _planted([*bout.scores[attack, defense].fooled.values()])


def _fooled(runs: Sequence[Result]) -> list[float]:
    """How often the trigger works at the end of runs, in percent."""
    return [run.at_end(BACKDOOR) for run in runs]


def _planted(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{sum(values) / len(values):.0f} ({low} to {high})"
