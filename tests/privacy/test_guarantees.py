"""Every formal guarantee about privacy names tests that are there, sentence by sentence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUARDED = (
    "privacy/budget.py",
    "privacy/noisy_sum.py",
    "privacy/readers.py",
    "privacy/zcdp.py",
    "secagg/noise.py",
    "secagg/crypto/gaussian.py",
    "secagg/device/vault.py",
    "flower/privacy.py",
)
"""The files that promise something about noise and what it costs."""
PROMISE = re.compile(r"\*Formal guarantees?\*:?(.*?)(?:\n\s*\n|\Z)", re.DOTALL)
NAMED = re.compile(r"([\w/]+\.py)::(test_\w+)")


def docstrings(path: Path) -> list[str]:
    """Those of a file, of its classes and of its functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    return [found for node in nodes if (found := ast.get_docstring(node))]


def sentences(path: Path) -> list[str]:
    """What a file guarantees: each sentence ends with its tests in parentheses."""
    promises = [found for text in docstrings(path) for found in PROMISE.findall(text)]
    whole = [" ".join(promise.split()) for promise in promises]
    return [part.strip() for text in whole for part in re.split(r"(?<=\))[.;]", text) if part]


def defined_in(name: str) -> set[str]:
    """The tests in a file, wherever it is."""
    (path,) = (ROOT / "tests").glob(f"**/{name}")
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", GUARDED)
def test_each_sentence_has_its_tests(name: str) -> None:
    promised = sentences(ROOT / "src" / "rfa" / name)
    assert promised, "nothing is guaranteed"
    for sentence in promised:
        cited = NAMED.findall(sentence)
        assert re.search(r"\([^()]*::[^()]*\)$", sentence), sentence
        for file, test in cited:
            assert test in defined_in(file), (file, test)


def test_no_other_file_of_privacy_promises_unseen() -> None:
    folder = ROOT / "src" / "rfa" / "privacy"
    promising = {f"privacy/{path.name}" for path in folder.glob("*.py") if sentences(path)}
    assert promising == {name for name in GUARDED if name.startswith("privacy/")}
