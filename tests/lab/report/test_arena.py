"""From made-up runs of an arena to its matrix: worst cases, ranks, marks."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from rfa.lab.report.arena import CLEAN, WORST, bouts, gather_arena, rank
from rfa.lab.report.exhibit import Exhibit, Table
from rfa.lab.report.gather import Result
from rfa.lab.report.terminal_table import backdoors, level_table, to_plain
from rfa.lab.runs.arena import arena_plan
from rfa.lab.runs.sweep import Cell, Sweep, cells, make_sweep

DEFENSES: tuple[str, ...] = ("krum", "fedavg", "rfa", "coordinate-median")
HEIGHTS = {
    "none": {"fedavg": 0.6, "rfa": 0.58, "krum": 0.5, "coordinate-median": 0.5},
    "data": {"fedavg": 0.4, "rfa": 0.45, "krum": 0.48, "coordinate-median": 0.3},
    "omniscient": {"fedavg": 0.0, "rfa": 0.35, "krum": 0.4, "coordinate-median": 0.35},
}


def a_sweep(**changes: Any) -> Sweep:
    values: dict[str, Any] = {
        "title": "Arena",
        "tasks": {"tests.tiny:TASK": "tiny"},
        "levels": [0.25],
        "attacks": ["data", "omniscient"],
        "defenses": list(DEFENSES),
        "seeds": [1, 2],
        "settings": {"rounds": 20},
    }
    return make_sweep("arena", arena_plan("arena", values | changes))


def result(cell: Cell, accuracy: float, **more: Any) -> Result:
    """A run that ends at an accuracy; the second seed a tenth higher."""
    height = accuracy + 0.1 * (cell.settings.seed - 1)
    evaluation = {"round": 20, "test_accuracy": height, "worst_tenth": 0.0, **more}
    lost = cell.settings.attack.corruption == "omniscient" and cell.line == "fedavg"
    row: dict[str, Any] = {
        "status": "diverged" if lost else "finished",
        "rounds": 20,
        "oracle_calls": 20,
        "task": cell.settings.task,
        "devices": 24,
        "note": "",
        "settings": '{"training": {"partition": "device"}}',
    }
    return Result(cell, row, [evaluation])


def shown(sweep: Sweep, heights: Mapping[str, Mapping[str, float]] = HEIGHTS) -> Exhibit:
    return gather_arena(
        sweep,
        [
            result(cell, heights[cell.value][cell.line])
            for cell in cells(sweep)
            if cell.line in heights[cell.value]
        ],
    )


def rows_of(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def test_private_defenses_come_first_and_say_so() -> None:
    (matrix,) = shown(a_sweep()).matrices
    assert matrix.columns == ["fedavg", "rfa", "krum", "coordinate-median"]
    assert matrix.groups == 2 * ["under the secure sum"] + 2 * ["see single updates"]
    assert matrix.rows == [CLEAN, "data", "omniscient", WORST]
    assert matrix.title == "tiny, level 0.25"


def test_the_worst_case_is_the_least_over_attacks_of_the_mean_over_seeds() -> None:
    (matrix,) = shown(a_sweep()).matrices
    *_, omniscient, worst = matrix.entries
    assert [entry.value for entry in omniscient] == pytest.approx([5, 40, 45, 40])
    assert [entry.value for entry in worst] == pytest.approx([5, 40, 45, 35])
    assert [entry.note for entry in worst] == ["omniscient", "omniscient", "omniscient", "data"]
    assert [entry.best for entry in worst] == [False, False, True, False]


def test_without_corruption_is_no_attack() -> None:
    heights = {**HEIGHTS, "none": dict.fromkeys(DEFENSES, 0.01)}
    (matrix,) = shown(a_sweep(), heights).matrices
    assert matrix.entries[-1][1].value == pytest.approx(40)


def test_runs_that_diverged_are_marked_where_they_count() -> None:
    (matrix,) = shown(a_sweep()).matrices
    marks = [[bool(entry.mark) for entry in row] for row in matrix.entries]
    assert marks == 2 * [4 * [False]] + 2 * [[True, False, False, False]]
    assert matrix.entries[2][0].note == "0.0 to 10.0, 2 of 2 diverged"
    assert "runs diverged" in matrix.note


def test_equals_share_a_rank() -> None:
    heights = {"a": 3.0, "b": 5.0, "c": 3.04, "d": 1.0, "e": math.nan}
    assert [rank(heights, name) for name in heights] == [2, 1, 2, 4, None]
    assert rank(heights, "d", ["a", "d"]) == 2


def test_ranks_are_told_under_each_attack_and_in_the_worst_case() -> None:
    exhibit = shown(a_sweep())
    ranks = rows_of(exhibit.tables[0])
    assert [row["attack"] for row in ranks] == [CLEAN, "data", "omniscient", WORST]
    assert [row["ahead"] for row in ranks] == ["fedavg", "krum", "krum", "krum"]
    assert [row["rank of rfa"] for row in ranks] == [
        "2 of 4 (2 of 2 private)",
        "2 of 4 (1 of 2 private)",
        "2 of 4 (1 of 2 private)",
        "2 of 4 (1 of 2 private)",
    ]
    assert "Rank in the worst case: rfa 2 of 4 (1 of 2 private)." in exhibit.matrices[0].note


def test_what_was_not_run_is_left_open_and_told() -> None:
    heights = {**HEIGHTS, "data": {"fedavg": 0.4}}
    (matrix,) = shown(a_sweep(), heights).matrices
    assert [math.isnan(entry.value) for entry in matrix.entries[1]] == [False, True, True, True]
    assert matrix.entries[-1][1].note == "omniscient, of 1 of 2 attacks"


def test_a_backdoor_has_its_own_table_where_it_was_measured() -> None:
    sweep = a_sweep()
    assert [table.title for table in shown(sweep).tables] == [
        "Who is ahead",
        "Worst cases",
        "At the end of the runs",
    ]
    results = [
        result(cell, 0.5, backdoor=0.9 if cell.value == "data" else None) for cell in cells(sweep)
    ]
    tables = {table.title: rows_of(table) for table in gather_arena(sweep, results).tables}
    (row,) = tables["How often the backdoor works (%)"]
    assert (row["attack"], row["rfa"]) == ("data", pytest.approx(90))
    cases = tables["The backdoor that works best"]
    assert [row["worst attack"] for row in cases] == 4 * ["data"]
    assert [row["success (%)"] for row in cases] == pytest.approx(4 * [90])


def spread_out(cell: Cell) -> float:
    """Seeds that differ by a point, and defenses by what `HEIGHTS` says."""
    noise = 0.01 * ((cell.settings.seed * 7 + len(cell.line)) % 3 - 1)
    return HEIGHTS[cell.value][cell.line] + noise - 0.1 * (cell.settings.seed - 1)


def test_with_seeds_enough_worst_cases_have_intervals_and_the_best_are_tested() -> None:
    sweep = a_sweep(seeds=[1, 2, 3, 4, 5])
    results = [result(cell, spread_out(cell)) for cell in cells(sweep)]
    exhibit = gather_arena(sweep, results)
    rows = rows_of(next(table for table in exhibit.tables if table.title == "Worst cases"))
    assert [row["defense"] for row in rows] == ["krum", "rfa", "coordinate-median", "fedavg"]
    assert [row["among the best"] for row in rows] == ["yes", "no", "no", "no"]
    assert [row["among the best private"] for row in rows] == [None, "yes", None, "no"]
    for row in rows:
        assert row["seeds"] == 5
        assert 0 < row["accuracy (%)"] - row["95 % from"] < 3
        assert 0 < row["to"] - row["accuracy (%)"] < 3
    worst = exhibit.matrices[0].entries[-1]
    assert [entry.best for entry in worst] == [False, False, True, False]
    assert all(", 95 % " in entry.note for entry in worst)
    assert "behind no other" in exhibit.matrices[0].note
    (bout,) = bouts(sweep, results)
    krum = next(part for part in to_plain(bout)["worst"] if part["defense"] == "krum")
    assert krum["best"] is True
    assert krum["low"] < krum["test_accuracy"] < krum["high"]
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(level_table(bout, 140))
    line = next(text for text in console.export_text().splitlines() if " krum " in text)
    assert f"{100 * krum['low']:.1f} to {100 * krum['high']:.1f}" in line


def test_with_two_seeds_there_is_no_interval_and_no_test() -> None:
    exhibit = shown(a_sweep())
    rows = rows_of(exhibit.tables[1])
    assert {row["95 % from"] for row in rows} == {row["among the best"] for row in rows} == {None}
    assert "not shown" not in exhibit.matrices[0].note


def test_tasks_are_pictures_of_their_own() -> None:
    sweep = a_sweep(tasks={"tests.tiny:TASK": "tiny", "glyphs-linear": "glyphs"})
    assert shown(sweep).views == ["tests.tiny:TASK", "glyphs-linear"]
    assert shown(a_sweep(levels=[0.1, 0.25])).views == [""]
    assert bouts(sweep, []) == []
    assert gather_arena(sweep, []).matrices == []


def test_accuracy_does_not_tell_of_a_backdoor_so_the_terminal_and_json_do() -> None:
    sweep = a_sweep(attacks=["backdoor"], defenses=["fedavg", "rfa"], seeds=[1])
    found = [
        result(cell, 0.6, backdoor=0.97 if cell.value == "backdoor" else None)
        for cell in cells(sweep)
    ]
    (bout,) = bouts(sweep, found)
    assert (
        backdoors(bout)
        == "Inputs with the trigger that fool the model: fedavg\u00a097%, rfa\u00a097%"
    )
    shares = {(run["attack"], run["defense"]): run["backdoor"] for run in to_plain(bout)["runs"]}
    assert shares["backdoor", "rfa"] == pytest.approx(0.97)
    assert shares["none", "rfa"] is None


@pytest.mark.parametrize("personalize", [False, True])
def test_honest_devices_stand_beside_all_and_first_where_models_are_personal(
    personalize: bool,
) -> None:
    sweep = a_sweep(
        attacks=["data"],
        defenses=["fedavg", "rfa"],
        seeds=[1],
        settings={"rounds": 20, "personalize": personalize},
    )
    found = [result(cell, 0.5, honest_accuracy=0.6) for cell in cells(sweep)]
    (bout,) = bouts(sweep, found)
    shown, beside = (60, 50) if personalize else (50, 60)
    assert bout.score("data", "rfa").spread.mean == pytest.approx(shown)
    assert bout.beside(WORST, "rfa") == pytest.approx(beside)
    plain = to_plain(bout)
    assert plain["measure"] == ("honest_accuracy" if personalize else "test_accuracy")
    for part in (plain["runs"][0], plain["worst"][0]):
        assert part["test_accuracy"] == pytest.approx(0.5)
        assert part["honest_accuracy"] == pytest.approx(0.6)
    (matrix,) = gather_arena(sweep, found).matrices
    assert ("honest" in matrix.label) is personalize
    other = "all devices 50.0" if personalize else "honest devices 60.0"
    assert [entry.note for entry in matrix.entries[1]] == [other, other]
    assert matrix.entries[0][0].note == ""
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(level_table(bout, 100))
    text = console.export_text()
    assert ("all" if personalize else "honest") in text.split("by")[0]
    assert f"{shown:.1f}" in text
    assert f"{beside:.1f}" in text


def test_private_is_what_the_secure_sum_takes_as_it_is_set_up() -> None:
    defenses = ["bucketing:groups=12,label=pairs", "bucketing", "rfa", "rfa-one-step", "krum"]
    sweep = a_sweep(attacks=["data"], defenses=defenses, settings={"devices_per_round": 24})
    (bout,) = bouts(sweep, [result(cell, 0.5) for cell in cells(sweep)])
    assert set(bout.private) == {"bucketing", "rfa", "rfa-one-step"}
