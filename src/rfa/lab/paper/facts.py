"""Measurements of single runs besides their accuracies, in a file next to the store.

Such a measurement needs the rounds of a run or its last model. A run that was done elsewhere has
neither, so its measurements come with its numbers.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from rfa._files import replace_file

FILE = "facts.csv"
HEAD = ("run", "measure", "value")
Facts: TypeAlias = dict[str, dict[str, float]]
"""Values by run and measure."""


def read_facts(folder: Path) -> Facts:
    """The facts in a folder; none where there is no file."""
    facts: Facts = {}
    if not (folder / FILE).exists():
        return facts
    with (folder / FILE).open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            facts.setdefault(row["run"], {})[row["measure"]] = float(row["value"])
    return facts


def add_facts(folder: Path, more: Mapping[str, Mapping[str, float]]) -> None:
    """Add facts to those in a folder; new facts of a run replace old ones."""
    facts = read_facts(folder) | {run: dict(values) for run, values in more.items()}
    folder.mkdir(parents=True, exist_ok=True)
    with replace_file(folder / FILE) as file:
        file.write((",".join(HEAD) + "\n").encode())
        for run, values in sorted(facts.items()):
            for name, value in values.items():
                file.write(f'"{run}",{name},{value!r}\n'.encode())
