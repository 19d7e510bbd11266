"""The glossary is true: no term twice, and names that are there, with the meanings it says."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.website.pages import ROOT

TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
INTRO = TEXT.partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| term ")
]


def attributes() -> dict[str, set[str]]:
    """The fields, properties and methods of every class of rfa, by its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "src" / "rfa").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                for part in ast.walk(node):
                    if isinstance(part, ast.FunctionDef):
                        found[node.name].add(part.name)
                    elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        found[node.name].add(part.target.id)
                    elif isinstance(part, ast.Attribute):
                        found[node.name].add(part.attr)
    return found


def test_no_term_stands_twice() -> None:
    terms = [row[0] for row in ROWS]
    assert len(terms) > 50
    assert len(terms) == len(set(terms))


def test_names_and_letters_of_two_meanings_are_named_at_the_top() -> None:
    meanings: dict[str, set[str]] = defaultdict(set)
    for term, letters, names, _ in ROWS:
        for name in re.findall(r"`([^`]+)`", names):
            meanings[name.partition("(")[0].rpartition(".")[2].lower()].add(term)
        for letter in re.findall(r"\$[^$]+\$", letters):
            meanings[letter].add(term)
    several = {name for name, terms in meanings.items() if len(terms) > 1}
    assert several == {"rho", r"$\rho$", "budget", "weights"}
    for name in several:
        assert name in INTRO


def test_every_name_of_a_class_exists() -> None:
    known = attributes()
    cells = " ".join(row[2] for row in ROWS)
    named = re.findall(r"`([A-Z]\w+)\.(\w+)", cells)
    assert ("Median", "weights") in named
    assert [(kind, name) for kind, name in named if name not in known[kind]] == []
