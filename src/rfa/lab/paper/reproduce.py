"""Each figure and table of the paper, from its file in `experiments/` to its exhibit."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rfa.lab.datasets.cache import data_dir, locate
from rfa.lab.datasets.dataset import DataError
from rfa.lab.paper import calls, datatable, decides, frozen, theorem, weights
from rfa.lab.paper.byzantine import byzantine_table
from rfa.lab.paper.scale import Scale, read_scales, scale_text, scaled_cells
from rfa.lab.report.arena import gather_arena
from rfa.lab.report.exhibit import Exhibit, group
from rfa.lab.report.gather import data_note, find_results, gather
from rfa.lab.report.worst_panel import gather_worst
from rfa.lab.runs.arena import arena_plan
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import Cell, Part, Sweep, make_sweep
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.files import read_toml
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import find_task

SCALES = "scales.toml"
SWEEPS = ("sweep", "weights", "decides", "corruptions", "arena", "worst-case")
KINDS = (*SWEEPS, "frozen", "calls", "data", "theorem")
"""Runs of a sweep, with what else they show (the weights in their rounds, these with the lengths of
updates, a table of corruptions, attacks and defenses, the worst panel); frozen cohorts, what calls
are worth on them, the data table, the theorem."""
NEEDED = {
    "frozen": ("title", "claim", "paper", "tasks", "corruptions", "rho", "rounds", "steps"),
    "calls": ("title", "claim", "tasks", "cases", "rounds"),
    "data": ("title", "claim", "paper", "tasks"),
    "arena": ("title", "claim", "tasks"),
}
"""What files must say that are more than sweeps."""
THEOREM = {"quick": 15.0, "short": 150.0, "full": 1200.0}
"""Seconds that the check of the theorem takes, by how much it does."""
COHORT = 15.0
"""Seconds that a frozen cohort takes, about."""
PLACES = (Path(__file__).parent / "experiments", Path(__file__).parents[4] / "experiments")
"""Where the files are: in an installed package, and in the repository."""


@dataclass(frozen=True)
class Experiment:
    """A figure, a table or a theorem of the paper."""

    name: str  # the name of its file
    kind: str  # what is done, one of KINDS
    plan: Mapping[str, Any]  # what its file says
    scale: Scale  # how much is done
    data: Path | None = None  # the folder of data sets, if there is one
    order: int = 0  # its place among the others
    beyond: bool = False  # whether it goes beyond the paper
    text: str = ""  # what its file says, and what the scale does
    stand_in: str = ""  # the task that stands in for one whose data is missing, if not the scale's
    without_data: bool = False  # whether runs count whose data is missing, if nothing stands in

    def runs(self) -> list[Settings]:
        """The runs that it needs."""
        if self.kind in SWEEPS:
            return [cell.settings for cell in self.with_data.cells]
        if self.kind in ("frozen", "calls"):
            return [frozen.frozen_run(task, self.scale, self.plan) for task in self.with_data.tasks]
        return []

    @property
    def _scale(self) -> Scale:
        """The scale, with the stand-in of the experiment if it has one."""
        return dataclasses.replace(self.scale, stand_in=self.stand_in or self.scale.stand_in)

    @functools.cached_property
    def with_data(self) -> WithData:
        """What of it can be done with the data at hand."""
        if self.kind in SWEEPS:
            sweep = make_sweep(self.name, self.plan)
            panels, missing = self._panels(sweep)
            values = self.scale.values_of(self.name, sweep.values)
            sweep = dataclasses.replace(sweep, panels=panels, values=values)
            return WithData(sweep, list(scaled_cells(sweep, self.scale)), missing=missing)
        tasks, missing = _tasks(self.plan.get("tasks", ()), self.scale, self.data)
        return WithData(tasks=tasks, missing=missing)

    def _panels(self, sweep: Sweep) -> tuple[list[Part], list[str]]:
        """The panels that can be done, or, without data, all that the scale has."""
        scale = self._scale
        if not self.without_data or scale.stand_in:
            return _panels(sweep, scale, self.data)
        wanted = [panel for panel in sweep.panels if panel.settings["task"] not in scale.without]
        return wanted, _left_out(sweep, scale)

    @property
    def seconds(self) -> float:
        """The seconds that it takes besides its runs, if these are many."""
        if self.kind == "calls":
            return COHORT * len(self.plan["cases"]) * len(self.with_data.tasks)
        return THEOREM.get(self.scale.theorem, 0.0) if self.kind == "theorem" else 0.0

    def show(self, out: Path, command: str) -> Exhibit:
        """Return the exhibit of the results in a folder."""
        plan = {**self.plan, "name": self.name}
        if self.kind == "theorem":
            made = theorem.exhibits(self.scale.theorem)
        elif self.kind == "data":
            made = datatable.exhibit(plan, self.data)
        else:
            made = self._show_sweep(out) if self.kind in SWEEPS else self._show_frozen(out, plan)
        told = {"command": command, "scale": self.scale.words, "settings": self.text}
        return dataclasses.replace(made, **told, order=self.order)

    def _show_frozen(self, out: Path, plan: Mapping[str, Any]) -> Exhibit:
        ready, runs = self.with_data, self.runs()
        names = {task: self.plan["tasks"].get(task, task) for task in ready.tasks}
        if self.kind == "calls":
            worths = [calls.measure(run, out, self.data, plan) for run in runs]
            made = calls.exhibit(plan, [*itertools.chain(*worths)], names)
        else:
            cohorts = [frozen.freeze(run, out, self.data, plan) for run in runs]
            made = frozen.exhibit(plan, [*itertools.chain(*cohorts)], names)
        return dataclasses.replace(made, missing=ready.missing, data=_notes(out, runs))

    def _show_sweep(self, out: Path) -> Exhibit:
        ready = self.with_data
        assert ready.sweep is not None  # noqa: S101 a sweep has one
        with Store(out) as store:
            results = find_results(store, ready.cells)
            if self.kind == "weights":
                made = weights.exhibit(ready.sweep, results, store, self.data)
            elif self.kind == "decides":
                made = decides.exhibit(ready.sweep, results, store, out, self.data)
            else:
                show = {"arena": gather_arena, "worst-case": gather_worst}.get(self.kind, gather)
                made = show(ready.sweep, results)
        if self.kind == "corruptions":
            made = dataclasses.replace(made, tables=[*made.tables, byzantine_table()])
        absent = len(ready.cells) - len(results)
        left = [f"{absent} of {len(ready.cells)} runs are not done"] if absent else []
        done = {result.cell.line for result in results}
        lines = [line for line in group(ready.cells, lambda cell: cell.line) if line not in done]
        left += [f"{line}: none of its runs is done" for line in lines if done]
        return dataclasses.replace(made, missing=[*ready.missing, *left], absent=lines)


@dataclass(frozen=True)
class WithData:
    """The part of an experiment for which there is data, and what to do about the rest."""

    sweep: Sweep | None = None
    cells: Sequence[Cell] = ()
    tasks: Sequence[str] = ()
    missing: list[str] = field(default_factory=list[str])


def find_experiments(
    names: Sequence[str],
    scale: str,
    data: Path | None,
    places: Sequence[Path] = PLACES,
    *,
    beyond: bool = False,
) -> list[Experiment]:
    """Return the experiments with these names; by default all of the paper, or those `beyond`, too.

    Their files are in the first of the places that has some. `data` overrides RFA_DATA.

    Raises:
        ConfigError: if there is no such experiment or scale, or a file is invalid.
    """
    folder = next((place for place in places if (place / SCALES).exists()), None)
    if folder is None:
        msg = f"no {SCALES} is found in {' or '.join(map(str, places))}"
        raise ConfigError(msg)
    scales = read_scales(folder / SCALES)
    known = {path.stem: path for path in sorted(folder.glob("*.toml")) if path.name != SCALES}
    _check_known("experiment", names, known)
    _check_known("scale", [scale], scales)
    left_out = () if names else scales[scale].without
    wanted = names or [
        name
        for name, path in known.items()
        if name not in left_out and (beyond or not read_toml(path).get("beyond"))
    ]
    chosen = [_read(known[name], scales[scale], data) for name in wanted]
    return sorted(chosen, key=lambda experiment: experiment.order)


def _check_known(what: str, names: Sequence[str], known: Mapping[str, Any]) -> None:
    for name in names:
        if name not in known:
            msg = f"no {what} is called {name!r}: there are {', '.join(known)}"
            raise ConfigError(msg)


def _read(path: Path, scale: Scale, data: Path | None) -> Experiment:
    plan = read_toml(path)
    text = f"# {path.name}\n{path.read_text(encoding='utf-8').strip()}\n"
    text += f"\n# {SCALES}\n{scale_text(path.with_name(SCALES), scale.name)}"
    kind = plan.pop("kind", "sweep")
    if kind not in KINDS:
        msg = f"{path}: kind must be one of {', '.join(KINDS)}, not {kind!r}"
        raise ConfigError(msg)
    absent = [key for key in NEEDED.get(kind, ()) if key not in plan]
    if absent:
        msg = f"{path}: kind {kind!r} needs {', '.join(absent)}"
        raise ConfigError(msg)
    order, beyond = plan.pop("order", len(KINDS)), bool(plan.pop("beyond", False))
    stand_in = str(plan.pop("stand_in", ""))
    if kind == "arena":
        plan = arena_plan(path.stem, plan)
    folder = data_dir(data)
    return Experiment(path.stem, kind, plan, scale, folder, order, beyond, text, stand_in)


def _panels(sweep: Sweep, scale: Scale, data: Path | None) -> tuple[list[Part], list[str]]:
    """The panels whose data is there; the scale's stand-in takes the place of others."""
    if any("task" not in panel.settings for panel in sweep.panels):
        msg = f"{sweep.name}: a panel, or [settings], must name the task"
        raise ConfigError(msg)
    wanted = [panel for panel in sweep.panels if panel.settings["task"] not in scale.without]
    problems = {panel.name: _problem(str(panel.settings["task"]), data) for panel in wanted}
    panels: dict[str, Part] = {}
    for panel in wanted:
        if not problems[panel.name]:
            panels[panel.name] = panel
        elif scale.stand_in:
            settings = {**panel.settings, "task": scale.stand_in}
            key = json.dumps(settings, sort_keys=True)
            panels.setdefault(key, Part(f"{scale.stand_in} for {panel.name}", settings))
    return list(panels.values()), _missing(problems, scale) + _left_out(sweep, scale)


