"""Links from docs/ to the rest of the repository, and back.

On the site docs/ is the root, and what lies elsewhere keeps its path: docs/lab.md is lab.md, and
examples/README.md is examples/README.md. In the repository links go from file to file, as people
who read it there expect.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Set
from pathlib import Path

LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
FENCE = re.compile(r"^( *)(```+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)


def linked_outside(root: Path, pages: Set[str]) -> set[str]:
    """The files outside of docs/ that pages link to, and pages among these in turn."""
    found: set[str] = set()
    left = sorted(pages)
    while left:
        home = left.pop()
        text = (root / home).read_text(encoding="utf-8") if (root / home).is_file() else ""
        for path in targets(root, text, home):
            if not path.startswith("docs/") and (root / path).is_file() and path not in found:
                found.add(path)
                left += [path] * path.endswith(".md")
    return found


def targets(root: Path, markdown: str, home: str) -> list[str]:
    """The paths in the repository that a file links to; of a folder, its README."""
    return [_resolve(root, link[1], home) for link in LINK.findall(FENCE.sub("", markdown))]


def rewrite(root: Path, markdown: str, home: str) -> str:
    """The markdown of a file with links as they are on the site."""

    def lead(match: re.Match[str]) -> str:
        target = _resolve(root, match[2], home)
        here = posixpath.dirname(_on_site(home))
        return match[1] + posixpath.relpath(_on_site(target), here or ".")

    return _outside_of_fences(markdown, lambda prose: LINK.sub(lead, prose))


def _resolve(root: Path, link: str, home: str) -> str:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(home), link))
    return f"{path}/README.md" if (root / path).is_dir() else path


def _on_site(path: str) -> str:
    return path.removeprefix("docs/")


def _outside_of_fences(markdown: str, change: Callable[[str], str]) -> str:
    parts: list[str] = []
    at = 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(markdown[at:])])
