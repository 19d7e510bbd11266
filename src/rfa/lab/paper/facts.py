"""Measurements of single runs besides their accuracies, in a file next to the store.

Such a measurement needs the rounds of a run or its last model. A run that was done elsewhere has
neither, so its measurements come with its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from rfa._files import replace_file
from rfa.lab.paper.kept_rows import damaged, read_rows

FILE = "facts.csv"
HEAD = ("run", "measure", "value")
Facts: TypeAlias = dict[str, dict[str, float]]
"""Values by run and measure."""


def read_facts(folder: Path) -> Facts:
    """Return the facts in a folder; none where there is no file.

    Raises:
        NumbersError: naming the file and the mistake.
    """
    facts: Facts = {}
    if not (folder / FILE).exists():
        return facts
    for run, measure, value in read_rows(folder / FILE, _fact):
        if measure in facts.setdefault(run, {}):
            raise damaged(folder / FILE, f"{run} has the measure {measure} twice")
        facts[run][measure] = value
    return facts


def _fact(row: Mapping[str, str]) -> tuple[str, str, float]:
    return row["run"], row["measure"], float(row["value"])


def add_facts(folder: Path, more: Mapping[str, Mapping[str, float]]) -> None:
    """Add facts to those in a folder; new facts of a run replace old ones."""
    facts = read_facts(folder) | {run: dict(values) for run, values in more.items()}
    folder.mkdir(parents=True, exist_ok=True)
    with replace_file(folder / FILE) as file:
        file.write((",".join(HEAD) + "\n").encode())
        for run, values in sorted(facts.items()):
            for name, value in values.items():
                file.write(f'"{run}",{name},{value!r}\n'.encode())
