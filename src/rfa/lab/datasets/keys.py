"""The names of the cache's entries, made of all that decides what is in them."""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from rfa._fingerprint import fingerprint, own_sources
from rfa.lab.datasets import arrangement, dataset, partition
from rfa.lab.datasets.dataset import Reader
from rfa.lab.datasets.partition import ByDevice, ByPartitioner, Partition

FORMAT = "2"
_OURS = (dataset, partition, arrangement)


@dataclass(frozen=True)
class Key:
    """The name of an entry, and a pattern for its name and those of what it replaces."""

    name: str
    stale: str


def key_of(reader: Reader, paths: Mapping[str, Path], partition: Partition, devices: int) -> Key:
    """The key of a data set that is dealt out in some way.

    Its digest has two parts: which data set it is (where the source lies, all parameters), and what
    may change beneath it (the code, the state of the source). An entry replaces those that differ
    from it in the second part alone.
    """
    real = {name: str(path.resolve()) for name, path in paths.items()}
    count = devices if partition.counts(reader.has_devices) else 0
    kinds = [_name(type(reader)), _name(type(partition))]
    which = [kinds, real, parameters(reader), parameters(partition), count]
    state = [FORMAT, sorted(_sources(reader, partition).items()), list(_files(paths))]
    if partition.library:
        state.append(importlib.metadata.version(partition.library))
    stem = file_name(reader.name)
    if not isinstance(partition, ByDevice):
        stem += f"-{partition.kind or file_name(type(partition).__name__)}"
    where = _digest(which)[:8]
    return Key(f"{stem}-{where}{_digest(state)[:16]}", f"{glob.escape(stem)}-{where}*")


def file_name(text: str) -> str:
    """A text that can be the name of a file."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".") or "-"


def parameters(value: object) -> dict[str, Any]:
    """The attributes of a value, its own and those of its classes, but for methods."""
    values: dict[str, Any] = {}
    for kind in reversed(type(value).__mro__[:-1]):
        values.update(vars(kind))
    values.update(getattr(value, "__dict__", {}))
    code = FunctionType, classmethod, staticmethod, property
    return {
        name: each
        for name, each in sorted(values.items())
        if not isinstance(each, code) and not name.startswith(("__", "_abc_"))
    }


def _sources(reader: Reader, partition: Partition) -> dict[str, bytes]:
    """The sources of the modules that make the two what they are, ours and the user's own."""
    values: list[object] = [reader, partition]
    if isinstance(partition, ByPartitioner):
        values.append(partition.partitioner)
    modules = [sys.modules.get(kind.__module__) for value in values for kind in type(value).__mro__]
    sources: dict[str, bytes] = {}
    for module in {*modules, *_OURS} - {None}:
        sources |= _source(module)
    return sources


def _source(module: ModuleType | None) -> dict[str, bytes]:
    if module is None:
        return {}
    file = module.__file__ if module.__name__.startswith("rfa.") else None
    return {module.__name__: Path(file).read_bytes()} if file else own_sources(module)


def _files(paths: Mapping[str, Path]) -> Iterator[tuple[str, int, int]]:
    for _, path in sorted(paths.items()):
        real = path.resolve()
        for part in sorted(real.iterdir()) if real.is_dir() else [real]:
            about = part.stat()
            yield str(part), about.st_size, about.st_mtime_ns


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _digest(content: Any) -> str:
    return hashlib.sha256(fingerprint(content).encode()).hexdigest()
