"""The names of cache entries, which depend on everything that decides their content."""

from __future__ import annotations

import glob
import importlib.metadata
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MemberDescriptorType
from typing import Any

from rfa._code import attributes_of, check_as_imported, library_of
from rfa._fingerprint import fingerprint
from rfa._sources import own_sources
from rfa.lab.datasets import arrangement, dataset, partition, partitioner
from rfa.lab.datasets.dataset import Reader
from rfa.lab.datasets.partition import ByDevice, Partition

FORMAT = "2"
_ALWAYS = tuple(module.__name__ for module in (dataset, partition, partitioner, arrangement))


@dataclass(frozen=True)
class Key:
    """The name of an entry, and a pattern that matches it and the entries that it replaces."""

    name: str
    stale: str


def key_of(reader: Reader, paths: Mapping[str, Path], partition: Partition, devices: int) -> Key:
    """Return the key of a data set with a partition.

    Its digest has two parts: the identity of the data set (the path of the source, the parameters),
    and what may change under it (the code, the state of the source). An entry replaces those with
    the same first part.

    Raises:
        PluginError: if a module of the user's was changed since it was imported.
    """
    real = {name: str(path.resolve()) for name, path in paths.items()}
    count = devices if partition.counts(reader.has_devices) else 0
    which = [real, *_parameters(reader), *_parameters(partition), count]
    state: list[Any] = [FORMAT, which, reader.content, list(_files(paths))]
    for value in (reader, partition):
        state += [_code(value), _class_attributes(value)]
    if partition.library:
        state.append(importlib.metadata.version(partition.library))
    stem = file_name(reader.name)
    if not isinstance(partition, ByDevice):
        stem += f"-{partition.kind or file_name(type(partition).__name__)}"
    where = fingerprint(which)[:8]
    return Key(f"{stem}-{where}{fingerprint(state)[:16]}", f"{glob.escape(stem)}-{where}*")


def file_name(text: str) -> str:
    """Return a text that can be the name of a file."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".") or "-"


def _parameters(value: object) -> tuple[str, dict[str, Any]]:
    """Return the class of a value, and its own attributes, without its content."""
    values = {name: each for name, each in attributes_of(value).items() if name != "content"}
    return f"{type(value).__module__}.{type(value).__qualname__}", values


def _class_attributes(value: object) -> dict[str, Any]:
    """Return the current attributes of its classes, which may differ from the code."""
    values: dict[str, Any] = {}
    for kind in reversed(type(value).__mro__[:-1]):
        values.update(vars(kind))
    code = FunctionType, classmethod, staticmethod, property, MemberDescriptorType
    return {
        name: each
        for name, each in values.items()
        if not isinstance(each, code) and not name.startswith(("__", "_abc_"))
    }


def _code(value: object) -> dict[str, Any]:
    """Return the code of its classes: our modules, the user's with their imports, or the class.

    Raises:
        PluginError: if a module of the user's was changed since it was imported.
    """
    code: dict[str, Any] = {module: _source(module) for module in _ALWAYS}
    for kind in type(value).__mro__:
        module = kind.__module__
        sources = own_sources(module)
        check_as_imported(sources)
        code |= sources
        if module.startswith("rfa."):
            code[module] = _source(module)
        elif not sources and not library_of(module):  # of a notebook or a script
            code[kind.__qualname__] = fingerprint(kind)
    return code


def _source(module: str) -> bytes:
    return Path(str(sys.modules[module].__file__)).read_bytes()


def _files(paths: Mapping[str, Path]) -> Iterator[tuple[str, int, int]]:
    for _, path in sorted(paths.items()):
        real = path.resolve()
        for part in sorted(real.iterdir()) if real.is_dir() else [real]:
            about = part.stat()
            yield str(part), about.st_size, about.st_mtime_ns
