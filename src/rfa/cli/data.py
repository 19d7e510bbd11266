"""The commands `rfa data` and `rfa data get`: list data sets, and download them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from rfa.cli.options import data_option
from rfa.cli.show import say_labeled
from rfa.lab.datasets import fetch
from rfa.lab.datasets.arrangement import arrange
from rfa.lab.datasets.cache import data_dir as resolve_data_dir
from rfa.lab.datasets.cache import load
from rfa.lab.datasets.catalog import CATALOG, Counts, DataSet
from rfa.lab.datasets.dataset import DataError
from rfa.lab.datasets.partition import ByDevice, Iid
from rfa.lab.tasks.registry import TASKS
from rfa.lab.tasks.task import Task

INDENT = 2
USED_BY = {task.reader.name: task for task in TASKS.values() if task.reader.name in CATALOG}
"""A task of each data set."""
COLUMNS = ("devices", "train", "test", "median", "max", "min")


@dataclass(frozen=True)
class Facts:
    """The state of a data set on this machine.

    Attributes:
        dataset: the data set.
        missing: its files that are not there.
        counts: how large it is here; None if it cannot be counted.
        problem: why it cannot be read although no file is missing.
    """

    dataset: DataSet
    missing: tuple[str, ...] = ()
    counts: Counts | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """All of it but the files, and whether the data set can be used."""
        about = asdict(self.dataset)
        del about["files"], about["sources"]
        there = not self.missing and self.problem is None
        counts = self.counts and asdict(self.counts)
        here = {"there": there, "missing": self.missing, "problem": self.problem}
        return about | here | {"counts": counts}


def describe(dataset: DataSet, directory: Path | None) -> Facts:
    """Look for a data set in a directory, if there is one, and count its devices and examples."""
    try:
        if missing := dataset.missing(directory):
            return Facts(dataset, missing)
        if dataset.name not in USED_BY:
            return Facts(dataset)
        return Facts(dataset, counts=_count(USED_BY[dataset.name], directory))
    except (DataError, OSError, ImportError) as error:
        return Facts(dataset, problem=str(error))


def _count(task: Task, directory: Path | None) -> Counts:
    reader = task.reader
    if reader.files:
        population = load(reader, directory)
        offsets, train, y = population.offsets, population.train, population.y
    else:  # to count what is made on the spot, no example needs to be made
        index = reader.index({})
        plan = arrange(reader, index, ByDevice() if reader.has_devices else Iid(), task.devices)
        offsets, train, y = plan.offsets, plan.train, index.y
    return Counts(
        devices=len(train),
        train=int(train.sum()),
        test=int(offsets[-1] - train.sum()),
        median=float(np.median(train)),
        max=int(train.max()),
        min=int(train.min()),
        classes=len(np.unique(y)),
    )


@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]...")
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_context
def data(context: click.Context, data_dir: Path | None, as_json: bool) -> None:
    """List the data sets: their state, size, source and license."""
    context.obj = data_dir
    if context.invoked_subcommand is not None:
        return
    directory = resolve_data_dir(data_dir)
    facts: list[Facts] = []
    with Console(stderr=True, markup=False).status("Looking") as status:
        for dataset in CATALOG.values():
            status.update(f"Looking at {dataset.name}; the first time, this may take minutes")
            facts.append(describe(dataset, directory))
    if as_json:
        content = {"directory": directory and str(directory)}
        listed = [fact.to_json() for fact in facts]
        click.echo(json.dumps(content | {"datasets": listed}, indent=2))
    else:
        _show(facts, directory)


def _show(facts: list[Facts], directory: Path | None) -> None:
    console = Console(markup=False)
    table = Table("name", "", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for fact in facts:
        table.add_row(fact.dataset.name, _state(fact), *_numbers(fact.counts))
        if fact.dataset.paper is not None:
            table.add_row("", "paper", *_numbers(fact.dataset.paper))
    console.print(table)
    console.print(
        "train, test: examples of all devices\nmedian, max, min: training examples of a device"
    )
    for fact in facts:
        dataset = fact.dataset
        parts = [dataset.title, dataset.origin, f"License: {dataset.license}", dataset.note]
        if fact.missing:
            parts.append(f"Missing: {', '.join(fact.missing)}")
        if fact.problem:
            parts.append(f"Problem: {fact.problem}")
        click.echo(f"\n{dataset.name}")
        for part in filter(None, parts):
            say_labeled("", part, INDENT)
    console.print(f"\n{_hint(facts, directory)}", soft_wrap=True)


def _hint(facts: list[Facts], directory: Path | None) -> str:
    if directory is None:
        return "No data directory is set: give --data-dir or set RFA_DATA."
    where = f"Data directory: {directory}"
    if not directory.exists():
        where += " (it does not exist)"
    missing = [fact.dataset.name for fact in facts if fact.missing]
    return f"{where}\nTo download: rfa data get {'|'.join(missing)}" if missing else where


def _state(fact: Facts) -> str:
    if fact.missing:
        return "missing"
    if fact.problem:
        return "unreadable"
    return "made here" if fact.dataset.made else "here"


def _numbers(counts: Counts | None) -> list[str]:
    return [f"{getattr(counts, name):,.10g}" for name in COLUMNS] if counts else []


@data.command()
@click.argument("name")
@data_option
@click.pass_obj
def get(outer: Path | None, name: str, data_dir: Path | None) -> None:
    """Download the data set NAME; files that exist are kept."""
    if name not in CATALOG:
        msg = f"there is no data set {name!r}: choose one of {', '.join(CATALOG)}"
        raise click.ClickException(msg)
    dataset, console = CATALOG[name], Console(markup=False)
    if not dataset.files:
        how = "is made on the spot" if dataset.made else "comes with rfa"
        console.print(f"{name} {how}: there is nothing to download.")
        return
    directory = resolve_data_dir(data_dir or outer)
    if directory is None:
        msg = "no data directory is set: give --data-dir or set RFA_DATA"
        raise click.ClickException(msg)
    with _Bars() as bars:
        came = fetch.get(dataset, directory, bars.show)
    for path in came:
        console.print(f"{path} ({path.stat().st_size / 1e6:,.1f} MB)", soft_wrap=True)
    if not came:
        console.print(f"{name} is there already, in {directory}", soft_wrap=True)
    console.print(f"License: {dataset.license}", soft_wrap=True)


class _Bars(Progress):
    """One bar for each thing that is under way."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, markup=False),
        )
        self._known: dict[str, TaskID] = {}

    def show(self, label: str, done: int, total: int | None) -> None:
        if label not in self._known:  # what was there before does not count for the speed
            self._known[label] = self.add_task(label, total=total, completed=done)
        self.update(self._known[label], completed=done, total=total)
