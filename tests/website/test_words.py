"""Pages and docstrings are in plain English: some phrases have a plainer one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.website.pages import GENERATED, ROOT, guides, own_pages

BANNED = {
    r"\bso many\b": "name the number, or 'that many'",
    r"\bamid\b": "among, between",
    r"\btells? on\b": "reveals",
    r"\btold on\b": "revealed",
    r"\bfor ever\b": "permanently",
    r"\b[Ww]hat is (?![^.!?]*\?)": "name the thing: 'values that are not finite'",
    r"\bspells? (?:\w+ )+off\b": "turns off",
    r"\blest\b": "so that ... not",
    r"\bby another way\b": "through another channel",
    r"\bin earnest\b": "real",
    r"\bcome to nothing\b": "give no result",
    r"\banew\b": "again, or: in each round",
    r"\b(?:inside|outside) of\b": "inside, outside",
    r"\b(?:devices|nodes|sums?|times|once|calls|seconds|examples|bytes|ms|MB) "
    r"a (?:round|run|query|device|worker)\b(?! \w*s\b)": "per round, per device",
}
OTHERS = [*sorted(GENERATED), "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
PAGES = [*own_pages(), *guides()]


@pytest.mark.parametrize("page", [*PAGES, *OTHERS])
def test_a_page_is_in_plain_english(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    check(page, prose)


def test_docstrings_are_in_plain_english() -> None:
    files = sorted((ROOT / "src/rfa").rglob("*.py"))
    assert files
    for file in files:
        for text in docstrings(ast.parse(file.read_text(encoding="utf-8"))):
            check(str(file.relative_to(ROOT)), re.sub(r"`[^`]*`", "", text))


def docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of modules, classes, functions and attributes: texts that stand alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def check(where: str, prose: str) -> None:
    for phrase, remedy in BANNED.items():
        found = re.search(phrase, prose)
        assert not found, f"{where}: {prose[found.start() - 40 : found.end() + 30]!r}: {remedy}"
