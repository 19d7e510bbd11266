"""The tables on pages that come from committed numbers.

`python -m website.tables` writes them again, between marks of the pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from website import arena, horizon

ROOT = Path(__file__).parents[1]
PAGES = (
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("beyond.md", "backdoors.md", "liars.md", "results.md")),
)
TABLES: dict[str, Callable[[], str]] = {
    "worst cases on Sent140": lambda: arena.worst_table("sent140-linear"),
    "worst cases on EMNIST": lambda: arena.worst_table("emnist-linear:polarity=ink"),
    "worst cases where paper is 1": arena.polarity_table,
    "liars on Sent140": lambda: arena.liars_table("sent140-linear"),
    "liars on EMNIST": lambda: arena.liars_table("emnist-linear"),
    "backdoors against all": arena.known_backdoors_table,
    "backdoors": arena.backdoor_table,
    "accuracy under attackers who know blocks": arena.beside_table,
    "backdoors for 300 rounds": arena.long_table,
    "worst cases in short": arena.short_table,
    "the paper and ours": horizon.accuracies,
}
_MARK = re.compile(r"(<!-- table: ([\w -]+) -->\n).*?(<!-- end of the table -->)", re.DOTALL)


def renew(text: str) -> str:
    """Return a page with its tables as the numbers have them."""
    return _MARK.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renew(page.read_text(encoding="utf-8")), encoding="utf-8")
