"""The page of all errors, made from the classes in the sources, which are not imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from website.markdown import code, table

SOURCES = Path(__file__).parents[1] / "src" / "rfa"
ROOT = "RfaError"
INTRO = """# Errors

Generated from the code. Every error that rfa raises on purpose is an `RfaError`. Its message
names the value that was wrong and the remedy. The command line prints that message and ends
with exit code 1, or with 2 if the command line itself was wrong.

An error that is listed below another one is a special case of it: `except SecAggError` catches
all errors of the secure sum.
"""


@dataclass(frozen=True)
class ErrorClass:
    """A class of errors.

    Attributes:
        name: its name.
        module: where it is defined.
        bases: the names of the classes that it derives from.
        text: its docstring.
    """

    name: str
    module: str
    bases: tuple[str, ...]
    text: str


def find_errors(sources: Path = SOURCES) -> dict[str, ErrorClass]:
    """Every class below `RfaError` in the sources, by name."""
    classes: dict[str, ErrorClass] = {}
    for path in sorted(sources.rglob("*.py")):
        parts = path.relative_to(sources.parent).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                bases = tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases)
                text = ast.get_docstring(node) or ""
                classes[node.name] = ErrorClass(node.name, module, bases, text)
    return classes


def errors_page() -> str:
    """The page, as Markdown."""
    classes = find_errors()
    rows = _rows(classes, ROOT, 0)
    heads = ("error", "raised when", "also", "defined in")
    return INTRO + "\n" + table(heads, rows)


def _rows(classes: dict[str, ErrorClass], name: str, depth: int) -> list[tuple[str, ...]]:
    """The row of a class and those below it; below its first base alone, where it has several."""
    error = classes[name]
    others = [base for base in error.bases[1:] if base.endswith("Error")]
    indent = "&emsp;" * depth + ("└ " if depth else "")
    paragraph = error.text.split("\n\n")[0]
    rows = [
        (indent + code(name), paragraph, ", ".join(map(code, others)), code(error.module)),
    ]
    for child in sorted(classes):
        if classes[child].bases[:1] == (name,):
            rows += _rows(classes, child, depth + 1)
    return rows
