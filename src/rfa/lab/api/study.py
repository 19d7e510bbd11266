"""Many runs from Python: every combination of some settings, and what came of them together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from rfa._checks import check_count
from rfa._specs import Spec, parse_spec
from rfa.aggregators.registry import spec_of
from rfa.errors import InvalidValueError, PluginError
from rfa.lab.api.figures import check_column, limit, new_axes, plot_lines
from rfa.lab.api.many import run_many
from rfa.lab.api.result import RunResult
from rfa.lab.errors import LabError
from rfa.lab.runs.headline import ALL, HONEST, headline
from rfa.lab.runs.spent import simulated
from rfa.lab.runs.statistics import mean_interval
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import CALLS, settle
from rfa.lab.runs.tables import LEADING, devices_table, evaluations_table, rounds_table, runs_table
from rfa.lab.settings.parameters import PARAMETERS, is_taken
from rfa.lab.settings.settings import FIELDS, Settings
from rfa.lab.table import Table

SEED = "seed"


class SweepError(LabError):
    """Some runs of a sweep failed; the others are kept, and are not done again."""


@dataclass(frozen=True)
class Study:
    """The runs of a sweep.

    Attributes:
        axes: the settings that differ, and their values as text or numbers.
        runs: the settings of each run, by its values on the axes.
        out: the folder of results.
    """

    axes: dict[str, tuple[Any, ...]]
    runs: dict[tuple[Any, ...], Settings] = field(repr=False)
    out: Path

    @cached_property
    def table(self) -> Table:
        """One row a run: its values on the axes, its last evaluation, and what else is known."""
        return self._with_axes(runs_table)

    @cached_property
    def evaluations(self) -> Table:
        """One row for each run and evaluation."""
        return self._with_axes(evaluations_table)

    @cached_property
    def rounds(self) -> Table:
        """One row for each run and round."""
        return self._with_axes(rounds_table)

    @cached_property
    def devices(self) -> Table:
        """One row for each run, evaluation and device."""
        return self._with_axes(devices_table)

    @cached_property
    def results(self) -> tuple[RunResult, ...]:
        """The runs, one by one, in the order of the axes."""
        with Store(self.out, create=False) as store:
            rows = {row["run"]: row for row in store.runs()}
        named = (rows[settings.run_name] for settings in self.runs.values())
        return tuple(RunResult(row["run"], self.out, row["status"], row) for row in named)

    @property
    def headline(self) -> str:
        """The accuracy that is shown first: over honest devices where runs are personalized."""
        personalized = any(run.training.personalize for run in self.runs.values())
        return headline(personalized=personalized)

    def means(self, measure: str = "", over: str = SEED) -> Table:
        """The mean of a measure over seeds, with its 95 % interval, by the other axes.

        Args:
            measure: a column of `table`; the headline accuracy by default.
            over: the axis over which the mean is taken.
        """
        measure = measure or self.headline
        check_column(self.table, measure)
        kept = [axis for axis in self.axes if axis != over]
        rows: list[dict[str, Any]] = []
        for values in itertools.product(*(self.axes[axis] for axis in kept)):
            where = dict(zip(kept, values, strict=True))
            mean = mean_interval(self.table.where(**where)[measure])
            found = {measure: mean.mean, "low": mean.low, "high": mean.high, "runs": mean.count}
            if measure == ALL:
                found[HONEST] = mean_interval(self.table.where(**where)[HONEST]).mean
            rows.append({**where, **found})
        return Table.from_rows(rows)

    def plot(self, x: str = "", y: str = "", by: str = "", panels: str = "") -> Any:
        """Draw the study, and return the matplotlib figure: means over seeds with their intervals.

        Args:
            x: the horizontal axis: a setting that differs, or "round" for curves.
            y: the quantity to draw: a column of `table`, or of `evaluations` for curves.
            by: the setting that distinguishes lines.
            panels: the setting that distinguishes panels.
        """
        for name in (x, by, panels):
            if name and name not in {*self.axes, "round"}:
                there = ", ".join([*self.axes, "round"])
                msg = f"{name!r} does not differ in this study: there are {there}"
                raise InvalidValueError(msg)
        free = [axis for axis in self.axes if axis not in {SEED, x, by, panels}]
        if not x:
            numbers = [a for a in free if all(isinstance(v, int | float) for v in self.axes[a])]
            x = numbers[0] if numbers else "round"
            free = [axis for axis in free if axis != x]
        by = by or (free.pop(0) if free else "")
        panels = panels or (free.pop(0) if free else "")
        if free:
            msg = f"{', '.join(free)} would be averaged over: leave it out by where(), or draw it"
            raise InvalidValueError(msg)
        y = y or self.headline
        table = self.evaluations if x == "round" else self.table
        check_column(table, y)
        parts = list(self.axes[panels]) if panels else [None]
        drawn = new_axes(len(parts))
        for axes, part in zip(drawn, parts, strict=True):
            some = table.where(**{panels: part}) if panels else table
            plot_lines(axes, some, x, y, by)
            axes.set_title(f"{panels} {part}" if panels else "")
        limit(drawn, y)
        drawn[0].figure.suptitle(
            simulated(run.privacy.noise_cohort for run in self.runs.values()), fontsize=8
        )
        return drawn[0].figure

    def where(self, **wanted: Any) -> Study:
        """The part of the study that has these values on these axes.

        Raises:
            InvalidValueError: naming the axis or the value that there is not.
        """
        for axis, value in wanted.items():
            if axis not in self.axes or value not in self.axes[axis]:
                known = self.axes.get(axis) or tuple(self.axes)
                msg = (
                    f"{axis}={value!r} is not in the study: there are {', '.join(map(str, known))}"
                )
                raise InvalidValueError(msg)
        kept = {
            place: run
            for place, run in self.runs.items()
            if wanted.items() <= dict(zip(self.axes, place, strict=True)).items()
        }
        axes = {
            axis: (wanted[axis],) if axis in wanted else values
            for axis, values in self.axes.items()
        }
        return Study(axes, kept, self.out)

    def _with_axes(self, read: Callable[[Store, list[str]], Table]) -> Table:
        """The rows of each run, with its values on the axes in front."""
        names = list(dict.fromkeys(run.run_name for run in self.runs.values()))
        with Store(self.out, create=False) as store:
            rows: dict[str, list[dict[str, Any]]] = {}
            for row in read(store, names):
                rows.setdefault(row["run"], []).append(row)
        return Table.from_rows(
            {**dict(zip(self.axes, place, strict=True)), **_without_leading(row, self.axes)}
            for place, run in self.runs.items()
            for row in rows.get(run.run_name, ())
        )


def sweep(  # noqa: PLR0913 how the runs are done, beside their settings
    base: Any,
    *,
    out: str | Path = "out",
    data_dir: str | Path | None = None,
    jobs: int = 0,
    fresh: bool = False,
    progress: bool | None = None,
    **grid: Any,
) -> Study:
    """Run every combination of some settings, several at the same time, and return a study.

        >>> from rfa import lab
        >>> study = lab.sweep(  # doctest: +SKIP
        ...     "digits-linear", corruption="omniscient", aggregator=["fedavg", lab.RFA()],
        ...     rho=[0, 0.1, 0.25], seed=range(1, 6),
        ... )
        >>> study.plot(x="rho").savefig("study.png")  # doctest: +SKIP

    Runs that are done are not repeated, and interrupted runs are resumed. A parameter of an
    aggregator applies to the aggregators that take it. A corruption at rho = 0 means none.

    Args:
        base: the task, all settings (`lab.Settings`), or settings by name with the task.
        out: the folder of results.
        data_dir: the folder of data sets; by default RFA_DATA.
        jobs: how many runs to do at the same time; by default one per processor.
        fresh: do all runs again, even those that are done, and read the data again.
        progress: whether to show a bar; by default in terminals and notebooks.
        **grid: settings by name: a list, tuple or range for those that differ, and one value for
            those that do not.

    Raises:
        ConfigError: if a setting is wrong; the message names it.
        SweepError: if some runs failed, with the reasons, after the others have finished.
    """
    check_count("jobs", jobs, least=0)
    for name in ("callbacks", "on_round", "on_evaluation"):
        if name in grid:
            msg = f"{name} is for lab.run: the runs of a sweep are done in processes of their own"
            raise InvalidValueError(msg)
    fixed, axes = _split(base, grid)
    labels = {axis: labels_of(axis, values) for axis, values in axes.items()}
    combinations = itertools.product(*axes.values())
    runs = {
        place: _settle(base, {**fixed, **dict(zip(axes, values, strict=True))})
        for place, values in zip(itertools.product(*labels.values()), combinations, strict=True)
    }
    _check_taken({*fixed, *axes}, runs.values())
    data = Path(data_dir) if data_dir is not None else None
    problems = run_many(
        runs.values(), Path(out), data_dir=data, jobs=jobs, fresh=fresh, progress=progress
    )
    if problems:
        told = "\n".join(f"  {name}: {problem}" for name, problem in problems.items())
        msg = f"{len(problems)} of {len(runs)} runs failed; the others are kept:\n{told}"
        raise SweepError(msg)
    return Study(labels, runs, Path(out))


def labels_of(axis: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """How the values on an axis are shown: numbers and text as they are, objects by their texts.

    Of an aggregator only the parameters are shown that are not the usual ones.

    Raises:
        InvalidValueError: if there is no value, or one twice.
    """
    texts = [Settings.text_of(axis, value) for value in values]
    if not texts or len(set(texts)) < len(texts):
        msg = f"{axis}={texts} must have values, and each of them once"
        raise InvalidValueError(msg)
    short = [_short(axis, text, value) for text, value in zip(texts, values, strict=True)]
    return tuple(short if len(set(short)) == len(short) else texts)


def _without_leading(row: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what tells its run from others at the end, where the axes do not tell it."""
    last = {name: value for name, value in row.items() if name in LEADING and name not in axes}
    first = {name: value for name, value in row.items() if name not in LEADING}
    return first | last


