"""Statements of the paper, their tests and verdicts: how they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rfa.lab.paper.evidence import AbsentError, Evidence, Place
from rfa.lab.paper.verdicts import OPEN, Fact, Finding, conclude, told

Judge: TypeAlias = Callable[[Evidence, str], Iterable[Finding | Fact]]
POINT, HIGH = 1.0, 0.25
LINES = ("RFA", "FedAvg")
EMNIST = ("EMNIST linear", "EMNIST linear (ink 1)")
CONVNET = ("EMNIST ConvNet", "EMNIST ConvNet (ink 1)")
SENT, LSTM = ("Sent140 linear",), ("Shakespeare LSTM",)
EQUAL_ROUNDS = "Sent140 linear, equal rounds"
"""RFA has as many rounds as FedAvg there, and so three times as many calls."""
ABSENT = "there are no such runs"


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


def statement(
    quote: str, settings: tuple[str, ...], *, gated: bool = True
) -> Callable[[Judge], Statement]:
    """Make a statement of a judge, whose docstring describes the test."""

    def make(judge: Judge) -> Statement:
        name, text = getattr(judge, "__name__", ""), (judge.__doc__ or "").strip()
        return Statement(name, text, quote, settings, judge, gated)

    return make


def with_data(setting: str, level: float) -> Place:
    """Where runs with this fraction of the data poisoned are."""
    if setting == EQUAL_ROUNDS:
        return Place("comparators", f"{SENT[0]}, data", level)
    return Place("robustness", f"{setting}, data", level)


def clean(setting: str) -> Place:
    """Where runs without corruption are."""
    return with_data(setting, 0.0)


def poisoned(setting: str) -> Place:
    """Where runs with a quarter of the data poisoned are."""
    return with_data(setting, HIGH)


def judge_one(each: Statement, evidence: Evidence, setting: str) -> tuple[str, str]:
    """The verdict on a statement in one setting, and the numbers."""
    try:
        findings = list(each.judge(evidence, setting))
        why = evidence.has_learned(clean(setting)) if each.gated else ""
        reduced = evidence.reduced(clean(setting)) if each.gated else ""
    except AbsentError as error:
        return OPEN, f"{ABSENT}: {error}"
    numbers = "; ".join([reduced] * bool(reduced) + list(map(told, findings)))
    if why:
        return OPEN, f"{why}; {numbers}"
    return conclude(findings), numbers
