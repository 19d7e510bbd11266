"""What a data set is, from its source to examples that lie grouped by device.

A `Reader` knows one public layout. It first tells which example belongs to which device (`index`),
then writes the examples that were chosen to where they shall be (`fill`), so that no more than a
part of them is ever in memory. What comes of it is a `Population`.
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
    """Which example of a source belongs to which device.

    Attributes:
        names: the names of the devices; empty if the source has no devices.
        device: for each example of the source, the place of its device in `names`, or -1 for one
            that is left out.
        y: for each example of the source, its label.
    """

    names: Sequence[str]
    device: Ints
    y: Array


class Reader(ABC):
    """One data set in the layout of its public source.

    Attributes:
        name: the name of the data set.
        source: the name by which `rfa data get` knows its source, if that is another.
        files: the files of the source, as paths under the data directory; empty for a data set
            that is made, not read. "a|b" is one file that may lie there under either name.
        shape: the shape of one example.
        dtype: the type of its numbers as they are kept.
        min_examples: devices with fewer examples are left out.
        train_share: the share of a device's examples that it trains on; the rest is for testing.
        has_devices: whether the source says which device has an example. Where it does not, a
            partition deals them out, and the names of `index` are empty.
        content: a digest of what it reads, where that is known beforehand.

    Its code, its class attributes and its own attributes decide what the cache has for it. It reads
    as a copy of itself, so what it keeps in attributes while it reads decides nothing.
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
        """The devices and labels of all examples of the source.

        Args:
            paths: for each entry of `files`, as it is written there, where the file lies.

        Raises:
            DataError: if the source is not what it should be; the message names the file.
        """

    @abstractmethod
    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Write example k of the source to `out[dest[k]]`, but leave out where `dest[k]` is -1.

        Args:
            paths: as for `index`.
            index: what `index` returned.
            dest: a place in `out` for each example of the source, or -1.
            out: an array of `shape` and `dtype`, memory-mapped.
        """


class DataError(LabError):
    """A data set is missing, or not what it should be. The message says what to do."""


@dataclass(frozen=True)
class Population:
    """Devices and their examples: device i has the rows offsets[i] to offsets[i + 1].

    Attributes:
        names: the names of the devices.
        x: the examples of all devices, memory-mapped.
        y: their labels.
        offsets: n + 1 places.
        train: how many of a device's rows it trains on; they come first, then those for testing.
        folder: the entry of the cache that has them.
    """

    names: Sequence[str]
    x: Array
    y: Array
    offsets: Ints
    train: Ints
    folder: Path

    def __len__(self) -> int:
        """The number of devices."""
        return len(self.names)


def find_file(directory: Path, entry: str) -> Path | None:
    """Where the file of an entry, which may have several names as in "a|b", lies, if it does."""
    paths = (directory / name for name in entry.split("|"))
    return next((path for path in paths if path.exists()), None)


def damaged(path: Path, kind: str, error: Exception) -> DataError:
    """The failure to read a file of some kind."""
    return DataError(f"{path} is no {kind}, or it is damaged: delete it and get it again ({error})")


def lab_module(name: str, extra: str = "lab") -> Any:
    """A module that only an extra installs, imported when it is needed.

    Raises:
        DataError: if it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        msg = f"{name} is missing: pip install 'rfa[{extra}]' ({error})"
        raise DataError(msg) from error


def check_installed(name: str, extra: str = "lab") -> None:
    """See that a module that only an extra installs is there, without importing it.

    Raises:
        DataError: if it is not installed.
    """
    if importlib.util.find_spec(name) is None:
        msg = f"{name} is missing: pip install 'rfa[{extra}]'"
        raise DataError(msg)


def parquet_batches(path: Path, columns: Sequence[str], rows: int = 4096) -> Iterator[Any]:
    """Some columns of a Parquet file, or of a folder of such files in the order of their names.

    They come as record batches of so many rows. "a.b" is the field b of the column a.

    Raises:
        DataError: naming the file, if it has no such column or cannot be read.
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
    """Which example of a Parquet file belongs to which device, and its label.

    Args:
        path: the file or folder.
        columns: the columns of the device's name and of the label.
        labels: our label for each of theirs.
        expected: what their labels should be, for a message.

    Raises:
        DataError: naming the file, if a name or label is missing or wrong.
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
    """The row, place and value of each example of a Parquet file that has a place in `dest`."""
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
