"""Exhibits as Markdown, for pages that are read where the code is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rfa.lab.report.exhibit import Exhibit, Table, Value


def section(exhibit: Exhibit, pictures: Sequence[str]) -> Iterator[str]:
    """An exhibit: claim, pictures, horizon, data, the table behind it, and the command.

    Args:
        exhibit: the exhibit.
        pictures: where its pictures are, one for each view.
    """
    yield f"## {exhibit.title}"
    yield ""
    where = f"*{exhibit.paper}.* " if exhibit.paper else ""
    yield f"{where}{exhibit.claim}".rstrip()
    yield ""
    for view, picture in zip(exhibit.views, pictures, strict=True):
        about = f"{exhibit.title}: {view}" if view else exhibit.title
        yield f"![{about}]({picture})"
        yield ""
    yield from _horizon(exhibit)
    for table in exhibit.all_tables:
        yield from folded(table)
    yield f"```\n{exhibit.command}\n```"
    yield ""


def folded(table: Table) -> Iterator[str]:
    """A table that is opened by a click."""
    yield f"<details><summary>{table.title}</summary>"
    yield ""
    yield from rows(table)
    yield "</details>"
    yield ""


def rows(table: Table) -> Iterator[str]:
    """The lines of a table."""
    yield "| " + " | ".join(_text(cell) for cell in table.head) + " |"
    yield "|" + "---|" * len(table.head)
    for row in table.rows:
        yield "| " + " | ".join(_text(cell) for cell in row) + " |"
    yield ""


def _horizon(exhibit: Exhibit) -> Iterator[str]:
    first = exhibit.views[0] if exhibit.views else ""
    notes: dict[str, list[str]] = {}
    for part in (*(panel for panel in exhibit.panels if panel.view == first), *exhibit.matrices):
        if part.note:
            notes.setdefault(part.note, []).append(part.title)
    for note, titles in notes.items():
        yield f"- {'; '.join(titles)}: {note}" if len(notes) > 1 else f"- {note}"
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