def _short(axis: str, text: Any, value: Any) -> Any:
    """Return the name of an object with the parameters that are not defaults."""
    if isinstance(value, str) or not isinstance(text, str):
        return text
    spec = parse_spec(text)
    name = spec.name.rpartition(":")[2].partition("@")[0]
    if axis != "aggregator" or isinstance(value, type):
        return str(Spec(name, spec.parameters))
    name = type(value).__name__
    try:
        usual = parse_spec(str(spec_of(type(value)()))).parameters
    except (TypeError, PluginError):  # it has no usual parameters
        usual = dict[str, Any]()
    other = {name: kept for name, kept in spec.parameters.items() if usual.get(name) != kept}
    listed = ", ".join(f"{key}={kept}" for key, kept in other.items())
    return name if spec.is_plugin and not other else f"{name}({listed})"  # "rfa" is no RFA()


def _split(base: Any, grid: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The settings that all runs share, and those that differ."""
    given = dict(cast("Mapping[str, Any]", base)) if isinstance(base, Mapping) else {}
    given |= grid
    given = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in given.items()
    }
    lists = {
        name: list(cast("Sequence[Any]", value))
        for name, value in given.items()
        if isinstance(value, list | tuple | range)
    }
    fixed = {name: value for name, value in given.items() if name not in lists}
    return fixed, lists


def _settle(base: Any, values: dict[str, Any]) -> Settings:
    if isinstance(base, Settings):
        aggregator = Settings.text_of("aggregator", values.get("aggregator", base.aggregator))
        fitting = {
            name: value
            for name, value in values.items()
            if name not in PARAMETERS or is_taken(name, aggregator)
        }
        return base.replace(**fitting)
    task = {} if isinstance(base, Mapping) else {"task": base}
    return settle(task | values)


def _check_taken(names: set[str], runs: Any) -> None:
    """Refuse a parameter that none of the aggregators takes: it would change nothing."""
    known = {*FIELDS, *PARAMETERS, CALLS}
    listed = list(cast("Sequence[Settings]", runs))
    for name in names & set(PARAMETERS):
        if not any(is_taken(name, settings.aggregator) for settings in listed):
            msg = f"{name} is a parameter of none of the aggregators: leave it out"
            raise InvalidValueError(msg)
    for name in names - known:
        msg = f"no setting is called {name!r}: there are {', '.join(sorted(known))}"
        raise InvalidValueError(msg)
