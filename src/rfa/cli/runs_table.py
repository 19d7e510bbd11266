"""The list of `rfa runs`, in as many columns as the terminal is wide: no name is broken."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rfa.lab.runs.attackers import attackers_text
from rfa.lab.runs.headline import headline, percent

Row = Mapping[str, Any]
Cells = Mapping[str, str]

WORDS = ("id", "task", "aggregator", "corruption", "status")
COLUMNS = (*WORDS, "seed", "rounds", "accuracy", "honest")
COMMON = ("task", "seed", "corruption", "aggregator", "status")
"""Columns that go above the list where all runs agree in them, and the list is too wide."""
BELOW = ("task", "aggregator", "corruption")
"""Columns that go below a run where the list is still too wide."""
MARK = "*"
"""Beside an accuracy over honest devices that stands where others have that over all."""
INDENT = "    "
SECURE = {"off": "", "unmasked": "unmasked", "on": "secure"}
"""What the list says of secure aggregation, by its mode."""


def runs_lines(rows: Sequence[Row], width: int) -> list[str]:
    """Return the list of runs as lines, the first of them the header.

    Where a line with all columns is wider than `width`, columns in which all runs agree become one
    line above the list. Where that is not enough, names go on a line below their run.
    """
    cells = [_cells(row) for row in rows]
    columns, said = list(COLUMNS), list[str]()
    for name in COMMON:
        values = {cell[name] for cell in cells}
        if _width(cells, columns) > width and len(values) == 1:
            columns.remove(name)
            said.append(f"{name} {values.pop()}")
    if _width(cells, columns) > width:
        said, below = [], BELOW
        columns = [name for name in COLUMNS if name not in BELOW]
    else:
        below = ()
    lines = [*_wrapped(", ".join(said), width, ""), *_table(cells, columns, below, width)]
    if any(row["personalized"] for row in rows):
        lines.append(f"{MARK} personalized: over honest devices")
    return lines


def _table(
    cells: Sequence[Cells], columns: Sequence[str], below: Sequence[str], width: int
) -> list[str]:
    widths = _widths(cells, columns)
    lines = [_line({name: name for name in columns}, widths)]
    for cell in cells:
        lines.append(_line(cell, widths))
        lines += _wrapped(", ".join(cell[name] for name in below), width, INDENT)
    return lines


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _widths(cells: Sequence[Cells], columns: Sequence[str]) -> dict[str, int]:
    return {name: max(len(name), *(len(cell[name]) for cell in cells)) for name in columns}


def _width(cells: Sequence[Cells], columns: Sequence[str]) -> int:
    return sum(width + 1 for width in _widths(cells, columns).values()) - 1


def _line(cell: Cells, widths: Mapping[str, int]) -> str:
    """One line, names to the left and numbers to the right."""
    parts = (
        cell[name].ljust(width) if name in WORDS else cell[name].rjust(width)
        for name, width in widths.items()
    )
    return " ".join(parts).rstrip()


def _cells(row: Row) -> dict[str, str]:
    """A run as the list shows it, by column."""
    personalized = bool(row["personalized"])
    first = percent(row[headline(personalized=personalized)])
    return {
        "id": row["run"].rsplit(".", 1)[-1],
        "task": row["task"],
        "aggregator": _how(row),
        "corruption": f"{row['corruption']} {attackers_text(row)}".strip(),
        "status": row["status"],
        "seed": str(row["seed"]),
        "rounds": str(row["rounds"]),
        "accuracy": first + MARK * personalized,
        "honest": percent(row["honest_accuracy"]),
    }


def _how(row: Row) -> str:
    """The aggregator, and how it gets its sums if they are secure, or hold noise."""
    secure = json.loads(row["settings"])["secure"]["mode"]
    how = [SECURE[secure], row["privacy"]]
    listed = ", ".join(filter(None, how))
    return row["aggregator"] + (f" ({listed})" if listed else "")
