"""Releases of numbers for tests: a small one, copies of it, and damage."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from rfa.cli.main import main

SWEEP = """
kind = "decides"
title = "Mine"
[[panels]]
title = "clean"
task = "tests.tiny:TASK"
[[panels]]
title = "poisoned"
task = "tests.tiny:TASK"
corruption = "data"
rho = 0.25
[[lines]]
label = "FedAvg"
aggregator = "fedavg"
[[lines]]
label = "RFA"
aggregator = "rfa"
"""
SCALES = '[short]\ntitle = "short"\nseeds = [1, 2]\n'
FILES = ("evaluations.csv", "facts.csv", "numbers.csv", "runs.csv")
SUMS = "SHA256SUMS"


def reproduce(folder: Path, out: Path, *arguments: str) -> Any:
    where = ["--from", str(folder), "--out", str(out), "-j", "1"]
    return CliRunner().invoke(main, ["reproduce", *where, *arguments])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def copy(numbers: Path, to: Path, *without: str) -> Path:
    """A copy of a folder of numbers; without a file that says how they were, if so wanted."""
    to.mkdir()
    for path in numbers.iterdir():
        if path.name not in without:
            (to / path.name).write_bytes(path.read_bytes())
    return to


def edit(path: Path, change: Callable[[dict[str, str]], Mapping[str, str] | None]) -> None:
    """Change rows of a file by hand; None leaves a row out."""
    table = rows(path)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, table[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(new for row in table if (new := change(row)) is not None)


def first(change: dict[str, str], **where: str) -> Callable[[dict[str, str]], dict[str, str]]:
    """Change the first row that has these values, and no other."""
    left = [change]

    def changed(row: dict[str, str]) -> dict[str, str]:
        there = left and all(row[name] == value for name, value in where.items())
        return row | left.pop() if there else row

    return changed
