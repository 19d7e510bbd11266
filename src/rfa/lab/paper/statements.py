"""Statements of the paper and their tests: how `claims.py` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rfa.lab.paper.evidence import Evidence, Place
from rfa.lab.paper.verdicts import Fact, Finding

Judge: TypeAlias = Callable[[Evidence, str], Iterable[Finding | Fact]]


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, and its test.

    Attributes:
        name: a short name.
        tested: the tested statement, in our words.
        quote: the paper's words.
        settings: the data and models that it is judged for, each by itself.
        judge: the findings, of evidence and a setting.
        gated: whether a model must have learned without corruption.
    """

    name: str
    tested: str
    quote: str
    settings: tuple[str, ...]
    judge: Judge
    gated: bool = True


STATEMENTS: list[Statement] = []
"""The statements, in the paper's order."""


def statement(
    quote: str, settings: tuple[str, ...], *, gated: bool = True
) -> Callable[[Judge], Judge]:
    """Register a statement; its docstring describes the test."""

    def note(judge: Judge) -> Judge:
        name, text = getattr(judge, "__name__", ""), (judge.__doc__ or "").strip()
        STATEMENTS.append(Statement(name, text, quote, settings, judge, gated))
        return judge

    return note


def clean(setting: str) -> Place:
    """Where runs without corruption are."""
    return Place("robustness", f"{setting}, data", 0.0)
