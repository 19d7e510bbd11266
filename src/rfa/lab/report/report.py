"""A folder of results: the exhibits of experiments, their pictures, and the page of all."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rfa._files import replace_file
from rfa.lab.report.draw import draw
from rfa.lab.report.exhibit import Exhibit, ExhibitError, load, save
from rfa.lab.report.html import page
from rfa.lab.runs.origin import PACKAGE, origin

EXHIBITS, PICTURES, PAGE = "exhibits", "pictures", "report.html"


def keep(exhibit: Exhibit, out: Path) -> list[Path]:
    """Save the exhibit of an experiment in a folder of results, and draw it."""
    save(exhibit, out / EXHIBITS / f"{exhibit.name}.json")
    return draw(exhibit, out / PICTURES)


def known_exhibits(out: Path) -> dict[str, Path]:
    """Return the files of exhibits, by name."""
    return {path.stem: path for path in sorted((out / EXHIBITS).glob("*.json"))}


def find_exhibits(out: Path, names: Sequence[str] | None = None) -> list[Exhibit]:
    """Return the exhibits in a folder of results, all of them or those named, in their order.

    Raises:
        ExhibitError: if one is missing, or cannot be read.
    """
    known = known_exhibits(out)
    chosen = list(known) if names is None else names
    for name in chosen:
        if name not in known:
            msg = f"nothing in {out} is called {name!r}: there is {', '.join(known) or 'nothing'}"
            raise ExhibitError(msg)
    exhibits = [load(known[name]) for name in chosen]
    return sorted(exhibits, key=lambda exhibit: (exhibit.order, exhibit.name))


def write_report(
    out: Path, exhibits: Sequence[Exhibit] | None = None, to: Path | None = None
) -> Path:
    """Write the page, by default of all exhibits in the folder, and return its path."""
    shown = find_exhibits(out) if exhibits is None else exhibits
    path = to or out / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    versions = ", ".join(f"{name} {value}" for name, value in origin().items())
    made = f"Made on {datetime.date.today():%d %B %Y} with {versions}{_commit()}."
    paper = any(exhibit.paper for exhibit in shown)
    title = "rfa: the paper, reproduced" if paper else "rfa: results"
    with replace_file(path) as file:
        file.write(page(shown, title=title, made=made).encode())
    return path


def _commit() -> str:
    """Return the commit of the package's repository, if there is one."""
    git = shutil.which("git")
    if git is None:
        return ""
    call = [git, "-C", str(PACKAGE), "log", "-1", "--format=%h", "--", "."]
    asked = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603 git itself
    return f", commit {asked.stdout.strip()}" if asked.stdout.strip() else ""
