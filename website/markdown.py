"""Pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int | None = None) -> str:
    """A table; what would end a cell is escaped. Columns after the first `texts` are numbers."""
    left = len(heads) if texts is None else texts
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    lines = [heads, rule, *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def code(text: str) -> str:
    """A text as code."""
    return f"`{text}`"


def mark_names(html: str) -> str:
    """A page in which short names and options have the class `name`: they must not break."""
    return re.sub(
        r"<code>([^<\s]{1,32}|--[\w-]{1,24} [A-Z]+)</code>", r'<code class="name">\1</code>', html
    )


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = " ".join((text or "").strip().split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]


def _cell(text: str) -> str:
    """A text on one line, in which nothing but code may look like a border or a link."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("[default", "\\[default").replace("[x", "\\[x")
