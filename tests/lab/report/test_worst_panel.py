"""From made-up runs of a sweep to the matrix of its worst panels."""

from __future__ import annotations

import math
from typing import Any

from rfa.lab.report.gather import Result
from rfa.lab.report.heat import heat_figure
from rfa.lab.report.worst_panel import gather_worst
from rfa.lab.runs.sweep import Cell, Sweep, cells, make_sweep

HEIGHTS = {("ipm", 1): 0.5, ("ipm", 2): 0.4, ("alie", 1): 0.6, ("alie", 2): 0.1}


def a_sweep() -> Sweep:
    lines = [{"label": "alike", "partition": "iid"}, {"label": "as it is", "partition": "device"}]
    values: dict[str, Any] = {
        "title": "Worst",
        "x": "sybils",
        "values": [1, 2],
        "seeds": [1, 2],
        "settings": {"task": "tests.tiny:TASK", "rounds": 20},
        "panels": [{"title": name, "corruption": name} for name in ("ipm", "alie")],
        "lines": lines,
    }
    return make_sweep("worst", values)


def result(cell: Cell) -> Result:
    """A run that ends lower without a partition, and a tenth higher with the second seed."""
    height = HEIGHTS[cell.panel, cell.value] + 0.1 * (cell.settings.seed - 1)
    height -= 0.05 * (cell.line == "as it is")
    row = {
        "status": "finished",
        "rounds": 20,
        "oracle_calls": 20,
        "task": cell.settings.task,
        "devices": 24,
        "note": "",
        "settings": '{"training": {"partition": "device"}}',
    }
    return Result(cell, row, [{"round": 20, "test_accuracy": height, "worst_tenth": 0.0}])


def test_the_lowest_mean_of_the_panels_and_which_it_is() -> None:
    sweep = a_sweep()
    exhibit = gather_worst(sweep, [result(cell) for cell in cells(sweep)])
    (matrix,) = exhibit.matrices
    assert (matrix.rows, matrix.columns) == (["alike", "as it is"], ["sybils = 1", "sybils = 2"])
    found = [[round(entry.value, 6) for entry in row] for row in matrix.entries]
    assert found == [[55, 15], [50, 10]]
    assert [entry.note.split(",")[0] for entry in matrix.entries[0]] == ["ipm", "alie"]
    assert "Worst of ipm, alie" in matrix.note
    assert exhibit.tables
    assert not exhibit.panels
    assert heat_figure(exhibit.matrices).axes


def test_where_nothing_was_run_nothing_is_known() -> None:
    sweep = a_sweep()
    some = [result(cell) for cell in cells(sweep) if cell.value == 1]
    (matrix,) = gather_worst(sweep, some).matrices
    assert [math.isnan(entry.value) for entry in matrix.entries[0]] == [False, True]
