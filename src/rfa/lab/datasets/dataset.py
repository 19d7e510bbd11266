"""Data sets, from their source to examples grouped by device.

A `Reader` knows one public layout. It first returns which example belongs to which device
(`index`), then writes the chosen examples to their places (`fill`), so only a part of them is ever
in memory. The result is a `Population`.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rfa._types import Array, Ints
from rfa.lab.errors import LabError


@dataclass(frozen=True)
class Index:
    """The device and the label of each example of a source.

    Attributes:
        names: the names of the devices; empty if the source has no devices.
        device: for each example of the source, the index of its device in `names`, or -1 if it is
            left out.
        y: for each example of the source, its label.
    """

    names: Sequence[str]
    device: Ints
    y: Array


class Reader(ABC):
    """One data set in the layout of its public source.

    Attributes:
        name: the name of the data set.
        source: the name of its source for `rfa data get`, if that differs.
        files: the files of the source, as paths under the data directory; empty for a generated
            data set. "a|b" is one file that may have either name.
        shape: the shape of one example.
        dtype: the type of its numbers in the cache.
        min_examples: devices with fewer examples are left out.
        train_share: the fraction of a device's examples that it trains on; the rest is for testing.
        has_devices: whether the source says which device has an example. If it does not, a
            partition distributes them, and the names of `index` are empty.
        content: a digest of the data, if it is known beforehand.

    Its code, its class attributes and its own attributes decide the cache entry. A copy of it does
    the reading, so attributes that it sets while reading have no effect on that.
    """

    name: str
    source: str = ""
    files: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    min_examples: int
    train_share: float
    has_devices: bool = True
    content: str = ""

    @abstractmethod
    def index(self, paths: Mapping[str, Path]) -> Index:
        """Return the devices and labels of all examples of the source.

        Args:
            paths: the path of each entry of `files`.

        Raises:
            DataError: if the source is not valid; the message names the file.
        """

    @abstractmethod
    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Write example k of the source to `out[dest[k]]`, unless `dest[k]` is -1.

        Args:
            paths: as for `index`.
            index: the result of `index`.
            dest: a place in `out` for each example of the source, or -1.
            out: an array of `shape` and `dtype`, memory-mapped.
        """


class DataError(LabError):
    """A data set is missing or damaged; the message says what to do."""


@dataclass(frozen=True)
class Population:
    """Devices and their examples: device i has the rows offsets[i] to offsets[i + 1].

    Attributes:
        names: the names of the devices.
        x: the examples of all devices, memory-mapped.
        y: their labels.
        offsets: n + 1 places.
        train: the number of training rows of each device; they come before those for testing.
        folder: the cache entry that has them.
    """

    names: Sequence[str]
    x: Array
    y: Array
    offsets: Ints
    train: Ints
    folder: Path

    def __len__(self) -> int:
        """Return the number of devices."""
        return len(self.names)


def find_file(directory: Path, entry: str) -> Path | None:
    """Return the path of an entry, which may have several names as in "a|b"; None if missing."""
    paths = (directory / name for name in entry.split("|"))
    return next((path for path in paths if path.exists()), None)


def damaged(path: Path, kind: str, error: Exception) -> DataError:
    """Return the error for a file of some kind that cannot be read."""
    return DataError(f"{path} is no {kind}, or it is damaged: delete it and get it again ({error})")


def lab_module(name: str, extra: str = "lab") -> Any:
    """Return a module that only an extra installs, imported when it is needed.

    Raises:
        DataError: if it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        msg = f"{name} is missing: pip install 'rfa[{extra}]' ({error})"
        raise DataError(msg) from error


def check_installed(name: str, extra: str = "lab") -> None:
    """Check that a module of an extra is installed, without importing it.

    Raises:
        DataError: if it is not installed.
    """
    if importlib.util.find_spec(name) is None:
        msg = f"{name} is missing: pip install 'rfa[{extra}]'"
        raise DataError(msg)


def parquet_batches(path: Path, columns: Sequence[str], rows: int = 4096) -> Iterator[Any]:
    """Yield columns of a Parquet file, or of a folder of such files in the order of their names.

    They come as record batches of `rows` rows. "a.b" is the field b of the column a.

    Raises:
        DataError: if there is no such column, or it cannot be read; the message names the file.
    """
    arrow, parquet = lab_module("pyarrow"), lab_module("pyarrow.parquet")
    parts = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not parts:
        msg = f"{path} is a folder without .parquet files: put the parts of the data set there"
        raise DataError(msg)
    for part in parts:
        try:
            with parquet.ParquetFile(part) as source:
                _check_columns(part, source, columns)
                yield from source.iter_batches(batch_size=rows, columns=list(columns))
        except (arrow.ArrowException, OSError) as error:
            raise damaged(part, "Parquet file", error) from error


def _check_columns(part: Path, source: Any, columns: Sequence[str]) -> None:
    leaves: list[str] = [source.schema.column(k).path for k in range(len(source.schema))]
    for column in set(columns) - set(leaves):
        msg = f"{part} has no column {column!r}, only {leaves}: is it another data set?"
        raise DataError(msg)


def parquet_index(
    path: Path, columns: tuple[str, str], labels: Mapping[int, int], expected: str
) -> Index:
    """Return the device and the label of each example of a Parquet file.

    Args:
        path: the file or folder.
        columns: the columns of the device's name and of the label.
        labels: our label for each of theirs.
        expected: a description of their labels, for a message.

    Raises:
        DataError: if a name or label is missing or wrong; the message names the file.
    """
    places: dict[str, int] = {}
    device: list[int] = []
    y: list[int] = []
    for batch in parquet_batches(path, columns):
        names, values = (batch.column(column).to_pylist() for column in columns)
        if None in names:
            msg = f"{path} has an example without a device: delete it and get it again"
            raise DataError(msg)
        device += [places.setdefault(str(name), len(places)) for name in names]
        for row, value in enumerate(values, len(y)):
            if type(value) is not int or value not in labels:
                msg = (
                    f"{path}, row {row}: {columns[1]} must be {expected}, not {value!r}: take the "
                )
                raise DataError(msg + "training part of the data set")
        y += [labels[value] for value in values]
    return Index(list(places), np.array(device, np.int64), np.array(y, np.int64))


def parquet_values(
    path: Path, column: str, dest: Ints, rows: int = 4096
) -> Iterator[tuple[int, int, Any]]:
    """Yield the row, place and value of each example with a place in `dest`."""
    start = 0
    for batch in parquet_batches(path, [column], rows):
        name, *fields = column.split(".")
        values = batch.column(name)
        for field in fields:
            values = values.field(field)
        places = dest[start : start + len(values)]
        for k in np.flatnonzero(places >= 0).tolist():
            yield start + k, int(places[k]), values[k].as_py()
        start += len(values)
