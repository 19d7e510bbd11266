"""A table of results: columns as numpy arrays, for scripts and notebooks.

>>> table = Table.from_rows([{"round": 0, "accuracy": 0.5}, {"round": 10, "accuracy": None}])
>>> table["accuracy"]
array([0.5, nan])
>>> [row["round"] for row in table.where(accuracy=0.5)]
[0]
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, final

import numpy as np

from rfa._files import replace_file
from rfa._types import Array
from rfa.errors import InvalidValueError
from rfa.lab.errors import LabError
from rfa.lab.table_text import as_html, as_text, is_missing

INSTALL = {"pandas": "pandas", "pyarrow": "'rfa[lab]'", "pyarrow.parquet": "'rfa[lab]'"}
"""What installs a library that only some exports need."""


@final
class Table:
    """Columns of the same length, which cannot be changed.

    Numbers are in arrays of int64 or float64 and truth values in arrays of bool; text, lists (as
    tuples) and mixed values are in arrays of objects. A value that is missing is NaN among floats
    and None among objects; whole numbers stay whole where none is missing.
    """

    __slots__ = ("_columns", "_length")

    def __init__(self, columns: Mapping[str, Any]) -> None:
        """Take the columns by name: arrays, or sequences of values.

        Raises:
            InvalidValueError: if they are not of the same length, or not of one dimension.
        """
        self._columns = {name: _column(name, values) for name, values in columns.items()}
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            msg = f"the columns of a table must be of one length, not {lengths}"
            raise InvalidValueError(msg)
        self._length = next(iter(lengths.values()), 0)

    @classmethod
    def from_rows(
        cls, rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, type] | None = None
    ) -> Table:
        """The table of some rows.

        Args:
            rows: each with its values by column; None, or no value, is missing.
            kinds: the columns, in order, and what they hold: int, float, bool, or object for all
                else. By default the columns of the rows, and what their values tell.
        """
        listed = list(rows)
        if kinds is None:
            names = dict.fromkeys(name for row in listed for name in row)
            return cls({name: [row.get(name) for row in listed] for name in names})
        columns: dict[str, Any] = {}
        for name, kind in kinds.items():
            values = [row.get(name) for row in listed]
            complete = kind is not object and all(value is not None for value in values)
            if kind is float:
                values = [math.nan if value is None else value for value in values]
            columns[name] = np.array(values, kind) if complete or kind is float else values
        return cls(columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._columns)

    def __getitem__(self, name: str) -> Array:
        """A column, read-only.

        Raises:
            InvalidValueError: if there is none of that name.
        """
        if name not in self._columns:
            msg = f"no column is called {name!r}: there are {', '.join(self._columns) or 'none'}"
            raise InvalidValueError(msg)
        return self._columns[name]

    def __len__(self) -> int:
        """The number of rows."""
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, each with its values by column."""
        columns = [cast("list[Any]", column.tolist()) for column in self._columns.values()]
        for values in zip(*columns, strict=True):
            yield dict(zip(self._columns, values, strict=True))

    def where(self, **wanted: Any) -> Table:
        """The rows that have these values in these columns; None stands for a missing value.

        Raises:
            InvalidValueError: if there is no such column.
        """
        mask = np.ones(self._length, np.bool_)
        for name, value in wanted.items():
            mask &= _matches(self[name], value)
        return Table({name: column[mask] for name, column in self._columns.items()})

    def to_pandas(self) -> Any:
        """A pandas data frame with copies of the columns.

        Raises:
            LabError: if pandas is not installed.
        """
        return _library("pandas").DataFrame(
            {name: column.copy() for name, column in self._columns.items()}
        )

    def to_arrow(self) -> Any:
        """A pyarrow table; missing values are null.

        Raises:
            LabError: if pyarrow is not installed.
        """
        arrow = _library("pyarrow")
        arrays = {
            name: arrow.array(
                column.tolist() if column.dtype == object else column, from_pandas=True
            )
            for name, column in self._columns.items()
        }
        return arrow.table(arrays)

    def to_csv(self, path: Path | str) -> None:
        """Write a CSV file: missing values are empty, lists are JSON.

        Raises:
            LabError: naming the file, if it cannot be written.
        """
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(self._columns)
        writer.writerows([_plain(value) for value in row.values()] for row in self)
        _write(Path(path), text.getvalue().encode())

    def to_parquet(self, path: Path | str) -> None:
        """Write a Parquet file; missing values are null.

        Raises:
            LabError: if pyarrow is not installed, or naming the file, if it cannot be written.
        """
        content = io.BytesIO()
        _library("pyarrow.parquet").write_table(self.to_arrow(), content)
        _write(Path(path), content.getvalue())

    def __repr__(self) -> str:
        """The first and the last rows, within 80 letters a line."""
        return as_text(self._columns, self._length)

    def _repr_html_(self) -> str:
        """The same for notebooks, with all columns."""
        return as_html(self._columns, self._length)


def _column(name: str, values: Any) -> Array:
    """Values as a column that nobody else can change."""
    given = isinstance(values, np.ndarray)
    array: Array = np.array(cast("Array", values)) if given else _array_of(list(values))
    if array.ndim != 1:
        msg = f"the column {name!r} must have one dimension, not the shape {array.shape}"
        raise InvalidValueError(msg)
    if array.dtype.kind in "US":
        array = array.astype(object)
    array.flags.writeable = False
    return array


def _array_of(values: Sequence[Any]) -> Array:
    """The array that holds such values best."""
    plain = [_python_value(value) for value in values]
    kinds: set[type] = {type(value) for value in plain}
    if kinds and kinds <= {bool}:
        return np.array(plain, np.bool_)
    if kinds and kinds <= {int} and all(abs(value) < 2**63 for value in plain):
        return np.array(plain, np.int64)
    if kinds & {int, float} and kinds <= {int, float, type(None)}:
        return np.array([math.nan if value is None else value for value in plain], np.float64)
    array = np.empty(len(plain), object)
    array[:] = [_frozen(value) for value in plain]
    return array


def _python_value(value: Any) -> Any:
    return cast("Any", value).item() if isinstance(value, np.generic) else value


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen(entry) for entry in cast("Sequence[Any]", value))
    return value


def _matches(column: Array, wanted: Any) -> Array:
    """Which values of a column are the wanted one."""
    if is_missing(wanted):
        return np.array([is_missing(value) for value in column.tolist()], np.bool_)
    frozen = _frozen(wanted)
    if column.dtype == object or isinstance(frozen, tuple):
        return np.array([value == frozen for value in column.tolist()], np.bool_)
    return column == frozen


def _plain(value: Any) -> Any:
    """A value as CSV holds it."""
    if is_missing(value):
        return ""
    return json.dumps(value) if isinstance(value, tuple) else value


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        msg = f"{name} is missing, which this needs: pip install {INSTALL[name]} ({error})"
        raise LabError(msg) from error


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            file.write(content)
    except OSError as error:
        msg = f"{path} cannot be written: {error}"
        raise LabError(msg) from None
