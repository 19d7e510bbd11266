"""Examples, labels and devices from the columns of users' data, with checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rfa._types import Array, Ints
from rfa.errors import InvalidValueError
from rfa.lab.datasets.columns import Columns, X, Y, columns_of
from rfa.lab.datasets.dataset import DataError

FEWEST = 2
"""The fewest classes."""


@dataclass(frozen=True)
class Examples:
    """The examples of a data set.

    Attributes:
        x: the examples: bytes if the data has bytes, else float32.
        y: their classes, from 0 on.
        classes: the number of classes.
        names: the names of the devices; empty if there are none.
        device: for each example, the index of its device in `names`; 0 if there are none.
        labels: the label of each class, if the labels are not the numbers from 0 on.
    """

    x: Array
    y: Ints
    classes: int
    names: Sequence[str]
    device: Ints
    labels: tuple[Any, ...] = ()


def read_examples(  # noqa: PLR0913 the columns and how they are read
    data: Any,
    *,
    features: str | Sequence[str] | None = None,
    label: str = "label",
    device: str | None = None,
    classes: int = 0,
    split: str = "train",
) -> Examples:
    """Return the examples of data in any form that `columns_of` supports.

    Args:
        data: the data.
        features: the column of the examples, or several columns of numbers; the only one left by
            default.
        label: the column of the labels. Data whose columns have no names has just the two.
        device: the column of the devices, if there is one.
        classes: the number of classes; the labels are then numbers below it.
        split: the part of a DatasetDict; "all" for all parts.

    Raises:
        InvalidTypeError, InvalidValueError: if the form is not supported, or there is no such
            column.
        DataError: if a value cannot be used; the message names column and row.
    """
    columns = columns_of(data, split)
    if not columns.named:
        features, label = features or X, Y if label == "label" else label
    _check_there(columns, [label, *([device] if device else [])])
    wanted = _feature_columns(columns, features, label, device)
    _check_there(columns, wanted)
    x = _features(columns, wanted)
    names = columns.classes.get(label)
    y, count, labels = _classes(columns.read(label), label, len(names) if names else classes)
    _check_lengths({wanted[0]: x, label: y})
    if not device:
        return Examples(x, y, count, [], np.zeros(len(y), np.int64), labels)
    owners = _owners(columns.read(device), device)
    _check_lengths({label: y, device: owners})
    devices, places = np.unique(owners, return_inverse=True)
    named = [str(each) for each in devices]
    return Examples(x, y, count, named, places.astype(np.int64), labels)


def _check_there(columns: Columns, wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in columns.names:
            msg = f"the data has no column {name!r}, only {', '.join(columns.names)}: name the "
            msg += "columns by features=, label= and device="
            raise InvalidValueError(msg)


def _feature_columns(
    columns: Columns, features: str | Sequence[str] | None, label: str, device: str | None
) -> list[str]:
    if isinstance(features, str):
        return [features]
    others = [name for name in columns.names if name not in {label, device}]
    if features is None and len(others) != 1:
        msg = f"which columns are the examples? Name them by features=, of {', '.join(others)}"
        raise InvalidValueError(msg)
    return list(others if features is None else features) or [""]


def _features(columns: Columns, wanted: Sequence[str]) -> Array:
    parts = [_numbers(columns.read(name), name) for name in wanted]
    if len(parts) == 1:
        part = parts[0]
        return part if part.ndim > 1 else part[:, None]
    for name, part in zip(wanted, parts, strict=True):
        if part.ndim != 1:
            msg = f"column {name!r} has examples of shape {part.shape[1:]}: of several features, "
            msg += "each is a column of numbers"
            raise DataError(msg)
    _check_lengths(dict(zip(wanted, parts, strict=True)))
    return np.stack(parts, axis=1)


def _numbers(values: Array, name: str) -> Array:
    if not len(values):
        msg = f"column {name!r} is empty: there are no examples"
        raise DataError(msg)
    if values.dtype.kind not in "buif":
        msg = f"column {name!r} holds {_kind(values)}, no numbers: turn them into numbers first, "
        msg += "or name another column by features="
        raise DataError(msg)
    if values.dtype == np.uint8:
        return values
    with np.errstate(over="ignore"):
        kept = values.astype(np.float32)
    wrong = ~np.isfinite(kept.reshape(len(kept), -1)).all(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        msg = f"column {name!r}, row {row}: it has a NaN, or a number too large for float32: leave "
        msg += "the row out or fill it in"
        raise DataError(msg)
    return kept


def _classes(labels: Array, name: str, classes: int) -> tuple[Ints, int, tuple[Any, ...]]:
    """Return the class of each label, the number of classes, and their labels if they differ."""
    if not len(labels):
        msg = f"column {name!r} is empty: there are no examples"
        raise DataError(msg)
    if labels.ndim != 1 or labels.dtype.kind not in "buiUTO":
        shape = f" of shape {labels.shape[1:]}" if labels.ndim > 1 else ""
        msg = f"column {name!r} holds {_kind(labels)}{shape}: a label is a whole number or a text"
        msg += ": turn them into such" if labels.dtype.kind == "f" else ""
        raise DataError(msg)
    if labels.dtype.kind == "O":
        labels = _texts(labels, name)
    if classes and labels.dtype.kind in "bui":
        wrong = (labels < 0) | (labels >= classes)
        if wrong.any():
            row = int(np.argmax(wrong))
            msg = f"column {name!r}, row {row}: the label {labels[row]} is not from 0 to "
            msg += f"{classes - 1}: leave such rows out, or give another number of classes"
            raise DataError(msg)
        return labels.astype(np.int64), classes, ()
    kinds, y = np.unique(labels, return_inverse=True)
    if len(kinds) < FEWEST or (classes and len(kinds) > classes):
        wanted = f"classes={classes}" if classes else f"at least {FEWEST}"
        msg = f"column {name!r} has {len(kinds)} different labels, not {wanted}: is it the label?"
        raise DataError(msg)
    plain = labels.dtype.kind in "bui" and kinds.tolist() == list(range(len(kinds)))
    return y.astype(np.int64), classes or len(kinds), () if plain else tuple(kinds.tolist())


def _owners(values: Array, name: str) -> Array:
    if values.ndim != 1 or values.dtype.kind not in "buiUTO":
        msg = f"column {name!r} holds {_kind(values)}: a device is a whole number or a text"
        raise DataError(msg)
    return _texts(values, name) if values.dtype.kind == "O" else values


def _texts(values: Array, name: str) -> Array:
    for row, value in enumerate(values.tolist()):
        if not isinstance(value, str):
            msg = f"column {name!r}, row {row}: it is {value!r}, no text as others are"
            raise DataError(msg)
    return values.astype(np.str_)


def _check_lengths(columns: dict[str, Array]) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{length} of {name!r}" for name, length in lengths.items())
        msg = f"the columns have different lengths: {told}: give one label for each example"
        raise DataError(msg)


def _kind(values: Array) -> str:
    kinds = {"f": "floats", "U": "texts", "T": "texts", "O": "objects"}
    return kinds.get(values.dtype.kind, f"values of type {values.dtype}")
