"""The folders of data sets, and the cache of data arranged by device, as memory-mapped arrays.

An entry of the cache is a folder whose name depends on everything that it was made from (`key_of`),
so a changed source, parameter or code gives another entry. A complete entry is put in place by one
rename: every entry that exists is usable, and two processes that build it at the same time do not
disturb each other.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np

from rfa._code import attributes_of
from rfa.lab.datasets.arrangement import Arrangement, arrange
from rfa.lab.datasets.dataset import DataError, Index, Population, Reader, find_file
from rfa.lab.datasets.keys import key_of
from rfa.lab.datasets.partition import Partition
from rfa.lab.datasets.partition_registry import find_partition

Progress: TypeAlias = Callable[[str], None]

_DAY = 24 * 60 * 60
_ATTEMPTS = 2
_KEPT = 1


def data_dir(given: Path | None) -> Path | None:
    """Return the directory with the sources: the given one, else RFA_DATA, else None."""
    named = os.environ.get("RFA_DATA")
    return given or (Path(named).expanduser() if named else None)


def cache_dir() -> Path:
    """Return the directory of the cache: RFA_CACHE, else "rfa" in the user's cache directory."""
    if named := os.environ.get("RFA_CACHE"):
        return Path(named).expanduser()
    usual = {"darwin": "~/Library/Caches", "win32": "~/AppData/Local"}.get(sys.platform, "~/.cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or usual).expanduser() / "rfa"


def locate(reader: Reader, directory: Path | None) -> dict[str, Path]:
    """Return the path of each entry of the reader's `files`.

    Raises:
        DataError: if one is missing; the message names it, and what to do.
    """
    if not reader.files:
        return {}
    source = reader.source or reader.name
    remedy = f"name the directory by --data-dir or RFA_DATA, or run: rfa data get {source}"
    if directory is None:
        msg = f"no data directory is set, so {_list(reader.files)} cannot be found: {remedy}"
        raise DataError(msg)
    paths = {entry: find_file(directory, entry) for entry in reader.files}
    missing = [entry for entry, path in paths.items() if path is None]
    if missing:
        msg = f"{directory} has no {_list(missing)}: {remedy}"
        raise DataError(msg)
    return {entry: path for entry, path in paths.items() if path is not None}


def load(  # noqa: PLR0913 what decides the data, and how it is put there
    reader: Reader,
    directory: Path | None = None,
    *,
    partition: str | Partition = "device",
    devices: int = 0,
    rebuild: bool = False,
    on_progress: Progress | None = None,
) -> Population:
    """Return the devices of a data set, from the cache, which is built if needed.

    Args:
        reader: the data set.
        directory: the folder of its source; by default RFA_DATA.
        partition: how its examples are distributed to devices: a text or a value.
        devices: the number of devices, for a partition that takes one.
        rebuild: build the entry again. Processes that use the old entry keep it.
        on_progress: is called with the progress while the cache is built.

    Raises:
        DataError: if the source is missing or wrong, or the cache cannot be written.
        InvalidValueError: if the examples cannot be distributed in this way.
    """
    partition = find_partition(partition)
    paths = locate(reader, data_dir(directory))
    key = key_of(reader, paths, partition, devices)
    entry, tell = cache_dir() / key.name, on_progress or _silent
    population = None if rebuild else open_population(entry)
    for attempt in range(_ATTEMPTS):
        if population is None:
            with building_folder(entry.parent) as folder:
                _build(_twin(reader), paths, (partition, devices), folder, tell)
                put_entry(folder, entry, _never if rebuild and not attempt else _is_whole)
            clean(entry, key.stale, keep=_KEPT)
            population = open_population(entry)
    if population is not None:
        return population
    msg = f"{entry} cannot be read although it was just written: set RFA_CACHE to another directory"
    raise DataError(msg)


def _is_whole(entry: Path) -> bool:
    return open_population(entry) is not None


def _never(entry: Path) -> bool:
    del entry
    return False


def open_population(entry: Path) -> Population | None:
    """Return the population of an entry; None if it is missing or incomplete."""
    try:
        names: list[str] = json.loads((entry / "names.json").read_bytes())
        x, y = (np.load(entry / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
        offsets, train = (np.load(entry / f"{name}.npy") for name in ("offsets", "train"))
    except (OSError, ValueError, EOFError):
        return None
    sizes = np.diff(offsets)
    complete = (
        len(names) == len(sizes) == len(train)
        and len(x) == offsets[-1]
        and y.shape == (offsets[-1],)
        and bool(((train > 0) & (train < sizes)).all())
    )
    if not complete:
        return None
    mark_used(entry)
    return Population(names, x, y, offsets, train, entry)


def mark_used(entry: Path) -> None:
    """Record that an entry is in use: the entries used last are kept longest."""
    with suppress(OSError):  # the cache may be read-only
        os.utime(entry)


def _silent(message: str) -> None:
    del message


def _list(entries: Sequence[str]) -> str:
    return ", ".join(entry.replace("|", " or ") for entry in entries)


def _twin(reader: Reader) -> Reader:
    """Return a copy of a reader, whose changes do not change the key of the original."""
    twin = object.__new__(type(reader))
    for name, value in attributes_of(reader).items():
        object.__setattr__(twin, name, value)
    return twin


def _build(
    reader: Reader,
    paths: Mapping[str, Path],
    dealt: tuple[Partition, int],
    folder: Path,
    tell: Progress,
) -> None:
    tell(f"{reader.name}: looking for the devices")
    index = reader.index(paths)
    plan = arrange(reader, index, *dealt)
    tell(f"{reader.name}: writing {plan.total} examples of {len(plan.names)} devices")
    check_space(reader.name, plan.total, reader.shape, reader.dtype, folder)
    _write(reader, paths, index, plan, folder)
    tell(f"{reader.name}: kept in {folder.parent}")


def _write(
    reader: Reader, paths: Mapping[str, Path], index: Index, plan: Arrangement, folder: Path
) -> None:
    shape = (plan.total, *reader.shape)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.dtype(reader.dtype), shape)
    reader.fill(paths, index, plan.dest, x)
    x.flush()
    kept = plan.dest >= 0
    y = np.empty(plan.total, index.y.dtype)
    y[plan.dest[kept]] = index.y[kept]
    np.save(folder / "y.npy", y)
    np.save(folder / "offsets.npy", plan.offsets)
    np.save(folder / "train.npy", plan.train)
    (folder / "names.json").write_text(json.dumps(plan.names), encoding="utf-8")


@contextmanager
def building_folder(root: Path) -> Generator[Path, None, None]:
    """Yield a folder beside the entries for a new one; it is removed at the end."""
    folder = root / f".building-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True)
        yield folder
    except OSError as error:
        msg = f"the cache directory {root} cannot be written: set RFA_CACHE to another ({error})"
        raise DataError(msg) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_space(name: str, total: int, shape: tuple[int, ...], dtype: str, folder: Path) -> None:
    """Check that the disk has room: a full one would kill a process that writes to a map."""
    needed = total * (int(np.prod(shape)) * np.dtype(dtype).itemsize + 8)
    free = shutil.disk_usage(folder).free
    if needed > free:
        msg = (
            f"{name} needs {needed} bytes in the cache {folder.parent}, which has {free}: "
            "make room or set RFA_CACHE to another directory"
        )
        raise DataError(msg)


def put_entry(folder: Path, entry: Path, is_whole: Callable[[Path], bool]) -> None:
    """Move a new entry into place, unless another process was faster; replace an incomplete one.

    Processes that have mapped the old entry keep it.
    """
    if is_whole(entry):
        return
    with building_folder(entry.parent) as away:
        with suppress(FileNotFoundError):
            entry.rename(away / entry.name)
        try:
            folder.rename(entry)
        except OSError:
            if not entry.exists():
                raise


def clean(entry: Path, stale: str, *, keep: int) -> None:
    """Remove entries that this one replaces, and the remains of killed builders.

    The `keep` entries used last are kept: others may be about to open them.
    """
    old = [path for path in entry.parent.glob(stale) if path != entry]
    old = sorted(old, key=_last_use)[: max(0, len(old) - keep)]
    old += [
        path for path in entry.parent.glob(".building-*") if time.time() - _last_use(path) > _DAY
    ]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process removed it
        return math.inf
