"""What is measured of single runs beside their accuracies, kept in a file beside the store.

It takes the rounds of a run, or its last model, to measure such a thing; a run that was done
elsewhere has neither, so what was measured goes with its numbers.
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
    """Add facts to those in a folder; what is said anew of a run replaces what was said."""
    facts = read_facts(folder) | {run: dict(values) for run, values in more.items()}
    folder.mkdir(parents=True, exist_ok=True)
    with replace_file(folder / FILE) as file:
        file.write((",".join(HEAD) + "\n").encode())
        for run, values in sorted(facts.items()):
            for name, value in values.items():
                file.write(f'"{run}",{name},{value!r}\n'.encode())
