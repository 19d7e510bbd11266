"""The pages that are made from the code: `python -m website.generated` writes them to docs/.

They are files of the repository, so that links lead to them where it is read as it is. A test and
the build of the site say when they are out of date.
"""

from __future__ import annotations

from pathlib import Path

from website.commands import commands_page
from website.errors import errors_page
from website.lab_pages import names_page, settings_page
from website.messages import messages_page

DOCS = Path(__file__).parents[1] / "docs"
NOTE = "<!-- written by `python -m website.generated` -->"
GENERATED = {
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "reference/names.md": names_page,
    "reference/errors.md": errors_page,
    "reference/wire-format.md": messages_page,
}
"""What makes each page, by where it is in docs/."""


def make(name: str) -> str:
    """A page, with a note below its title that says how to renew it."""
    title, _, rest = GENERATED[name]().partition("\n")
    return f"{title}\n\n{NOTE}\n{rest}"


def stale() -> list[str]:
    """The pages that are missing, or are not those of the code."""
    return [name for name in GENERATED if _kept(name) != make(name)]


def write() -> None:
    """Write all pages."""
    for name in GENERATED:
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(name), encoding="utf-8")


def _kept(name: str) -> str | None:
    path = DOCS / name
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    write()
