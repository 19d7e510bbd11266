"""Handwritten characters by writer: FEMNIST, as the Hugging Face dataset flwrlabs/femnist has it.

A device is a writer. The 62 labels are the digits, then A to Z, then a to z. Pixels are kept as
in the source: white paper is 255, ink is 0.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rfa._types import Array, Ints
from rfa.lab.datasets.dataset import (
    DataError,
    Index,
    Reader,
    lab_module,
    parquet_index,
    parquet_values,
)

CLASSES = 62
SIDE = 28


class Emnist(Reader):
    """FEMNIST with its columns image (PNG bytes), writer_id, hsf_id and character.

    The source is one Parquet file, or a folder of that name with its parts.
    """

    name = "emnist"
    files = ("femnist.parquet",)
    version = "1"
    shape = (SIDE * SIDE,)
    dtype = "uint8"
    min_examples = 100
    train_share = 0.9

    def index(self, paths: Mapping[str, Path]) -> Index:
        """The writers and characters of all images."""
        labels = {label: label for label in range(CLASSES)}
        columns = ("writer_id", "character")
        return parquet_index(paths[self.files[0]], columns, labels, f"0 to {CLASSES - 1}")

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Decode the images that have a place."""
        del index
        path = paths[self.files[0]]
        for row, place, png in parquet_values(path, "image.bytes", dest, rows=1024):
            out[place] = _pixels(png, path, row)


def _pixels(png: bytes | None, path: Path, row: int) -> Array:
    pillow = lab_module("PIL.Image")
    try:
        with pillow.open(io.BytesIO(png or b""), formats=("PNG",)) as image:
            pixels = np.asarray(image if image.mode == "L" else image.convert("L"))
    except (OSError, SyntaxError, ValueError) as error:
        msg = f"{path}, row {row}: the image cannot be decoded: get the file anew ({error})"
        raise DataError(msg) from error
    if pixels.shape != (SIDE, SIDE):
        msg = f"{path}, row {row}: the image must be {SIDE} by {SIDE} pixels, not {pixels.shape}"
        raise DataError(msg)
    return pixels.reshape(-1)
