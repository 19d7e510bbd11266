"""Where data sets lie, and where they are kept once read: arranged by device, memory-mapped.

An entry of the cache is a folder whose name tells what it was made from, so a source that changed
gives another entry. It comes into place by one rename when it is whole: who finds it can use it,
and two who build it at once do not harm each other.
"""

from __future__ import annotations

import hashlib
import json
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

from rfa.lab.datasets.dataset import (
    Arrangement,
    DataError,
    Index,
    Population,
    Reader,
    arrange,
    find_file,
)

Progress: TypeAlias = Callable[[str], None]

FORMAT = "1"
_DAY = 24 * 60 * 60
_ATTEMPTS = 3


def data_dir(given: Path | None) -> Path | None:
    """The directory with the sources: the given one, else RFA_DATA, else none."""
    named = os.environ.get("RFA_DATA")
    return given or (Path(named).expanduser() if named else None)


def cache_dir() -> Path:
    """The directory of the cache: RFA_CACHE, else "rfa" in the user's directory for caches."""
    if named := os.environ.get("RFA_CACHE"):
        return Path(named).expanduser()
    usual = {"darwin": "~/Library/Caches", "win32": "~/AppData/Local"}.get(sys.platform, "~/.cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or usual).expanduser() / "rfa"


def locate(reader: Reader, directory: Path | None) -> dict[str, Path]:
    """Where each entry of the reader's `files` lies.

    Raises:
        DataError: naming what is missing, and what to do.
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


def load(
    reader: Reader,
    directory: Path | None = None,
    *,
    iid: bool = False,
    on_progress: Progress | None = None,
) -> Population:
    """The devices of a data set, from the cache, where they are put first if need be.

    Args:
        reader: the data set.
        directory: where its source lies; what RFA_DATA says by default.
        iid: deal the examples out to the devices at random; the devices keep their sizes.
        on_progress: is told what is done while the cache is built.

    Raises:
        DataError: if the source is missing or wrong, or the cache cannot be written.
    """
    paths = locate(reader, data_dir(directory))
    entry, stale = _entry(reader, paths, iid)
    for attempt in range(_ATTEMPTS):
        if attempt:
            _build(reader, paths, entry, iid, on_progress or _silent)
            _clean(entry, stale)
        population = _open(reader, entry)
        if population is not None:
            return population
    msg = f"{entry} cannot be read although it was just written: set RFA_CACHE to another directory"
    raise DataError(msg)


def _silent(message: str) -> None:
    del message


def _list(entries: Sequence[str]) -> str:
    return ", ".join(entry.replace("|", " or ") for entry in entries)


def _entry(reader: Reader, paths: Mapping[str, Path], iid: bool) -> tuple[Path, str]:
    """The folder of the entry, and a pattern for the names of those that it replaces.

    Its fingerprint has two parts: from where the source lies, and from what state it is in. Made
    data has no source that could change, so it replaces nothing.
    """
    real = {name: path.resolve() for name, path in sorted(paths.items())}
    state = [FORMAT, reader.version, str(reader.shape), reader.dtype]
    state += [str(reader.min_examples), str(reader.train_share)]
    for path in real.values():
        for part in sorted(path.iterdir()) if path.is_dir() else [path]:
            about = part.stat()
            state.append(f"{part} {about.st_size} {about.st_mtime_ns}")
    stem = f"{reader.name}-iid" if iid else reader.name
    where = _digest([str(path) for path in real.values()])[:8]
    folder = cache_dir() / f"{stem}-{where}{_digest(state)[:16]}"
    return folder, f"{stem}-{where}*" if paths else ""


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _open(reader: Reader, entry: Path) -> Population | None:
    """The population of an entry, or None if it is not there, or not whole."""
    try:
        names: list[str] = json.loads((entry / "names.json").read_bytes())
        x, y = (np.load(entry / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
        offsets, train = (np.load(entry / f"{name}.npy") for name in ("offsets", "train"))
    except (OSError, ValueError, EOFError):
        return None
    sizes = np.diff(offsets)
    complete = (
        len(names) == len(sizes) == len(train)
        and x.shape == (offsets[-1], *reader.shape)
        and x.dtype == np.dtype(reader.dtype)
        and y.shape == (offsets[-1],)
        and bool(((train > 0) & (train < sizes)).all())
    )
    return Population(names, x, y, offsets, train) if complete else None


def _build(
    reader: Reader, paths: Mapping[str, Path], entry: Path, iid: bool, tell: Progress
) -> None:
    with _building_folder(entry.parent) as folder:
        tell(f"{reader.name}: looking for the devices")
        index = reader.index(paths)
        plan = arrange(reader, index, iid=iid)
        tell(f"{reader.name}: writing {plan.total} examples of {len(plan.names)} devices")
        _check_space(reader, plan, folder)
        _write(reader, paths, index, plan, folder)
        _place(reader, folder, entry)
        tell(f"{reader.name}: kept in {entry}")


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
def _building_folder(root: Path) -> Generator[Path, None, None]:
    """A folder beside the entries, for one that is being built; gone at the end."""
    folder = root / f".building-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True)
        yield folder
    except OSError as error:
        msg = f"the cache directory {root} cannot be written: set RFA_CACHE to another ({error})"
        raise DataError(msg) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_space(reader: Reader, plan: Arrangement, folder: Path) -> None:
    """Refuse to begin what the disk cannot hold: a full one would kill who writes to a map."""
    needed = plan.total * (int(np.prod(reader.shape)) * np.dtype(reader.dtype).itemsize + 8)
    free = shutil.disk_usage(folder).free
    if needed > free:
        msg = (
            f"{reader.name} needs {needed} bytes in the cache {folder.parent}, which has {free}: "
            "make room or set RFA_CACHE to another directory"
        )
        raise DataError(msg)


def _place(reader: Reader, folder: Path, entry: Path) -> None:
    """Move what was built into place, unless somebody was faster; what is damaged goes."""
    if _open(reader, entry) is not None:
        return
    with _building_folder(entry.parent) as away:
        with suppress(FileNotFoundError):
            entry.rename(away / entry.name)
        try:
            folder.rename(entry)
        except OSError:
            if not entry.exists():
                raise


def _clean(entry: Path, stale: str) -> None:
    """Remove entries that this one replaces, and what builders that were killed left behind."""
    old = [path for path in entry.parent.glob(stale) if path != entry] if stale else []
    for path in entry.parent.glob(".building-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _DAY:
                old.append(path)
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
