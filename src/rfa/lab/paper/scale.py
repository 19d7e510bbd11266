"""How much of an experiment is done: the paper's setting, or a shorter one.

A scale has seeds, and for some tasks settings that make runs shorter. Settings of a figure override
those of the scale, which override those of the paper.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rfa._specs import parse_spec
from rfa.aggregators.registry import find
from rfa.lab.runs.sweep import Cell, Part, Sweep, cells, merge
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.files import read_toml
from rfa.lab.settings.settings import FIELDS

AUTHORS: dict[str, Any] = {"nu": 1e-6, "start": "mean"}
"""What the authors chose where the lab has other defaults."""
LOCAL = ("local_steps", "local_epochs", "batch_size")
"""Settings of local training, which minibatch SGD does not have."""


@dataclass(frozen=True)
class Scale:
    """How much of the experiments is done.

    Among the settings by task, `seeds`, `levels` (of rho) and `without` (aggregators that are left
    out) are none. Those by experiment win over all others; there `seeds` and `values` are no
    settings, and `tasks` has settings by task, which win over these. Settings of a task hold
    for it with parameters, too (`emnist-linear:polarity=ink`), unless that is named itself.
    """

    name: str
    title: str  # what it is, in words
    seeds: Sequence[int]  # if a task has no other
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    experiments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    stand_in: str = ""  # the task that stands in for one whose data is missing, if any
    frozen: Mapping[str, Any] = field(default_factory=dict[str, Any])  # `rounds` before the freeze
    theorem: str = "quick"  # how much the check of the theorem does
    verdicts: bool = True  # whether the paper's statements are judged by it
    without: Sequence[str] = ()  # experiments and tasks that are left out

    @property
    def words(self) -> str:
        """The name, and what it means."""
        return f"{self.name}: {self.title}"

    def settings_of(self, task: str, aggregator: str) -> dict[str, Any]:
        """Return the settings of a run from the scale and from the authors."""
        settings = {**AUTHORS, **of_task(self.tasks, task)}
        left_out = {"seeds", "levels", "without", *(LOCAL if find(aggregator).local_steps else ())}
        return {name: value for name, value in settings.items() if name not in left_out}

    def values_of(self, experiment: str, values: Sequence[Any]) -> Sequence[Any]:
        """The values on the horizontal axis of an experiment."""
        return self.experiments.get(experiment, {}).get("values", values)


def of_task(tables: Mapping[str, Mapping[str, Any]], task: str) -> dict[str, Any]:
    """Return the settings of a task: those of its name, overridden by those of its full text.

    >>> of_task({"a": {"rounds": 1, "seeds": [1]}, "a:b=2": {"rounds": 3}}, "a:b=2")
    {'rounds': 3, 'seeds': [1]}
    """
    return merge(tables.get(parse_spec(task).name, {}), tables.get(task, {}))


def read_scales(path: Path) -> dict[str, Scale]:
    """Return the scales in a TOML file by name.

    Raises:
        ConfigError: naming the file and the mistake.
    """
    try:
        scales = {name: Scale(name, **entry) for name, entry in read_toml(path).items()}
    except TypeError as error:
        msg = f"the scales in {path} are invalid: {error}"
        raise ConfigError(msg) from None
    for scale in scales.values():
        _check(scale, path)
    return scales


def scale_text(path: Path, name: str) -> str:
    """The tables of one scale, as its file has them."""
    tables = re.split(r"(?m)^(?=\[)", path.read_text(encoding="utf-8"))
    own = [table for table in tables if table.startswith((f"[{name}]", f"[{name}."))]
    return "".join(own).strip() + "\n"


def _check(scale: Scale, path: Path) -> None:
    """Refuse what the types promise but a file need not keep."""
    seeds: Any = scale.seeds
    tables: list[Any] = [scale.tasks, scale.experiments]
    good = isinstance(seeds, list) and all(isinstance(table, dict) for table in tables)
    if not (good and all(isinstance(some, dict) for table in tables for some in table.values())):
        msg = f"the scale {scale.name} in {path} needs a list of seeds, and tables of settings"
        raise ConfigError(msg)


def scaled_cells(sweep: Sweep, scale: Scale) -> Iterator[Cell]:
    """Return the runs of a sweep at a scale, first seed first."""
    given = scale.experiments.get(sweep.name, {})
    seeds: dict[str, Sequence[int]] = {}
    for panel in sweep.panels:
        usual = of_task(scale.tasks, _task(panel)).get("seeds", scale.seeds)
        seeds[panel.name] = given.get("seeds", usual)
    for seed in sorted(set(itertools.chain(*seeds.values()))):
        for panel in sweep.panels:
            if seed in seeds[panel.name]:
                yield from _panel_cells(sweep, scale, panel, seed)


def _panel_cells(sweep: Sweep, scale: Scale, panel: Part, seed: int) -> Iterator[Cell]:
    task, given = _task(panel), scale.experiments.get(sweep.name, {})
    said = of_task(scale.tasks, task)
    plain = {key: value for key, value in given.items() if key not in ("seeds", "values", "tasks")}
    wins = merge(plain, of_task(given.get("tasks", {}), task))
    values = scale.values_of(sweep.name, sweep.values)
    if sweep.x == "rho":
        values = [value for value in values if value in said.get("levels", values)]
    for line in sweep.lines:
        usual = FIELDS["aggregator"].default
        aggregator = {**panel.settings, **line.settings}.get("aggregator", usual)
        if aggregator in said.get("without", ()):
            continue
        layers = (scale.settings_of(task, aggregator), panel.settings, line.settings, wins)
        single_line = dataclasses.replace(
            sweep,
            panels=[Part(panel.name, merge(*layers))],
            lines=[Part(line.name, {})],
            values=values,
            seeds=[seed],
        )
        yield from cells(single_line)


def _task(panel: Part) -> str:
    return str(panel.settings.get("task", ""))
