"""The names of the cache's entries, made of all that decides what is in them."""

from __future__ import annotations

import glob
import importlib.metadata
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MemberDescriptorType
from typing import Any, cast

from rfa._fingerprint import fingerprint
from rfa.lab.datasets import arrangement, dataset, partition
from rfa.lab.datasets.dataset import Reader
from rfa.lab.datasets.partition import ByDevice, Partition

FORMAT = "2"
_ALWAYS = (dataset, partition, arrangement)


@dataclass(frozen=True)
class Key:
    """The name of an entry, and a pattern for its name and those of what it replaces."""

    name: str
    stale: str


def key_of(reader: Reader, paths: Mapping[str, Path], partition: Partition, devices: int) -> Key:
    """The key of a data set that is dealt out in some way.

    Its digest has two parts: which data set it is (where the source lies, the parameters), and what
    may change beneath it (the code, the state of the source). An entry replaces those that differ
    from it in the second part alone.
    """
    real = {name: str(path.resolve()) for name, path in paths.items()}
    count = devices if partition.counts(reader.has_devices) else 0
    which = [real, *_parameters(reader), *_parameters(partition), count]
    state = [FORMAT, fingerprint(reader), fingerprint(partition), list(_files(paths))]
    state += [_class_attributes(reader), _class_attributes(partition)]
    state += sorted(_our_sources(reader, partition).items())
    if partition.library:
        state.append(importlib.metadata.version(partition.library))
    stem = file_name(reader.name)
    if not isinstance(partition, ByDevice):
        stem += f"-{partition.kind or file_name(type(partition).__name__)}"
    where = fingerprint(which)[:8]
    return Key(f"{stem}-{where}{fingerprint(state)[:16]}", f"{glob.escape(stem)}-{where}*")


def file_name(text: str) -> str:
    """A text that can be the name of a file."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".") or "-"


def _parameters(value: object) -> tuple[str, dict[str, Any]]:
    """The class of a value, and what it has itself, whatever its content."""
    values = {name: each for name, each in attributes_of(value).items() if name != "content"}
    return f"{type(value).__module__}.{type(value).__qualname__}", values


def _class_attributes(value: object) -> dict[str, Any]:
    """What its classes have, as it is now: the code may have been another."""
    values: dict[str, Any] = {}
    for kind in reversed(type(value).__mro__[:-1]):
        values.update(vars(kind))
    code = FunctionType, classmethod, staticmethod, property, MemberDescriptorType
    return {
        name: each
        for name, each in values.items()
        if not isinstance(each, code) and not name.startswith(("__", "_abc_"))
    }


def attributes_of(value: object) -> dict[str, Any]:
    """What a value has itself, in slots too."""
    state: Any = object.__getstate__(value)  # not what its class would have in a pickle
    parts = cast("tuple[Any, ...]", state if isinstance(state, tuple) else (state,))
    return {name: each for part in parts if part for name, each in part.items()}


def _our_sources(reader: Reader, partition: Partition) -> dict[str, bytes]:
    """The sources of our modules that make the two what they are: a fingerprint only names them."""
    kinds = type(reader).__mro__ + type(partition).__mro__
    names = {kind.__module__ for kind in kinds} | {module.__name__ for module in _ALWAYS}
    files = {name: sys.modules[name].__file__ for name in names if name.startswith("rfa.")}
    return {name: Path(file).read_bytes() for name, file in files.items() if file}


def _files(paths: Mapping[str, Path]) -> Iterator[tuple[str, int, int]]:
    for _, path in sorted(paths.items()):
        real = path.resolve()
        for part in sorted(real.iterdir()) if real.is_dir() else [real]:
            about = part.stat()
            yield str(part), about.st_size, about.st_mtime_ns
