"""The commands `rfa data` and `rfa data get`: what is there, and how it gets there."""

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
from rfa.lab.datasets import fetch
from rfa.lab.datasets.cache import data_dir as resolve_data_dir
from rfa.lab.datasets.cache import load
from rfa.lab.datasets.catalog import CATALOG, Counts, DataSet
from rfa.lab.datasets.dataset import DataError, Reader, arrange
from rfa.lab.tasks.emnist.reader import Emnist
from rfa.lab.tasks.glyphs.reader import Glyphs
from rfa.lab.tasks.sent140.reader import Sent140
from rfa.lab.tasks.shakespeare.reader import Shakespeare

READERS: dict[str, type[Reader]] = {
    "emnist": Emnist,
    "shakespeare": Shakespeare,
    "sent140": Sent140,
    "glyphs": Glyphs,
}


@dataclass(frozen=True)
class Facts:
    """What is known of a data set, here.

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

    @property
    def there(self) -> bool:
        """Whether it can be used."""
        return not self.missing and self.problem is None


def describe(dataset: DataSet, directory: Path | None) -> Facts:
    """Look for a data set, and count its devices and examples.

    Args:
        dataset: the data set.
        directory: where its files should be; None if nobody knows.
    """
    try:
        if missing := dataset.missing(directory):
            return Facts(dataset, missing)
        if dataset.name not in READERS:
            return Facts(dataset)
        return Facts(dataset, counts=_count(READERS[dataset.name](), directory))
    except (DataError, OSError, ImportError) as error:
        return Facts(dataset, problem=str(error))


def _count(reader: Reader, directory: Path | None) -> Counts:
    if reader.files:
        population = load(reader, directory)
        offsets, train, y = population.offsets, population.train, population.y
    else:  # made on the spot: to count it, no example needs to be made
        index = reader.index({})
        plan = arrange(reader, index)
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


@click.group(invoke_without_command=True)
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_context
def data(context: click.Context, data_dir: Path | None, as_json: bool) -> None:
    """List the data sets: what is here, how large it is, and where it comes from."""
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
        click.echo(json.dumps(_as_json(facts, directory), indent=2))
    else:
        _show(facts, directory)


def _as_json(facts: list[Facts], directory: Path | None) -> dict[str, Any]:
    return {
        "directory": None if directory is None else str(directory),
        "datasets": [
            {
                "name": fact.dataset.name,
                "title": fact.dataset.title,
                "there": fact.there,
                "missing": fact.missing,
                "problem": fact.problem,
                "counts": None if fact.counts is None else asdict(fact.counts),
                "paper": None if fact.dataset.paper is None else asdict(fact.dataset.paper),
                "origin": fact.dataset.origin,
                "license": fact.dataset.license,
                "note": fact.dataset.note,
            }
            for fact in facts
        ],
    }


def _show(facts: list[Facts], directory: Path | None) -> None:
    console = Console(markup=False)
    table = Table("name", "", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("devices", "train", "test", "median", "max", "min"):
        table.add_column(name, justify="right")
    for fact in facts:
        table.add_row(fact.dataset.name, _state(fact), *_numbers(fact.counts))
        if fact.dataset.paper is not None:
            table.add_row("", "paper", *_numbers(fact.dataset.paper))
    console.print(table)
    console.print("train, test: examples of all devices; median, max, min: train of a device")
    for fact in facts:
        dataset = fact.dataset
        parts = [dataset.title, dataset.origin, f"License: {dataset.license}", dataset.note]
        if fact.missing:
            parts.append(f"Missing: {', '.join(fact.missing)}")
        if fact.problem:
            parts.append(f"Problem: {fact.problem}")
        lines = "\n".join(f"  {part}" for part in parts if part)
        console.print(f"\n{dataset.name}\n{lines}", soft_wrap=True)
    console.print(f"\n{_hint(facts, directory)}", soft_wrap=True)


def _hint(facts: list[Facts], directory: Path | None) -> str:
    if directory is None:
        return "No data directory is set: name it by --data-dir or RFA_DATA."
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
    return "here" if fact.dataset.files else "made here"


def _numbers(counts: Counts | None) -> list[str]:
    if counts is None:
        return []
    numbers = (counts.devices, counts.train, counts.test, counts.median, counts.max, counts.min)
    return [f"{number:,.10g}" for number in numbers]


@data.command()
@click.argument("name")
@data_option
@click.pass_obj
def get(outer: Path | None, name: str, data_dir: Path | None) -> None:
    """Download the data set NAME; what is there already is left alone."""
    if name not in CATALOG:
        msg = f"there is no data set {name!r}: choose one of {', '.join(CATALOG)}"
        raise click.ClickException(msg)
    dataset, console = CATALOG[name], Console(markup=False)
    if not dataset.files:
        console.print(f"{name} is made on the spot: there is nothing to download.")
        return
    directory = resolve_data_dir(data_dir or outer)
    if directory is None:
        msg = "where should it go? Name a directory by --data-dir or RFA_DATA"
        raise click.ClickException(msg)
    with _bars() as bars:
        came = fetch.get(dataset, directory, _Bars(bars))
    for path in came:
        console.print(f"{path} ({path.stat().st_size / 1e6:,.1f} MB)", soft_wrap=True)
    if not came:
        console.print(f"{name} is there already, in {directory}", soft_wrap=True)
    console.print(f"License: {dataset.license}", soft_wrap=True)


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, markup=False),
    )


class _Bars:
    """One bar for each thing that is under way."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, label: str, done: int, total: int | None) -> None:
        if label not in self._tasks:  # what was there before does not count for the speed
            self._tasks[label] = self._progress.add_task(label, total=total, completed=done)
        self._progress.update(self._tasks[label], completed=done, total=total)
