"""Tables of results: what columns hold, what is chosen, and what comes out as files and text."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.errors import InvalidValueError
from rfa.lab.errors import LabError
from rfa.lab.table import Table

ROWS: list[dict[str, Any]] = [
    {"run": "a", "round": 0, "rho": 0, "loss": 1.5, "devices": [1, 2], "good": True},
    {"run": "a", "round": 10, "rho": 0.25, "loss": None, "devices": [3], "good": False},
    {"run": "b|,\n<i>", "round": 0, "rho": 0.25, "loss": 0.5, "devices": None, "good": True},
]


def test_columns_are_arrays_of_what_they_hold() -> None:
    table = Table.from_rows(ROWS)
    assert table.columns == ("run", "round", "rho", "loss", "devices", "good")
    assert len(table) == 3
    kinds = {name: table[name].dtype for name in table.columns}
    assert kinds["round"] == np.int64
    assert kinds["rho"] == kinds["loss"] == np.float64
    assert kinds["good"] == np.bool_
    assert kinds["run"] == kinds["devices"] == np.dtype(object)
    assert math.isnan(table["loss"][1])
    assert list(table["devices"]) == [(1, 2), (3,), None]
    assert next(iter(table)) == ROWS[0] | {"rho": 0.0, "devices": (1, 2)}
    assert type(next(iter(table))["round"]) is int


def test_whole_numbers_that_are_not_complete_become_floats_and_truth_values_objects() -> None:
    table = Table.from_rows([{"n": 1, "b": True}, {"n": None, "b": None}, {}])
    assert table["n"].dtype == np.float64
    assert np.isnan(table["n"][1:]).all()
    assert list(table["b"]) == [True, None, None]
    assert Table({"n": [2**70]})["n"][0] == 2**70
    assert Table({"same": [[1, 2], [3, 4]]})["same"].shape == (2,)


def test_kinds_hold_where_no_row_tells_them() -> None:
    kinds = {"round": int, "loss": float, "run": object, "good": bool}
    empty = Table.from_rows([], kinds)
    assert len(empty) == 0
    assert list(empty) == []
    assert [empty[name].dtype for name in kinds] == [np.int64, np.float64, object, np.bool_]
    missing = Table.from_rows([{"round": 3, "more": 1}], kinds)
    assert missing.columns == tuple(kinds)
    assert math.isnan(missing["loss"][0])
    assert missing["run"][0] is None


def test_a_table_cannot_be_changed() -> None:
    column = np.array([1.0, 2.0])
    table = Table({"x": column})
    column[0] = 9
    assert table["x"][0] == 1
    with pytest.raises(ValueError, match="read-only"):
        table["x"][0] = 5
    with pytest.raises(TypeError):
        table["x"] = column  # type: ignore[index]
    with pytest.raises(AttributeError):
        table.columns = ()  # type: ignore[misc]


def test_rows_are_chosen_by_values() -> None:
    table = Table.from_rows(ROWS)
    assert list(table.where(rho=0.25, round=0)["run"]) == ["b|,\n<i>"]
    assert len(table.where()) == 3
    assert len(table.where(run="a", good=True)) == 1
    assert list(table.where(loss=None)["round"]) == [10]
    assert list(table.where(loss=math.nan)["round"]) == [10]
    assert list(table.where(devices=[1, 2])["round"]) == [0]
    assert len(table.where(devices=None)) == 1
    assert len(table.where(run="c")) == len(table.where(round="zero")) == 0
    assert table.where(run="c")["loss"].dtype == np.float64


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    table, says = Table.from_rows(ROWS), "no column is called 'speed': there are run, round"
    with pytest.raises(InvalidValueError, match=says):
        table["speed"]
    with pytest.raises(InvalidValueError, match=says):
        table.where(speed=1)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"one length, not {'a': 1, 'b': 2}"):
        Table({"a": [1], "b": [1, 2]})
    with pytest.raises(InvalidValueError, match=r"'a' must have one dimension.*\(2, 2\)"):
        Table({"a": np.zeros((2, 2))})


def test_csv_can_be_read_back(tmp_path: Path) -> None:
    Table.from_rows(ROWS).to_csv(tmp_path / "deep" / "x.csv")
    with (tmp_path / "deep" / "x.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["run"] for row in rows] == ["a", "a", "b|,\n<i>"]
    assert [row["loss"] for row in rows] == ["1.5", "", "0.5"]
    assert json.loads(rows[0]["devices"]) == [1, 2]
    assert rows[2]["devices"] == ""


def test_parquet_and_arrow_have_null_for_what_is_missing(tmp_path: Path) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    Table.from_rows(ROWS).to_parquet(tmp_path / "x.parquet")
    again = parquet.read_table(tmp_path / "x.parquet")
    assert again.to_pylist() == [row | {"rho": float(row["rho"])} for row in ROWS]
    assert str(again.schema.field("round").type) == "int64"


def test_a_data_frame_is_a_copy() -> None:
    pytest.importorskip("pandas")
    table = Table.from_rows(ROWS)
    frame = table.to_pandas()
    assert list(frame.columns) == list(table.columns)
    assert frame["loss"].isna().tolist() == [False, True, False]
    frame.loc[0, "round"] = 99
    assert table["round"][0] == 0
    assert frame.groupby("run")["round"].max().to_dict() == {"a": 99, "b|,\n<i>": 0}


@pytest.mark.parametrize(
    ("library", "use", "says"),
    [
        ("pandas", Table.to_pandas, "pip install pandas"),
        ("pyarrow", Table.to_arrow, r"pip install 'rfa\[lab\]'"),
    ],
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, library: str, use: Any, says: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(LabError, match=f"{library} is missing.*{says}"):
        use(Table.from_rows(ROWS))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match=r"x\.csv cannot be written"):
        Table.from_rows(ROWS).to_csv(tmp_path / "file" / "x.csv")


def wide(rows: int) -> Table:
    """As many columns as results have."""
    names = [f"measure_number_{k}" for k in range(12)]
    return Table.from_rows(
        {
            "run": "emnist-linear.rfa.0123456789",
            "backdoor": None,
            "round": t,
            **dict.fromkeys(names, t / 7),
        }
        for t in range(rows)
    )


@pytest.mark.parametrize("rows", [0, 1, 2, 10, 11, 500])
def test_text_fits_eighty_letters_and_tells_what_it_leaves_out(rows: int) -> None:
    lines = repr(wide(rows)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1] == f"{rows} row{'' if rows == 1 else 's'}, {15 if rows else 0} columns"
    assert len(lines) < 20


def test_text_has_the_first_and_the_last_rows() -> None:
    text = repr(wide(30))
    shown = [line.split()[0] for line in text.splitlines()[1:12]]
    assert shown == ["0", "1", "2", "3", "4", "…", "25", "26", "27", "28", "29"]
    assert "in all rows: run=emnist-li…0123456789, backdoor=-" in text
    assert "more columns: " in text
    assert "run" in repr(wide(1)).splitlines()[0]


def test_text_shows_what_is_missing_and_no_control_letters() -> None:
    text = repr(Table.from_rows(ROWS))
    assert "b|,?<i>" in text
    assert len(text.splitlines()) == 5
    assert " - " in text


def test_html_is_escaped_and_short() -> None:
    html = Table.from_rows([*ROWS] * 100)._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "<i>" not in html
    assert "&lt;i&gt;" in html
    assert html.count("<tr>") == 1 + 11
    assert "300 rows, 6 columns" in html
    named = Table({"<b>": [1]})._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "<th>&lt;b&gt;</th>" in named
