"""The code of the documentation: its blocks, and what becomes of each.

A block is run by the tests, or says why not:

    ```python            is run; all blocks of a page are one script, in the order of the page
    # mine.py            ... but one that begins with the name of a file is written to that file
    ```bash              has commands of `rfa` and `flwr run`, which are run; one that begins with
                         `openssl`, `mkdir` or `python` is run as a script of the shell
    ```toml, ```json     can be read; with the name of a file in the first line, it is written
    ```text              is output: of the block before it, whose output it must be, or of something
                         that is described around it
    <!-- not run: why -->  before a block: it is not run, and its commands are only parsed
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = {
    f"docs/{name}.md"
    for name in ("beyond-results", "benchmarks", "privacy-results", "results", "results-short")
}
"""Pages that a command writes."""
FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|json))\n")


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        language: what it is written in.
        code: what is in it.
        line: where on the page it begins.
        reason: why it is not run; None if it is.
    """

    language: str
    code: str
    line: int
    reason: str | None

    @property
    def file(self) -> str | None:
        """The file that it is written to."""
        named = FILE.match(self.code)
        return named[1] if named else None

    @property
    def commands(self) -> list[list[str]]:
        """Its commands, in words; lines that end in a backslash go on."""
        lines = self.code.replace("\\\n", " ").splitlines()
        found = [shlex.split(line, comments=True) for line in lines]
        return [words for words in found if words]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in FENCE.finditer(text):
        indent = len(match["indent"])
        code = "".join(line[indent:] or "\n" for line in match["code"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("code"))
        found.append(Block(match["language"], code, line, match["reason"]))
    return found


def own_pages() -> list[str]:
    """The pages whose blocks follow these rules."""
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    return sorted((pages | {"README.md"}) - {"docs/flower.md"} - GENERATED)


def guides() -> list[str]:
    """The guide to Flower and the pages of the examples: other tests run their Python."""
    examples = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("examples/**/README.md"))
    return ["docs/flower.md", *examples]


def same_output(shown: str, printed: str) -> bool:
    """Whether a text is what was printed: the same words, and numbers that are about the same.

    A line of three dots stands for lines that are left out.
    """
    head, dots, tail = shown.partition("...\n")
    if dots:
        lines = printed.strip().splitlines()
        kept = [*lines[: head.count("\n")], *lines[-len(tail.strip().splitlines()) :]]
        return same_output(head + tail, "\n".join(kept))
    wanted, found = _tokens(shown), _tokens(printed)
    return len(wanted) == len(found) and all(map(_alike, wanted, found))


def _tokens(text: str) -> list[str]:
    return re.findall(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?|[^\W\d_]+|[^\w\s]", text)


def _alike(wanted: str, found: str) -> bool:
    if wanted == found:
        return True
    try:
        one, other = float(wanted.replace(",", "")), float(found.replace(",", ""))
    except ValueError:
        return False
    return abs(one - other) <= max(0.05, 0.1 * abs(one))
