"""Exhibits as Markdown, for pages beside the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rfa.lab.report.exhibit import Exhibit, Table, Value, group
from rfa.lab.report.gather import INTERVAL

PERCENT = "(%)"
BOUNDS = ("lowest", "highest", *INTERVAL)
"""Columns that belong to the number before them."""


def section(exhibit: Exhibit, pictures: Sequence[str]) -> Iterator[str]:
    """Yield an exhibit: claim, pictures (one for each view), horizon, data, tables, command."""
    where = f"*{exhibit.paper}.* " if exhibit.paper else ""
    yield from (f"## {exhibit.title}", "", f"{where}{exhibit.caption}".rstrip(), "")
    for view, picture in zip(exhibit.views, pictures, strict=True):
        about = f"{exhibit.title}: {view}" if view else exhibit.title
        yield from (f"![{about}]({picture})", "")
    yield from _horizon(exhibit)
    for table in exhibit.all_tables:
        yield from (
            f"<details><summary>{table.title}</summary>",
            "",
            *rows(table),
            "</details>",
            "",
        )
    yield from (f"```\n{exhibit.command}\n```", "")


def rows(table: Table) -> Iterator[str]:
    """Yield the lines of a table."""
    shares = _shares(table.head)
    lines = [map(_text, row, shares) for row in (table.head, *table.rows)]
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    yield from (head, "|" + "---|" * len(table.head), *body, "")


def _shares(head: Sequence[str]) -> list[bool]:
    """Which columns are in percent: those that say so, and the bounds that follow one."""
    said = [name.endswith(PERCENT) for name in head]
    return [
        share or (name in BOUNDS and any(said[:place]))
        for place, (name, share) in enumerate(zip(head, said, strict=True))
    ]


def _horizon(exhibit: Exhibit) -> Iterator[str]:
    first = exhibit.views[0] if exhibit.views else ""
    parts = [*(panel for panel in exhibit.panels if panel.view == first), *exhibit.matrices]
    notes = group((part for part in parts if part.note), lambda part: part.note)
    for note, same in notes.items():
        titles = "; ".join(part.title for part in same)
        yield f"- {titles}: {note}" if len(notes) > 1 else f"- {note}"
    if exhibit.data:
        yield f"- Data: {'; '.join(exhibit.data)}"
    for problem in exhibit.missing:
        yield f"- Missing: {problem}"
    yield ""


def _text(cell: Value, share: bool) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        if share:
            return f"{cell:.1f}"
        return f"{cell:.3g}" if abs(cell) < 10 else f"{cell:.1f}"  # noqa: PLR2004
    return str(cell).replace("|", "\\|")
