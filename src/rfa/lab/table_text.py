"""Tables for eyes: as text of 80 letters a line, and as HTML for notebooks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rfa._types import Array

WIDTH = 80
ENDS = 5
"""How many of the first rows are shown, and of the last."""
LONG = 20
"""Texts of more letters are shortened."""
GAP = "…"
LEFT_OUT = 3
"""Lines that may tell of columns that are not shown."""


def as_text(columns: Mapping[str, Array], length: int) -> str:
    """The first and last rows, in lines of at most 80 letters.

    If there are more columns than fit, those with the same value in all rows are listed below, and
    so are the names of other columns without room.
    """
    head = f"{length} row{'' if length == 1 else 's'}, {len(columns)} columns"
    cells = {name: [_short(name), *_shown(column)] for name, column in columns.items()}
    widths = {name: max(map(len, column)) for name, column in cells.items()}
    notes: list[str] = []
    if _total(widths) > WIDTH and length > 1:
        same = [name for name, column in columns.items() if _is_constant(column)]
        for name in same:
            del widths[name]
        told = ", ".join(f"{name}={_cell(columns[name].tolist()[0])}" for name in same)
        notes += _wrapped(f"in all rows: {told}") if same else []
    kept = dict(widths)
    while len(kept) > 1 and _total(kept) > WIDTH:
        kept.popitem()
    more = [name for name in widths if name not in kept]
    notes += _wrapped(f"more columns: {', '.join(map(_cell, more))}") if more else []
    lines = [
        "  ".join(_aligned(columns[name], cells[name][row], width) for name, width in kept.items())
        for row in range(max((len(cells[name]) for name in kept), default=0))
    ]
    return "\n".join([*(line.rstrip() for line in lines), *notes, head])


def as_html(columns: Mapping[str, Array], length: int) -> str:
    """The first and last rows as an HTML table."""
    cells = [_shown(column) for column in columns.values()]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "\n".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for row in zip(*cells, strict=True)
    )
    count = f"{length} row{'' if length == 1 else 's'}"
    return (
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"
        f"<p>{count}, {len(columns)} columns</p>"
    )


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _is_constant(column: Array) -> bool:
    values: list[Any] = column.tolist()
    if is_missing(values[0]):
        return all(map(is_missing, values))
    return all(value == values[0] for value in values)


def is_missing(value: Any) -> bool:
    """Whether a value is None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _shown(column: Array) -> list[str]:
    """The cells of a column that are shown, with a gap where some are not."""
    if len(column) <= 2 * ENDS:
        return [_cell(value) for value in column.tolist()]
    ends: list[Any] = [column[:ENDS].tolist(), column[-ENDS:].tolist()]
    first, last = ([_cell(value) for value in values] for values in ends)
    return [*first, GAP, *last]


def _cell(value: Any) -> str:
    if is_missing(value):
        return "-"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return _short("".join(letter if letter.isprintable() else "?" for letter in text))


def _short(text: str) -> str:
    """A text that keeps its beginning and its end."""
    if len(text) <= LONG:
        return text
    half = (LONG - 1) // 2
    return f"{text[:half]}{GAP}{text[half + 1 - LONG :]}"


def _aligned(column: Array, cell: str, width: int) -> str:
    return cell.ljust(width) if column.dtype == object else cell.rjust(width)


def _wrapped(text: str) -> Sequence[str]:
    return textwrap.wrap(text, WIDTH, max_lines=LEFT_OUT, placeholder=f" {GAP}")
