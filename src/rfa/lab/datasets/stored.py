"""Users' examples in the cache: every process reads them by their digest."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rfa._types import Array, Ints
from rfa.lab.datasets.cache import (
    building_folder,
    cache_dir,
    check_space,
    clean,
    mark_used,
    put_entry,
)
from rfa.lab.datasets.dataset import DataError, Index, Reader
from rfa.lab.datasets.examples import Examples
from rfa.lab.datasets.keys import file_name

BLOCK = 1 << 14
_KEPT = 8


class Stored(Reader):
    """Examples that `store` put into the cache. It holds their digest, not the examples.

    Attributes:
        content: the digest.
        classes: the number of classes.
        count: the number of devices; 0 if a partition distributes the examples.
    """

    files = ()

    def __init__(
        self, name: str, examples: Examples, train_share: float, min_examples: int
    ) -> None:
        self.name, self.content = name, _digest(examples)
        self.train_share, self.min_examples = train_share, min_examples
        self.shape, self.dtype = examples.x.shape[1:], str(examples.x.dtype)
        self.classes, self.count = examples.classes, len(examples.names)
        self.has_devices = bool(examples.names)

    def index(self, paths: Mapping[str, Path]) -> Index:
        """Return the labels and devices."""
        del paths
        arrays, names = self._open()
        return Index(names, np.array(arrays["device"]), np.array(arrays["y"]))

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Copy the examples that have a place."""
        del paths, index
        x = self._open()[0]["x"]
        for start in range(0, len(dest), BLOCK):
            places = dest[start : start + BLOCK]
            out[places[places >= 0]] = x[start : start + BLOCK][places >= 0]

    def _open(self) -> tuple[dict[str, Any], list[str]]:
        entry = _entry(self.name, self.content)
        opened = _read(entry)
        if opened is None:
            msg = f"the examples of {self.name} are no longer in the cache {entry.parent}: call "
            msg += "Task.from_dataset again"
            raise DataError(msg)
        return opened


def store(name: str, examples: Examples, train_share: float, min_examples: int) -> Stored:
    """Put examples into the cache, unless they are there, and return a reader of them.

    Raises:
        DataError: if the cache cannot be written.
    """
    reader = Stored(name, examples, train_share, min_examples)
    entry = _entry(name, reader.content)
    if _read(entry) is None:
        with building_folder(entry.parent) as folder:
            check_space(name, len(examples.y), reader.shape, reader.dtype, folder)
            for part in ("x", "y", "device"):
                np.save(folder / f"{part}.npy", getattr(examples, part))
            (folder / "names.json").write_text(json.dumps(list(examples.names)), encoding="utf-8")
            put_entry(folder, entry, is_whole=lambda path: _read(path) is not None)
    clean(entry, f"{glob.escape(_stem(name))}*", keep=_KEPT)
    return reader


def _stem(name: str) -> str:
    return f"source-{file_name(name)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _entry(name: str, content: str) -> Path:
    return cache_dir() / f"{_stem(name)}{content[:16]}"


def _read(entry: Path) -> tuple[dict[str, Any], list[str]] | None:
    """Return the arrays of an entry and the names of its devices; None if they are missing."""
    try:
        names: list[str] = json.loads((entry / "names.json").read_bytes())
        arrays = {
            part: np.load(entry / f"{part}.npy", mmap_mode="r") for part in ("x", "y", "device")
        }
    except (OSError, ValueError, EOFError):
        return None
    mark_used(entry)
    return arrays, names


def _digest(examples: Examples) -> str:
    digest = hashlib.sha256(json.dumps([examples.classes, list(examples.names)]).encode())
    for array in (examples.x, examples.y, examples.device):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
