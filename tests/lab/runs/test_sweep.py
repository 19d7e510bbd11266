"""Sweeps: from a file to the settings of each run."""

from __future__ import annotations

from typing import Any

import pytest

from rfa.lab.runs.sweep import cells, make_sweep, settle
from rfa.lab.settings.fields import ConfigError

TINY = {"task": "tests.tiny:TASK", "corruption": "data"}
CLEAN = {"task": "tests.tiny:TASK"}
LEVELS: dict[str, Any] = {
    "x": "rho",
    "values": [0.0, 0.2],
    "seeds": [1, 2],
    "settings": TINY | {"calls": 6},
    "panels": [{"title": "a"}, {"title": "b", "nu": 0.1}],
    "lines": [{"label": "mean", "aggregator": "fedavg"}, {"label": "median"}],
}


def test_a_cell_for_each_panel_line_value_and_seed() -> None:
    found = list(cells(make_sweep("s", LEVELS)))
    assert len(found) == 2 * 2 * 2 * 2
    assert [cell.settings.seed for cell in found] == 8 * [1] + 8 * [2]
    assert {(cell.panel, cell.line, cell.value) for cell in found} == {
        (panel, line, value)
        for panel in "ab"
        for line in ("mean", "median")
        for value in (0.0, 0.2)
    }


def test_calls_are_rounds_by_the_calls_of_a_round() -> None:
    rounds = {cell.line: cell.settings.rounds for cell in cells(make_sweep("s", LEVELS))}
    assert rounds == {"mean": 6, "median": 2}
    assert settle(CLEAN | {"calls": 7, "aggregator": "rfa-one-step"}).rounds == 7
    assert settle(CLEAN | {"calls": 7, "aggregator": "rfa", "budget": 5}).rounds == 1


def test_no_corruption_is_the_same_run_whatever_the_corruption_would_be() -> None:
    plain = settle({"task": "tests.tiny:TASK"})
    assert settle(TINY | {"rho": 0.0}) == plain
    assert settle({"task": "tests.tiny:TASK", "corruption": "none", "rho": 0.25}) == plain


def test_lines_win_over_panels_and_panels_over_settings() -> None:
    sweep = make_sweep(
        "s",
        {
            "settings": CLEAN | {"learning_rate": 0.1, "nu": 0.5},
            "panels": [{"learning_rate": 0.2, "budget": 4}],
            "lines": [{"budget": 5}],
        },
    )
    (cell,) = cells(sweep)
    assert cell.settings.training.learning_rate == 0.2
    assert cell.settings.aggregator == "rfa:nu=0.5,budget=5"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"color": "red"}, "'color'"),
        ({"seeds": []}, "seeds must be a list"),
        ({"seeds": 3}, "seeds must be a list"),
        ({"seeds": ["one"]}, "seed must be a whole number"),
        ({"x": "speed"}, "x must be a setting, not 'speed'"),
        ({"x": ""}, "x and values go together"),
        ({"panels": {}}, r"panels must be tables, \[\[panels\]\]"),
        ({"lines": [{"label": "a"}, {"label": "a"}]}, "two lines have the same label"),
        ({"lines": [{"aggregator": "best"}]}, "no aggregator is called 'best'"),
        ({"measures": ["beauty"]}, "measures must be among"),
        ({"settings": {}}, "no task is given"),
        ({"seeds": [1, 1]}, "seeds has 1 twice"),
        ({"title": 5}, "title must be text, not 5"),
        ({"x": ["rho"]}, "x must be text"),
        ({"numbers": 3}, "numbers must be tables"),
        ({"numbers": [{"panel": "a"}]}, "numbers must be tables"),
        ({"settings": CLEAN}, r"rho=0\.2 needs a corruption"),
        ({"settings": TINY | {"corruption": "mine:attack"}}, "mine"),
        ({"settings": TINY | {"calls": 0}}, "calls must be a whole number from 1, not 0"),
    ],
)
def test_what_makes_no_sense_is_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_sweep("mine", LEVELS | change)


def test_a_corruption_without_a_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="corruption='data' needs a level: give rho"):
        settle(TINY)


def test_rounds_of_a_line_win_over_calls_of_all() -> None:
    lines = [{"label": "a", "rounds": 5}, {"label": "b"}]
    sweep = make_sweep("s", {"settings": CLEAN | {"calls": 60}, "lines": lines})
    assert [cell.settings.rounds for cell in cells(sweep)] == [5, 20]
    sweep = make_sweep("s", {"settings": CLEAN | {"calls": 60}, "x": "rounds", "values": [5, 10]})
    assert [cell.settings.rounds for cell in cells(sweep)] == [5, 10]
