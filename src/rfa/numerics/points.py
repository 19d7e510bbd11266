"""The points of an aggregation, in any form of the caller, read without a copy.

`Points` are m points of d floating-point coordinates. They may come as one (m, ...) array, as a
sequence of m arrays, or as a sequence of m models, each a list, tuple or dict of arrays. numpy and
torch both work; torch is used only if the caller has imported it already.

    >>> import numpy as np
    >>> model = {"weight": np.ones((2, 2), np.float32), "batches": np.array(7)}
    >>> points = read_points([model, model, model])
    >>> points.count, points.dim
    (3, 4)
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np

from rfa._types import Array
from rfa.errors import InvalidTypeError, InvalidValueError

Rows: TypeAlias = "Array | list[Array]"
"""One array of every point, flattened: an (m, k) matrix, or m vectors of length k."""


@dataclass(frozen=True)
class Form:
    """The form of a point: how to split it into arrays, and how to restore it."""

    split: Callable[[Any], list[Any]]
    join: Callable[[list[Any]], Any]
    names: list[str]
    templates: list[Any]
    are_buffers: list[bool]
    """Which arrays are integer or boolean buffers, which are not coordinates."""


@dataclass(frozen=True)
class Points:
    """m points of d coordinates, as the arrays that the caller gave."""

    form: Form
    count: int
    segments: list[Rows]
    buffers: list[Rows]

    @property
    def widths(self) -> list[int]:
        """The number of coordinates of each segment."""
        return [segment[0].size for segment in self.segments]

    @property
    def dim(self) -> int:
        """The number of coordinates, d."""
        return sum(self.widths)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The common type of the coordinates."""
        kinds = (
            {segment.dtype} if isinstance(segment, np.ndarray) else {row.dtype for row in segment}
            for segment in self.segments
        )
        return np.result_type(*set[Any]().union(*kinds))

    def point(self, row: int, dtype: Any) -> Array:
        """Return a copy of the coordinates of a point, as a vector."""
        return np.concatenate([segment[row] for segment in self.segments], dtype=dtype)

    def matrix(self) -> Array:
        """Return the points as an (m, d) matrix that cannot be written to, in float32 or better."""
        dtype = np.result_type(self.dtype, np.float32)
        first = self.segments[0]
        if len(self.segments) == 1 and isinstance(first, np.ndarray) and first.dtype == dtype:
            matrix = first.view()
        else:
            matrix = np.stack([self.point(row, dtype) for row in range(self.count)])
        matrix.flags.writeable = False
        return matrix

    def select(self, rows: Sequence[int]) -> Points:
        """Return these points only, without a copy."""
        return replace(
            self,
            count=len(rows),
            segments=[[segment[row] for row in rows] for segment in self.segments],
            buffers=[[buffer[row] for row in rows] for buffer in self.buffers],
        )

    def flatten(self, point: Any, name: str) -> Array:
        """Return the coordinates of a point of the same form, or of a plain vector of length d."""
        if _is_array(point) and to_numpy(point, name).shape == (self.dim,):
            return _to_float(to_numpy(point, name))
        leaves = _leaves(self.form, point, name)
        pairs = zip(leaves, self.form.are_buffers, strict=True)
        return np.concatenate(
            [_to_float(leaf).reshape(-1) for leaf, is_buffer in pairs if not is_buffer]
        )

    def restore(self, read: Callable[[slice, Any], Array], buffers: Sequence[Array]) -> Any:
        """Return a point in the caller's form, with coordinates from `read(where, dtype)`."""
        ends = np.cumsum(self.widths).tolist()
        spans = iter([slice(a, b) for a, b in zip([0, *ends], ends, strict=False)])
        rest = iter(buffers)
        leaves = [
            _as_like(next(rest) if is_buffer else read(next(spans), _float_type(like)), like)
            for like, is_buffer in zip(self.form.templates, self.form.are_buffers, strict=True)
        ]
        return self.form.join(leaves)


def read_points(given: Any) -> Points:
    """Read points in any of the accepted forms.

    Raises:
        TypeError: if the points, or their numbers, have an unsupported type.
        ValueError: if there are no points or no coordinates, or if the points differ in shape.
    """
    if _is_array(given):
        return _read_array(given)
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        msg = f"points must be an array or a sequence of points, not {type(given).__name__}"
        raise InvalidTypeError(msg)
    items = cast("Sequence[Any]", given)
    if not items:
        msg = "there are no points, and so no aggregate: give one or more"
        raise InvalidValueError(msg)
    form = _form_of(items[0])
    columns = list(
        zip(*(_leaves(form, item, f"point {i}") for i, item in enumerate(items)), strict=True)
    )
    return _to_points(
        form, len(items), [[leaf.reshape(-1) for leaf in column] for column in columns]
    )


def _read_array(given: Any) -> Points:
    array = to_numpy(given, "points")
    if array.ndim < 2:  # noqa: PLR2004
        msg = (
            f"points must have one row for each point, not shape {array.shape}: "
            "give m scalars as an (m, 1) array"
        )
        raise InvalidValueError(msg)
    if not len(array):
        msg = f"there are no points in an array of shape {array.shape}"
        raise InvalidValueError(msg)
    form = replace(_form_of(given[0]), templates=[given[0]])
    matrix = _to_float(array).reshape(len(array), -1)
    return _to_points(form, len(array), [matrix])


