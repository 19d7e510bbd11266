"""Exhibits as Markdown, for pages beside the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rfa.lab.report.exhibit import Exhibit, Table, Value, group


def section(exhibit: Exhibit, pictures: Sequence[str]) -> Iterator[str]:
    """Yield an exhibit: claim, pictures (one for each view), horizon, data, tables, command."""
    where = f"*{exhibit.paper}.* " if exhibit.paper else ""
    yield from (f"## {exhibit.title}", "", f"{where}{exhibit.claim}".rstrip(), "")
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
    head, *body = [f"| {' | '.join(map(_text, row))} |" for row in (table.head, *table.rows)]
    yield from (head, "|" + "---|" * len(table.head), *body, "")


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


def _text(cell: Value) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.3g}" if abs(cell) < 10 else f"{cell:.1f}"  # noqa: PLR2004
    return str(cell).replace("|", "\\|")
