"""Models of a run, as named arrays: their digests, files, and the step from one to the next.

>>> import numpy as np
>>> model = {"w": np.zeros(2, np.float32), "seen": np.array(3)}
>>> apply_step(model, np.array([0.5, 1.0]))
{'w': array([0.5, 1. ], dtype=float32), 'seen': array(3)}
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rfa._checks import check_regular
from rfa._files import replace_file
from rfa._types import Array, Floats32, Vector
from rfa.receipts.errors import ReceiptError
from rfa.secagg.transcript import model_digest

Model: TypeAlias = Mapping[str, Array]
ABOUT, NAMES = "about", "names"


def digest_of(model: Model) -> bytes:
    """The digest of a model."""
    parts: list[bytes | memoryview] = []
    for name, value in model.items():
        array = np.ascontiguousarray(value)
        shape = ",".join(map(str, np.shape(value)))
        parts += [name.encode(), f"{array.dtype.str} {shape}".encode(), array.tobytes()]
    return model_digest(*parts)


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is found out by others
def apply_step(model: Model, step: Vector | Floats32) -> dict[str, Array]:
    """The model after a step of the flat vector of its floats, each in its own shape and type.

    Whole numbers are not aggregated, and stay as they are.

    Raises:
        ReceiptError: if the step has another length.
    """
    after: dict[str, Array] = {}
    start = 0
    for name, old in model.items():
        if not np.issubdtype(old.dtype, np.floating):
            after[name] = old
            continue
        moved = np.asarray(step[start : start + old.size], np.float64)
        if len(moved) != old.size:
            break
        after[name] = np.asarray(old + moved.reshape(old.shape)).astype(old.dtype)
        start += old.size
    if start != len(step) or len(after) != len(model):
        msg = f"a step of {len(step)} numbers does not fit the model"
        raise ReceiptError(msg)
    return after


def write_model(path: Path, model: Model) -> None:
    """Write a model to a .npz file that `read_model` reads, all of it or nothing."""
    values: dict[str, Any] = {f"array{i}": value for i, value in enumerate(model.values())}
    with replace_file(path) as file:
        np.savez(file, about=np.array(json.dumps({NAMES: list(model)})), **values)


def read_model(path: Path) -> dict[str, Array]:
    """The model in a .npz file: one of `write_model`, a strategy's checkpoint, or named arrays.

    Raises:
        ReceiptError: if there is none in it.
    """
    try:
        check_regular(path)
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if ABOUT not in file.files:
                return {name: np.asarray(file[name]) for name in file.files}
            names = json.loads(str(file[ABOUT]))[NAMES]
            return {name: np.asarray(file[f"array{i}"]) for i, name in enumerate(names)}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        why = error.strerror if isinstance(error, OSError) else error
        msg = f"{path} is no model: give a .npz file of named arrays ({why})"
        raise ReceiptError(msg) from None
