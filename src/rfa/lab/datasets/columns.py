"""The columns of users' data: Hugging Face data sets, Parquet files, arrays, pairs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from rfa._types import Array
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.lab.datasets.dataset import DataError, damaged, lab_module

PAIR = 2
X, Y = "x", "y"
"""The names of the columns of data without column names."""


@dataclass(frozen=True)
class Columns:
    """Data by column; each is read when it is needed.

    Attributes:
        names: the names of the columns.
        read: returns the values of a column, all of the same shape.
        classes: the names of the classes of label columns, if they are known.
        named: whether the user gave the names of the columns.
    """

    names: Sequence[str]
    read: Callable[[str], Array]
    classes: Mapping[str, Sequence[str]]
    named: bool = True


def columns_of(data: Any, split: str) -> Columns:
    """Return the columns of data in any supported form.

    Args:
        data: a Hugging Face Dataset or DatasetDict, a pyarrow Table, the path of a Parquet file or
            of a folder of such files, a pair of arrays, a mapping of arrays, an object with `data`
            and `targets`, or a sequence of pairs.
        split: the part of a DatasetDict; "all" for all parts, one after another.

    Raises:
        InvalidTypeError: if the form is not supported.
        InvalidValueError: if it has no such split.
        DataError: if it cannot be read.
    """
    if isinstance(data, Mapping):
        return _of_mapping(cast("Mapping[str, Any]", data), split)
    columns = _of_named(data) or _of_unnamed(data)
    if columns is not None:
        return columns
    msg = "data must be a Hugging Face data set, the path of a Parquet file or folder, a pair of "
    msg += "arrays (x, y), a mapping of arrays, a data set of torchvision, or a list of pairs, not "
    msg += f"a {type(data).__name__}"
    raise InvalidTypeError(msg)


def _of_named(data: Any) -> Columns | None:
    if isinstance(data, str | Path):
        return _of_parquet(Path(data))
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return _of_hugging_face([data])
    if "pyarrow" in sys.modules and isinstance(data, lab_module("pyarrow").Table):
        return _of_arrow_columns(data.column_names, data.column, {})
    return None


def _of_unnamed(data: Any) -> Columns | None:
    if hasattr(data, "targets") and hasattr(data, "data"):
        return _of_arrays({X: data.data, Y: data.targets}, named=False)
    if hasattr(data, "dtype") or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        return None
    if isinstance(data, tuple) and len(cast("tuple[Any, ...]", data)) == PAIR:
        x, y = cast("tuple[Any, Any]", data)
        return _of_arrays({X: x, Y: y}, named=False)
    return _of_pairs(cast("Any", data))


def _of_mapping(data: Mapping[str, Any], split: str) -> Columns:
    if not data or not all(hasattr(part, "column_names") for part in data.values()):
        return _of_arrays(data)
    if split != "all" and split not in data:
        msg = f"split={split!r}: the data has {', '.join(data)}: name one of them, or 'all'"
        raise InvalidValueError(msg)
    return _of_hugging_face(list(data.values()) if split == "all" else [data[split]])


def _of_arrays(data: Mapping[str, Any], *, named: bool = True) -> Columns:
    return Columns(list(data), lambda name: to_array(data[name], name), {}, named)


def _of_pairs(data: Any) -> Columns:
    """Return the columns of a sequence of (x, y), reading each pair once."""
    both: tuple[list[Any], list[Any]] = [], []
    for row in range(len(data)):
        pair: Any = data[row]
        if type(pair) not in {tuple, list} or len(pair) != PAIR:
            msg = f"row {row} of the data must be a pair (x, y), not a {type(pair).__name__}"
            raise DataError(msg)
        for values, value in zip(both, pair, strict=True):
            values.append(value)
    return _of_arrays({X: both[0], Y: both[1]}, named=False)


def _of_hugging_face(parts: Sequence[Any]) -> Columns:
    arrow = lab_module("pyarrow")
    classes = {
        name: feature.names
        for name, feature in parts[0].features.items()
        if getattr(feature, "names", None)
    }

    def read(name: str) -> Any:
        tables = [part.select_columns([name]).with_format("arrow")[:] for part in parts]
        return arrow.concat_tables(tables).column(name)

    return _of_arrow_columns(parts[0].column_names, read, classes)


def _of_arrow_columns(
    names: Sequence[str], read: Callable[[str], Any], classes: Mapping[str, Sequence[str]]
) -> Columns:
    return Columns(names, lambda name: _of_arrow(read(name), name), classes)


def _of_parquet(path: Path) -> Columns:
    arrow, parquet = lab_module("pyarrow"), lab_module("pyarrow.parquet")
    parts = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not parts or not path.exists():
        msg = f"{path} is no Parquet file, nor a folder with .parquet files: check the path"
        raise DataError(msg)

    def read(part: Path, names: list[str] | None = None) -> Any:
        try:
            return parquet.read_table(part, columns=names) if names else parquet.read_schema(part)
        except (arrow.ArrowException, OSError) as error:
            raise damaged(part, "Parquet file", error) from error

    schemas = [read(part) for part in parts]
    for part, schema in zip(parts, schemas, strict=True):
        if not schema.equals(schemas[0]):
            msg = f"{part} has other columns than {parts[0].name}: put one data set into {path}"
            raise DataError(msg)
    return _of_arrow_columns(
        schemas[0].names,
        lambda name: arrow.concat_tables([read(part, [name]) for part in parts]).column(name),
        _class_names(schemas[0]),
    )


def _class_names(schema: Any) -> dict[str, Sequence[str]]:
    """Return the names of classes that Hugging Face stores in its Parquet files."""
    metadata: dict[bytes, bytes] = schema.metadata or {}
    noted: Any = json.loads(metadata.get(b"huggingface", b"{}"))
    features = noted.get("info", {}).get("features", {})
    return {name: feature["names"] for name, feature in features.items() if "names" in feature}


def _of_arrow(column: Any, name: str) -> Array:
    """Return a column of arrow as an array: numbers, texts, lists of equal length, or images."""
    types = lab_module("pyarrow").types
    values = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if hasattr(values, "storage"):  # arrays of a fixed shape, in Hugging Face's data sets
        values = values.storage
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        msg = f"column {name!r}, row {row}: there is no value: leave the row out"
        raise DataError(msg)
    if types.is_struct(values.type) or types.is_binary(values.type):
        return to_array(list(_encoded_images(values.to_pylist(), name)), name)
    if types.is_list(values.type) or types.is_large_list(values.type):
        lengths = np.diff(values.offsets.to_numpy())
        _check_same([(int(length),) for length in lengths], name)
        inner = _of_arrow(values.flatten(), name)
        return inner.reshape(len(values), -1, *inner.shape[1:]) if len(values) else inner
    if types.is_fixed_size_list(values.type):
        inner = _of_arrow(values.flatten(), name)
        return inner.reshape(len(values), values.type.list_size, *inner.shape[1:])
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _encoded_images(values: Sequence[Any], name: str) -> Iterator[Any]:
    """Yield images that Hugging Face stores as bytes of a file, or {"bytes": ..., "path": ...}."""
    pillow = lab_module("PIL.Image")
    for row, value in enumerate(values):
        image: Any = {"bytes": value} if isinstance(value, bytes) else value
        source = io.BytesIO(image["bytes"]) if image.get("bytes") else image.get("path")
        try:
            with pillow.open(source or io.BytesIO()) as opened:
                opened.load()
                yield opened
        except (OSError, SyntaxError, ValueError, AttributeError) as error:
            msg = f"column {name!r}, row {row}: it is not an image that can be decoded ({error})"
            raise DataError(msg) from error


def to_array(values: Any, name: str) -> Array:
    """Return values as one array.

    Raises:
        DataError: naming the first row whose shape differs from that of the first.
    """
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu().numpy()
    if type(values) is np.ndarray and values.dtype != object:
        return values
    rows = [_row(value) for value in values]
    if rows and hasattr(rows[0], "convert"):
        mode = "L" if rows[0].mode in {"1", "L"} else "RGB"
        rows = [np.asarray(row.convert(mode)) if hasattr(row, "convert") else row for row in rows]
    _check_same([np.shape(row) for row in rows], name)
    return np.asarray(rows)


def _row(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    if value is None or np.isscalar(value) or hasattr(value, "convert"):
        return value
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths within one example
        return np.asarray(value, object)


def _check_same(shapes: Sequence[tuple[int, ...]], name: str) -> None:
    for row, shape in enumerate(shapes):
        if shape != shapes[0]:
            msg = f"column {name!r}, row {row}: its shape is {shape}, that of row 0 {shapes[0]}: "
            msg += "bring all examples to one shape"
            raise DataError(msg)