def _left_out(sweep: Sweep, scale: Scale) -> list[str]:
    """Return in words what the scale leaves out of a sweep."""
    names = [panel.name for panel in sweep.panels if panel.settings["task"] in scale.without]
    return [f"{'; '.join(names)}: not done at the scale {scale.name}"] if names else []


def _tasks(names: Iterable[str], scale: Scale, data: Path | None) -> tuple[list[str], list[str]]:
    """The tasks whose data is there, or the scale's stand-in."""
    problems = {task: _problem(task, data) for task in names if task not in scale.without}
    ready = [scale.stand_in if problem else task for task, problem in problems.items()]
    return list(dict.fromkeys(filter(None, ready))), _missing(problems, scale)


def _missing(problems: Mapping[str, str], scale: Scale) -> list[str]:
    """Return in words which data is missing for which task, and what replaces it."""
    end = f" ({scale.stand_in} stands in)" if scale.stand_in else ""
    by_problem = group(problems, lambda name: problems[name])
    return [f"{'; '.join(names)}: {text}{end}" for text, names in by_problem.items() if text]


def _problem(task: str, data: Path | None) -> str:
    """Return the missing data of a task and the remedy; empty if nothing is."""
    try:
        locate(find_task(task).reader, data)
    except DataError as error:
        return str(error)
    return ""


def _notes(out: Path, runs: Sequence[Settings]) -> list[str]:
    tasks = {settings.task for settings in runs}
    with Store(out) as store:
        rows = store.runs(aggregator="fedavg")
    return list(dict.fromkeys(data_note(row) for row in rows if row["task"] in tasks))


def all_runs(
    experiments: Sequence[Experiment], tasks: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[Settings]:
    """Return the runs of all experiments, first seeds first; optionally of some tasks and seeds.

    Raises:
        ConfigError: if no run is of such a task or seed; the message lists those that there are.
    """
    runs = [settings for experiment in experiments for settings in experiment.runs()]
    if runs:
        _check_known("task of these experiments", tasks, {run.task: None for run in runs})
        there = {str(run.seed): None for run in runs}
        _check_known("seed of these experiments", [str(seed) for seed in seeds], there)
    wanted = [
        settings
        for settings in runs
        if (not tasks or settings.task in tasks) and (not seeds or settings.seed in seeds)
    ]
    return sorted(wanted, key=lambda settings: settings.seed)
