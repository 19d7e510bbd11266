"""The paper's table of data sets (table:expt:dataset:descr), for the data at hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rfa.lab.datasets.dataset import DataError
from rfa.lab.paper.frozen import about
from rfa.lab.report.exhibit import Exhibit, Table, Value
from rfa.lab.tasks.registry import find_task
from rfa.lab.tasks.task import Task


def exhibit(plan: Mapping[str, Any], data: Path | None) -> Exhibit:
    """Return the table, with the rows of the paper next to ours."""
    rows: list[list[Value]] = []
    notes: list[str] = []
    missing: list[str] = []
    for name, paper in plan["tasks"].items():
        task = find_task(name)
        if paper:
            rows.append([f"{task.reader.name}, the paper", *paper, None])
        try:
            row, note = _row(task, data)
        except DataError as error:
            missing.append(str(error))
            continue
        rows.append(row)
        notes += [f"{task.reader.name}: {note}"] if note else []
    head = ["data set", "classes", "train", "test", "devices"]
    head += ["train per device, median", "max", "min", "largest class (%)"]
    tables = [Table("Data sets", head, rows)]
    return Exhibit(**about(plan), tables=tables, data=notes, missing=missing, describes=True)


def largest_classes(names: Iterable[str], data: Path | None) -> dict[str, float]:
    """The share of the largest class among the test examples of tasks, in percent, where known."""
    shares: dict[str, float] = {}
    for name in names:
        with contextlib.suppress(DataError):
            row, _ = _row(find_task(name), data)
            shares[name] = float(row[-1] or 0.0)
    return shares


def _row(task: Task, data: Path | None) -> tuple[list[Value], str]:
    population = task.load(data)
    count = min(task.devices, len(population))
    train = population.train[:count]
    sizes = np.diff(population.offsets)[:count]
    starts, ends = population.offsets[:count] + train, population.offsets[1 : count + 1]
    spans = zip(starts, ends, strict=True)
    tests = np.concatenate([population.y[start:end] for start, end in spans])
    largest = float(np.bincount(tests).max() / len(tests))
    numbers: list[Value] = [int(train.sum()), int((sizes - train).sum()), count]
    spread: list[Value] = [float(np.median(train)), int(train.max()), int(train.min())]
    name = f"{task.reader.name}, here"
    classes = task.learner("cpu").classes
    return [name, classes, *numbers, *spread, 100 * largest], task.note(population.names)
