"""The page of results leaves out what has too few runs, and lists statements without runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rfa.lab.paper.evidence import Evidence
from rfa.lab.paper.page import statements, write_page
from rfa.lab.paper.reproduce import PLACES
from rfa.lab.paper.scale import read_scales
from rfa.lab.paper.statements import ABSENT
from rfa.lab.report.exhibit import Exhibit, Line, Panel, Spread, Table, Value

HEAD = ["the paper", "tested", "setting", "verdict", "numbers"]


def exhibit(title: str, lines: int, missing: Sequence[str] = ()) -> Exhibit:
    drawn = [Line.over_seeds(f"line {i}", [0.0], [Spread([1.0])]) for i in range(lines)]
    return Exhibit(
        title, title, paper="Figure", panels=[Panel("p", "x", "y", drawn)], missing=missing
    )


def page_of(tmp_path: Path, shown: Sequence[Exhibit], rows: Sequence[Sequence[Value]]) -> str:
    picture = tmp_path / "some.png"
    picture.touch()
    tables = [Table("judged", HEAD, [list(row) for row in rows]), Table("numbers", ["a"], [])]
    verdicts = Exhibit("statements", "Statements", tables=tables, scale="tiny")
    write_page(tmp_path / "page.md", [(each, [picture]) for each in shown], verdicts)
    return (tmp_path / "page.md").read_text(encoding="utf-8")


def test_what_has_nothing_to_compare_is_named_and_left_out(tmp_path: Path) -> None:
    missing = ["9 of 10 runs are not done"]
    shown = [exhibit("Two", 2, missing), exhibit("One", 1, missing), exhibit("Whole", 1)]
    page = page_of(tmp_path, shown, [])
    assert "## Two" in page
    assert "## Whole" in page
    assert "## One" not in page
    assert "not done: One." in page


def test_what_lacks_the_line_in_its_title_is_named_and_left_out(tmp_path: Path) -> None:
    missing = ["3 of 9 runs are not done"]
    lacking = dataclasses.replace(exhibit("The third", 2, missing), absent=["third"])
    beside = dataclasses.replace(exhibit("Two", 2, missing), absent=["third"])
    page = page_of(tmp_path, [lacking, beside, exhibit("Whole", 1)], [])
    assert "## The third" not in page
    assert "## Two" in page
    assert "or all of the line in the title, are not done: The third (third)." in page
    table = Table("At the end", ["panel", "line", "accuracy (%)", "lowest", "paper (%)"], [
        ["p", "second", 50.0, 49.0, 52.8],
    ])  # fmt: skip
    lacking = dataclasses.replace(lacking, tables=[table])
    (scale, *_) = read_scales(PLACES[1] / "scales.toml").values()
    assert not statements(Evidence({}, {"Two": lacking}), scale).tables[1].rows


def test_statements_have_their_quote_once_and_those_without_runs_are_listed(tmp_path: Path) -> None:
    rows = [
        ["the quote", "a is ahead", "here", "confirmed", "+1"],
        ["", "a is ahead", "there", "open", f"{ABSENT}: x"],
        ["other words", "b is ahead", "there", "open", f"{ABSENT}: y"],
    ]
    page = page_of(tmp_path, [exhibit("Two", 2)], rows)
    assert page.count("the quote") == 1
    assert "| here | confirmed | +1 |" in page
    assert "- a is ahead Without runs: there.\n" in page
    assert '- b is ahead Without runs: there. The paper: "other words"' in page
    assert ABSENT not in page
