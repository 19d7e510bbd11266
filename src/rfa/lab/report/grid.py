"""Tables of a page: numbers with the digits that they need, aligned to the right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from html import escape

from rfa.lab.report.exhibit import Table, Value

SHORT = 12
"""Tables with at most this many rows are open at first."""
DIGITS = 4
LONG = 10_000
"""Numbers from here on have thousands separators."""
PROSE = 60
"""A table with texts longer than this is shown row by row on a narrow screen."""
WIDE = 1e4
"""Columns that span more than this factor show each number with its own digits."""


def grid(table: Table, *, shown: bool) -> str:
    """Return a table that opens and closes; short ones are open."""
    title = escape(table.title)
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.head)
    numeric = [any(isinstance(value, int | float) for value in column) for column in columns]
    head = "".join(map(_cell, itertools.repeat('th scope="col"'), table.head, numeric))
    rows = "\n".join(
        f"<tr>{''.join(map(_cell, _tags(table.head), cells, numeric))}</tr>"
        for cells in zip(*map(_column, columns), strict=True)
    )
    opened = " open" if shown or len(table.rows) <= SHORT else ""
    count = f"{len(table.rows)} {'row' if len(table.rows) == 1 else 'rows'}"
    texts = [cell for row in table.rows for cell in row if isinstance(cell, str)]
    kind = ' class="prose"' if any(len(text) > PROSE for text in texts) else ""
    return f"""<details class="table"{opened}>
<summary><h3>{title}</h3> <small>{count}</small></summary>
<button type="button" class="save">Save as CSV</button>
<div class="scroll" role="region" aria-label="{title}" tabindex="0">
<table{kind}>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
</details>"""


def _tags(head: Sequence[str]) -> list[str]:
    """Return cells with the name of their column, which narrow screens show."""
    return [f'td data-label="{escape(name)}"' for name in head]


def _cell(tag: str, text: str, number: bool) -> str:
    right = ' class="number"' if number else ""
    return f"<{tag}{right}>{escape(text)}</{tag[:2]}>"


def _column(values: Sequence[Value]) -> list[str]:
    """Return a column as texts, with the decimals that its largest number needs for four digits."""
    sizes = [abs(v) for v in values if isinstance(v, int | float) and math.isfinite(v) and v]
    wide = bool(sizes) and max(sizes) > WIDE * min(sizes)
    places = max(0, DIGITS - 1 - math.floor(math.log10(max(sizes)))) if sizes else 0
    needed = max((_decimals(v, places) for v in values if isinstance(v, float)), default=0)
    return [_text(value, None if wide else needed) for value in values]


def _decimals(value: float, places: int) -> int:
    """Return the number of decimals without trailing zeros."""
    return len(f"{value:.{places}f}".rstrip("0").partition(".")[2])


def _text(value: Value, places: int | None) -> str:
    if isinstance(value, str | bool):
        return str(value)
    if value is None or not math.isfinite(value):
        return "–"  # noqa: RUF001
    if isinstance(value, float) and places is None:
        return f"{value:.{DIGITS}g}"
    decimals = f".{places}f" if isinstance(value, float) else "d"
    return f"{value:{',' if abs(value) >= LONG else ''}{decimals}}"
