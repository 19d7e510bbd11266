"""The committed page of results has the verdicts that the judges give on the committed numbers."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from rfa.lab.paper.claims import STATEMENTS, judge
from rfa.lab.paper.numbers import adopt
from rfa.lab.paper.page import MARK, collect
from rfa.lab.paper.reproduce import all_runs, find_experiments
from rfa.lab.paper.statements import ABSENT

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "results.md"
FROZEN = "frozen cohorts"
"""A setting whose runs are not among the numbers."""
TASKS = ("emnist-linear", "emnist-linear:polarity=ink", "sent140-linear")


def printed() -> Iterator[tuple[str, str, str, str]]:
    """Yield the judged statements of the page: test, setting, verdict and numbers."""
    tested = ""
    made = PAGE.read_text(encoding="utf-8").partition(MARK)[2]
    for line in made.partition("Open, because there are no runs")[0].splitlines():
        if line.startswith("Tested: "):
            tested = line.removeprefix("Tested: ")
        elif line.startswith("| ") and not line.startswith("| setting"):
            setting, verdict, numbers = line.strip("| ").split(" | ")
            if setting != FROZEN:
                yield tested, setting, verdict, numbers


def largest_classes() -> dict[str, float]:
    """The shares of the largest classes beside the page, which are not known without data."""
    with (DOCS / "results/numbers.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["table"] == "Data sets"]
    named = {row["row"]: row["value"].split(",")[0] for row in rows if row["column"] == "data set"}
    shares = {
        named[row["row"]]: float(row["value"])
        for row in rows
        if row["column"] == "largest class (%)" and row["value"]
    }
    return {task: shares[task.partition("-")[0]] for task in TASKS}


def test_the_page_has_the_verdicts_of_the_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RFA_DATA", raising=False)
    experiments = [
        dataclasses.replace(each, without_data=True)
        for each in find_experiments([], "horizon", None)
    ]
    adopt(DOCS / "numbers/horizon", {run.run_name: run for run in all_runs(experiments)}, tmp_path)
    evidence = collect(experiments, [], tmp_path)
    evidence = dataclasses.replace(evidence, largest_class=largest_classes())
    judged = {
        (str(tested), str(setting)): (str(verdict), str(numbers))
        for _, tested, setting, verdict, numbers in judge(evidence).rows
        if not str(numbers).startswith(ABSENT)
    }
    assert judged
    assert {(tested, setting): rest for tested, setting, *rest in printed()} == {
        place: list(found) for place, found in judged.items()
    }


def test_the_page_quotes_every_statement() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [each.name for each in STATEMENTS if each.quote not in page] == []
