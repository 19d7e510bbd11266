"""From runs to lines: means, bands, ends, and runs that diverged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rfa.lab.report.draw import draw
from rfa.lab.report.exhibit import (
    Exhibit,
    ExhibitError,
    Line,
    Panel,
    Spread,
    Table,
    from_json,
    load,
    save,
    to_json,
)
from rfa.lab.report.gather import Result, gather, origins
from rfa.lab.report.html import page
from rfa.lab.report.markdown import rows, section
from rfa.lab.report.style import COLORS, looks
from rfa.lab.runs.sweep import Cell, Sweep, cells, make_sweep, settle

TINY = {"task": "tests.tiny:TASK", "corruption": "data", "rounds": 20}
LEVELS = make_sweep(
    "levels",
    {
        "title": "Levels",
        "x": "rho",
        "values": [0.0, 0.2],
        "seeds": [1, 2],
        "settings": TINY,
        "panels": [{"title": "panel"}],
        "lines": [{"label": "FedAvg", "aggregator": "fedavg"}, {"label": "RFA"}],
        "numbers": [{"panel": "panel", "line": "RFA", "value": 0.2, "paper": 52.8}],
    },
)


def result(cell: Cell, heights: dict[int, float], status: str = "finished") -> Result:
    """A run with these accuracies after these rounds."""
    evaluations = [
        {
            "round": t,
            "oracle_calls": 3 * t,
            "test_accuracy": accuracy,
            "honest_accuracy": accuracy + 0.1,
            "honest_worst_tenth": accuracy / 4,
            "train_loss": 1 - accuracy,
            "worst_tenth": accuracy / 2,
        }
        for t, accuracy in heights.items()
    ]
    row: dict[str, Any] = {
        "status": status,
        "rounds": max(heights),
        "oracle_calls": 3 * max(heights),
        "task": cell.settings.task,
        "devices": 24,
        "note": "synthetic: points",
        "settings": '{"training": {"partition": "device"}}',
    }
    return Result(cell, row, evaluations)


def by_seed(sweep: Sweep, height: Callable[[Cell], dict[int, float]], **more: Any) -> list[Result]:
    return [result(cell, height(cell), **more) for cell in cells(sweep)]


def test_the_end_of_a_run_is_its_last_tenth() -> None:
    cell = next(cells(LEVELS))
    one = result(cell, {0: 0.0, 10: 0.9, 18: 0.8, 19: 0.5, 20: 0.7})
    assert one.at_end("test_accuracy") == pytest.approx(60)
    assert result(cell, {0: 0.0, 20: 0.7}).at_end("test_accuracy") == pytest.approx(70)
    lost = result(cell, {0: 0.3, 19: 0.5, 20: 0.1}, status="diverged")
    assert lost.at_end("test_accuracy") == pytest.approx(10)


def test_levels_are_means_with_bands_over_seeds() -> None:
    found = by_seed(
        LEVELS,
        lambda cell: {
            20: 0.1 * cell.settings.seed + cell.value + 0.3 * (cell.settings.aggregator == "rfa")
        },
    )
    exhibit = gather(LEVELS, found, command="rfa sweep levels.toml")
    (panel,) = exhibit.panels
    mean, median = panel.lines
    assert (mean.label, median.label) == ("FedAvg", "RFA")
    assert mean.x == [0.0, 0.2]
    assert mean.mean == pytest.approx([15, 35])
    assert mean.low == pytest.approx([10, 30])
    assert mean.high == pytest.approx([20, 40])
    assert median.mean == pytest.approx([45, 65])
    assert mean.seeds == 2
    assert mean.points[0] == pytest.approx([10, 20])
    assert mean.points[1] == pytest.approx([30, 40])
    assert panel.note == "20 rounds; 8 devices per round; seeds 1, 2"
    assert exhibit.data == ["tests.tiny:TASK, 24 devices: synthetic: points"]


def test_a_mean_over_seeds_has_its_interval_in_the_table() -> None:
    found = by_seed(LEVELS, lambda cell: {20: 0.5 + 0.01 * cell.settings.seed})
    (table,) = gather(LEVELS, found).tables
    row = dict(zip(table.head, table.rows[0], strict=True))
    assert row["accuracy (%)"] == pytest.approx(51.5)
    reach = 12.7062 * 0.5  # Student's law with one degree of freedom, deviation 0.707, two seeds
    assert [row["95 % from"], row["to"]] == pytest.approx([51.5 - reach, 51.5 + reach], abs=1e-4)


def test_what_made_the_runs_is_told() -> None:
    rows = [{"origin": '{"rfa": "1", "code": "ab"}'}] * 2 + [{"origin": None}]
    assert origins(rows) == ["2 runs: rfa 1, code ab", "1 run: unknown"]


def test_the_papers_number_stands_beside_ours() -> None:
    exhibit = gather(LEVELS, by_seed(LEVELS, lambda cell: {20: 0.5}))
    (table,) = exhibit.tables
    found = {(row[1], row[2]): row[-1] for row in table.rows}
    assert found == {
        ("FedAvg", 0.0): None,
        ("FedAvg", 0.2): None,
        ("RFA", 0.0): None,
        ("RFA", 0.2): 52.8,
    }


def test_tables_have_the_accuracy_over_honest_devices_beside_that_over_all() -> None:
    head, row = _head_and_row(LEVELS)
    assert head[3:10] == [
        "accuracy (%)",
        "lowest",
        "highest",
        "95 % from",
        "to",
        "honest devices (%)",
        "worst tenth (%)",
    ]
    assert row[3:10] == pytest.approx([50, 50, 50, 50, 50, 60, 25])


def test_personalized_runs_show_honest_devices_unless_told() -> None:
    values: dict[str, Any] = {
        "x": "rho",
        "values": [0.0, 0.2],
        "settings": TINY,
        "lines": [{"label": "one model"}, {"label": "personal", "personalize": True}],
    }
    sweep = make_sweep("s", values)
    assert list(sweep.measures) == ["honest_accuracy"]
    (panel,) = gather(sweep, by_seed(sweep, lambda _: {20: 0.5})).panels
    assert "honest devices" in panel.y_label
    assert panel.lines[0].mean == pytest.approx([60, 60])
    head, row = _head_and_row(sweep)
    assert "honest devices" in head[3]
    assert head[8] == "all devices (%)"
    assert row[3:6] + row[8:10] == pytest.approx([60, 60, 60, 50, 12.5])
    assert row[6:8] == [None, None]  # one seed has no interval
    told = make_sweep("s", values | {"measures": ["test_accuracy"]})
    assert list(told.measures) == ["test_accuracy"]
    assert list(LEVELS.measures) == ["test_accuracy"]


def _head_and_row(sweep: Sweep) -> tuple[list[str], list[Any]]:
    (table,) = gather(sweep, by_seed(sweep, lambda _: {20: 0.5})).tables
    return list(table.head), list(table.rows[0])


def test_values_that_are_no_numbers_have_names_on_the_axis() -> None:
    sweep = make_sweep(
        "s",
        {
            "x": "corruption",
            "values": ["none", "data"],
            "settings": TINY | {"rho": 0.25},
            "lines": [{"label": "RFA"}],
        },
    )
    (panel,) = gather(sweep, by_seed(sweep, lambda cell: {20: 0.5})).panels
    assert panel.ticks == ["none", "data"]
    assert panel.lines[0].x == [0.0, 1.0]


CURVES = make_sweep(
    "curves",
    {
        "seeds": [1, 2],
        "axes": ["oracle_calls", "round"],
        "measures": ["test_accuracy", "train_loss"],
        "settings": TINY | {"rho": 0.2},
        "lines": [{"label": "RFA"}],
    },
)


def test_curves_have_a_view_for_each_axis_and_measure() -> None:
    found = by_seed(CURVES, lambda cell: {0: 0.1, 10: 0.2 * cell.settings.seed})
    exhibit = gather(CURVES, found)
    assert len(exhibit.views) == 4
    first = exhibit.panels[0].lines[0]
    assert first.x == [0.0, 30.0]
    assert first.mean == pytest.approx([10, 30])
    by_round = exhibit.panels[1].lines[0]
    assert by_round.x == [0.0, 10.0]
    assert exhibit.panels[2].log_y


def test_runs_that_diverged_are_left_out_of_a_curve_and_noted() -> None:
    one, two = cells(CURVES)
    found = [result(one, {0: 0.1, 10: 0.5, 20: 0.6}), result(two, {0: 0.2}, status="diverged")]
    line = gather(CURVES, found).panels[0].lines[0]
    assert line.mean == pytest.approx([10, 50, 60])
    assert line.note == "1 of 2 diverged, left out"
    assert line.seeds == 1
    lost = [result(cell, {0: 0.1, 10: 0.0}, status="diverged") for cell in (one, two)]
    line = gather(CURVES, lost).panels[0].lines[0]
    assert (line.mean, line.note) == ([10.0, 0.0], "2 of 2 diverged")


def test_what_is_not_done_leaves_a_gap_and_nothing_leaves_no_panel() -> None:
    some = [one for one in by_seed(LEVELS, lambda cell: {20: 0.5}) if one.cell.value == 0.2]
    (panel,) = gather(LEVELS, some).panels
    assert all(line.x == [0.2] for line in panel.lines)
    assert gather(LEVELS, []).panels == []


NAN = math.nan
GAP = Line("RFA", [0, 1], [1, NAN], [0, NAN], [2, NAN])
BOUND = Line("bound", [1, 10], [1, 5], [1, 5], [1, 5], dashed=True)
BAND = Line("FedAvg", [0, 1], [1, 2], [0, 1], [2, 3], 3)
EXHIBIT = Exhibit(
    "name",
    "Title",
    "claim",
    panels=[
        Panel("p", "x", "y (%)", [GAP]),
        Panel("q", "x", "y", [BOUND], "v", log_x=True, log_y=True),
        Panel("r", "x", "y", [BAND], "v", ticks=["a", "b"]),
    ],
    tables=[Table("t", ["a", "b"], [["x|y", 1.25], [None, 3]])],
    command="rfa sweep name.toml",
    data=["synthetic: points"],
    missing=["something"],
)


def test_exhibits_survive_json(tmp_path: Path) -> None:
    save(EXHIBIT, tmp_path / "e.json")
    again = load(tmp_path / "e.json")
    assert to_json(again) == to_json(EXHIBIT)
    assert math.isnan(again.panels[0].lines[0].mean[1])
    assert from_json(to_json(EXHIBIT)).tables == EXHIBIT.tables


SHORT_ROW = '{"name": "n", "title": "t", "panels": [], "tables": [' + (
    '{"title": "t", "head": ["a", "b"], "rows": [[1]]}]}'
)
NO_TITLE = '{"name": "n", "title": null, "panels": [], "tables": []}'


@pytest.mark.parametrize(
    "text", ["", "{}", '{"panels": 3, "tables": []}', "[1]", SHORT_ROW, NO_TITLE]
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(text)
    with pytest.raises(ExhibitError, match=r"damaged\.json cannot be read"):
        load(path)


def test_pictures_are_png_and_pdf_one_for_each_view(tmp_path: Path) -> None:
    pictures = draw(EXHIBIT, tmp_path)
    assert [path.name for path in pictures] == ["name.png", "name-v.png"]
    for path in pictures:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    before = [path.read_bytes() for path in pictures]
    assert [path.read_bytes() for path in draw(EXHIBIT, tmp_path)] == before


def test_a_label_looks_the_same_in_every_picture() -> None:
    assert looks(EXHIBIT) == {"RFA": 0, "FedAvg": 1, "bound": 2}
    assert len(set(COLORS)) == len(COLORS) == 8


def test_a_bound_looks_like_what_it_bounds() -> None:
    lines = [Line(name, [0], [1], [1], [1]) for name in ("RFA", "rho = 0.1", "rho = 0.1, late")]
    lines += [Line("rho = 0.1, bound", [0], [2], [2], [2], dashed=True)]
    found = looks(Exhibit("e", "", panels=[Panel("p", "x", "y", lines)]))
    assert found["rho = 0.1, bound"] == found["rho = 0.1"]
    assert len({found["RFA"], found["rho = 0.1"], found["rho = 0.1, late"]}) == 3


def test_markdown_has_claim_pictures_numbers_and_command() -> None:
    text = "\n".join(section(EXHIBIT, ["a.png", "b.png"]))
    for part in ("## Title", "claim", "(a.png)", "(b.png)", "rfa sweep name.toml", "x\\|y", "1.25"):
        assert part in text
    assert "- Missing: something" in text


def test_a_claim_of_the_paper_is_not_shown_as_a_finding() -> None:
    paper = dataclasses.replace(EXHIBIT, paper="Figure 2", claim="RFA wins.")
    shown = "*Figure 2.* The paper's claim: RFA wins."
    assert shown in section(paper, ["a.png", "b.png"])
    assert "The paper&#x27;s claim: RFA wins." in page([paper])
    described = dataclasses.replace(paper, describes=True)
    for ours in (dataclasses.replace(paper, paper=""), described):
        assert "The paper" not in "".join(section(ours, ["a.png", "b.png"]))
        assert "The paper&#x27;s claim" not in page([ours])


def test_shares_have_one_digit_after_the_point_and_other_numbers_three_digits() -> None:
    head = ["accuracy (%)", "lowest", "highest", "95 % from", "to", "length", "paper (%)"]
    table = Table("t", head, [[0.563, 7.0, 0.783, 0.0, 1.21, 0.435, "over 40"]])
    assert "| 0.6 | 7.0 | 0.8 | 0.0 | 1.2 | 0.435 | over 40 |" in rows(table)
    error = Table("t", ["squared |error|", "highest"], [[0.152, 0.316]])
    assert list(rows(error))[::2] == ["| squared \\|error\\| | highest |", "| 0.152 | 0.316 |"]


def test_intervals_of_accuracies_are_within_0_and_100() -> None:
    found = by_seed(LEVELS, lambda cell: {20: 0.001 if cell.settings.seed == 1 else 0.999})
    (table,) = gather(LEVELS, found).tables
    told = dict(zip(table.head, table.rows[0], strict=True))
    assert (told["95 % from"], told["to"]) == (0.0, 100.0)


def test_spreads_of_nothing_are_nan() -> None:
    assert math.isnan(Spread().mean)
    assert math.isnan(Spread().low)
    assert Spread([1.0, 3.0]).mean == 2.0


def test_settle_is_what_the_lab_resolves() -> None:
    assert settle(TINY | {"rho": 0.2}).attack.corruption == "data"


def test_uploads_count_the_questions_that_a_device_answers() -> None:
    sweep = make_sweep(
        "ways",
        {
            "settings": TINY | {"rho": 0.2},
            "axes": ["uploads"],
            "lines": [{"label": "plain"}, {"label": "parts", "schedule": "sub-cohorts"}],
        },
    )
    found = by_seed(sweep, lambda _: {0: 0.1, 10: 0.5, 20: 0.6})
    plain, parts = gather(sweep, found).panels[0].lines
    assert (list(plain.x), list(parts.x)) == ([0, 30, 60], [0, 10, 20])


def test_radii_stand_side_by_side_and_zero_is_learned() -> None:
    values = {"x": "nu", "values": [1e-6, 0.0], "measures": ["certificate"]}
    sweep = make_sweep("radius", {"settings": TINY | {"rho": 0.2}, **values})
    found = by_seed(sweep, lambda _: {0: 0.1, 20: 0.6})
    known = [
        Result(one.cell, {**one.row, "certificate": share}, one.evaluations)
        for one, share in zip(found, (0.4, None), strict=True)
    ]
    (panel,) = gather(sweep, known).panels
    assert list(panel.ticks) == ["1e-06", "learned"]
    assert panel.lines[0].mean[0] == pytest.approx(40)
    assert math.isnan(panel.lines[0].mean[1])
