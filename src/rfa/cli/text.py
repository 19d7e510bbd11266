"""Text on the terminal: a label, and beside it words that wrap within the width of a line."""

from __future__ import annotations

import textwrap

NARROWEST = 20
"""The least number of characters that words get in a line."""


def labeled(label: str, text: str, column: int, width: int) -> list[str]:
    """Return lines with `label` on the left of the first, and `text` from `column` on in all.

    No word is broken, not even at a hyphen: a name stays whole. A character that a terminal cannot
    print becomes a question mark.

    >>> labeled("model", "a long text", 8, 28)
    ['model   a long text']
    """
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    lines = textwrap.wrap(
        printable,
        max(width - column, NARROWEST),
        break_long_words=False,
        break_on_hyphens=False,
    )
    first, *more = lines or [""]
    return [f"{label:<{column - 1}} {first}".rstrip(), *(" " * column + line for line in more)]