def _to_points(form: Form, count: int, columns: Sequence[Rows]) -> Points:
    pairs = list(zip(columns, form.are_buffers, strict=True))
    points = Points(
        form,
        count,
        segments=[_floats(column) for column, is_buffer in pairs if not is_buffer],
        buffers=[column for column, is_buffer in pairs if is_buffer],
    )
    if not points.segments or not points.dim:
        msg = "the points have no floating-point coordinates to aggregate"
        raise InvalidValueError(msg)
    return points


def _floats(column: Rows) -> Rows:
    return column if isinstance(column, np.ndarray) else [_to_float(row) for row in column]


def _form_of(point: Any) -> Form:
    """Return the form of the first point, which all others must share."""
    if isinstance(point, Mapping):
        return _mapping_form(cast("Mapping[Any, Any]", point))
    if isinstance(point, list | tuple):
        items = cast("Sequence[Any]", point)
        if any(_is_array(item) for item in items):
            join = cast("Callable[[list[Any]], Any]", tuple if isinstance(point, tuple) else list)
            names = [f"array {k}" for k in range(len(items))]
            return _model_form(_split_sequence, join, names, list(items))
    return Form(lambda p: [p], lambda leaves: leaves[0], [""], [point], [False])


def _mapping_form(point: Mapping[Any, Any]) -> Form:
    keys = list(point)

    def split(other: Any) -> list[Any]:
        if not isinstance(other, Mapping):
            msg = f"is a {type(other).__name__}, where the first point is a dict"
            raise InvalidValueError(msg)
        odd = set(keys) ^ set(cast("Mapping[Any, Any]", other))
        if odd:
            msg = f"and the first point do not share the keys {sorted(map(repr, odd))}"
            raise InvalidValueError(msg)
        return [other[key] for key in keys]

    kind = OrderedDict[Any, Any] if isinstance(point, OrderedDict) else dict[Any, Any]
    names = [f"array {key!r}" for key in keys]
    return _model_form(
        split, lambda leaves: kind(zip(keys, leaves, strict=True)), names, list(point.values())
    )


def _split_sequence(point: Any) -> list[Any]:
    if not isinstance(point, list | tuple):
        msg = f"is a {type(point).__name__}, where the first point is a list of arrays"
        raise InvalidValueError(msg)
    return list(cast("Sequence[Any]", point))


def _model_form(
    split: Callable[[Any], list[Any]],
    join: Callable[[list[Any]], Any],
    names: list[str],
    templates: list[Any],
) -> Form:
    kinds = [to_numpy(like, name).dtype.kind for like, name in zip(templates, names, strict=True)]
    return Form(split, join, names, templates, [kind in "iub" for kind in kinds])


def _leaves(form: Form, point: Any, name: str) -> list[Array]:
    """Return the arrays of a point as numpy arrays, after checking that it has the form."""
    try:
        leaves = form.split(point)
    except ValueError as error:
        msg = f"{name} {error}"
        raise InvalidValueError(msg) from None
    if len(leaves) != len(form.templates):
        msg = f"{name} has {len(leaves)} arrays, where the first point has {len(form.templates)}"
        raise InvalidValueError(msg)
    arrays: list[Array] = []
    parts = zip(leaves, form.templates, form.names, form.are_buffers, strict=True)
    for leaf, like, label, is_buffer in parts:
        where = f"{name}, {label}" if label else name
        array = to_numpy(leaf, where)
        if is_buffer and array.dtype.kind == "f":
            msg = f"{where} holds {array.dtype} values, where the first point has whole numbers"
            raise InvalidValueError(msg)
        if array.shape != _shape(like):
            msg = f"{where} has shape {array.shape}, where the first point has {_shape(like)}"
            raise InvalidValueError(msg)
        arrays.append(array)
    return arrays


def _torch() -> Any:
    return sys.modules.get("torch")


def _is_tensor(value: Any) -> bool:
    torch = _torch()
    return torch is not None and isinstance(value, torch.Tensor)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or _is_tensor(value)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if _is_tensor(value) else np.shape(value)


def to_numpy(value: Any, name: str) -> Array:
    """Return a numpy view of an array or tensor; other devices and bfloat16 need a copy."""
    try:
        if _is_tensor(value):
            tensor = value.detach().cpu().resolve_conj().resolve_neg()
            value = (tensor.float() if tensor.dtype == _torch().bfloat16 else tensor).numpy()
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # the last for tensors without data
        msg = f"{name} is not an array of numbers: {error}"
        raise InvalidValueError(msg) from None
    if isinstance(value, np.ma.MaskedArray):
        msg = f"{name} is a masked array, and masked values cannot be used here: fill it first"
        raise InvalidTypeError(msg)
    if array.dtype.kind not in "fiub":
        msg = f"{name} holds {array.dtype} values, where real numbers are needed"
        raise InvalidTypeError(msg)
    return array


def _to_float(array: Array) -> Array:
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _float_type(like: Any) -> Any:
    """Return the numpy type in which a result of this kind is computed."""
    dtype = to_numpy(like, "point").dtype
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _as_like(array: Array, like: Any) -> Any:
    """Return the array in the shape and kind of `like`: numpy, or torch on the same device."""
    shaped = array.reshape(_shape(like))
    if not _is_tensor(like):
        return shaped
    dtype = like.dtype if like.is_floating_point() or array.dtype.kind != "f" else None
    return _torch().from_numpy(shaped).to(device=like.device, dtype=dtype)
