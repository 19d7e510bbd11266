"""Get the files of a data set: download, unpack, merge. Each file appears when it is complete."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

from rfa._files import put_in_place
from rfa.lab.datasets.catalog import DataSet, Source
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.datasets.download import Progress, download
from rfa.lab.datasets.partial import DownloadError, locked

FileProgress: TypeAlias = Callable[[str, int, int | None], None]

MAGIC = b"PAR1"
BLOCK = 1 << 20


def _silent(label: str, done: int, total: int | None) -> None:
    del label, done, total


def get(dataset: DataSet, directory: Path, on_progress: FileProgress = _silent) -> list[Path]:
    """Get the missing files of a data set, and return their paths.

    Args:
        dataset: the data set.
        directory: the folder of its files.
        on_progress: called with the current step, the bytes done, and the total if known.

    Raises:
        DataError: if it fails; the message says why and what to do.
    """
    try:
        missing = dataset.missing(directory)
        sources = [source for source in dataset.sources if source.file in missing]
        for source in sources:
            _get_file(source, directory / source.file, on_progress)
    except OSError as error:
        msg = f"{directory} cannot be used: {error}. Make room there, or choose another place"
        raise DownloadError(msg) from error
    return [directory / source.file for source in sources]


def _get_file(source: Source, target: Path, on_progress: FileProgress) -> None:
    if source.member is None and source.split is None:
        _fetch(source, target, source.holds, on_progress)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target):
        if target.exists():  # another process was faster
            return
        if source.member is not None:
            _get_member(source, source.member, target, on_progress)
        elif source.split is not None:
            _get_shards(source, source.split, target, on_progress)


def _fetch(source: Source, target: Path, holds: str | None, on_progress: FileProgress) -> None:
    download(
        source.url,
        target,
        sha256=source.sha256,
        size=source.size,
        check=partial(_check_zip, ending=holds) if holds else None,
        on_progress=partial(on_progress, target.name),
    )


def check_parquet(path: Path) -> None:
    """Check that a file begins and ends like a parquet file."""
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
        file.seek(max(0, path.stat().st_size - len(MAGIC)))
        tail = file.read()
    if head != MAGIC or tail != MAGIC:
        msg = f"a parquet file starts and ends with {MAGIC!r}, this one with {head!r} and {tail!r}"
        raise DownloadError(msg)


def _check_zip(path: Path, ending: str) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile as error:
        msg = f"it is not a zip archive ({error})"
        raise DownloadError(msg) from error
    if not any(name.endswith(ending) for name in names):
        msg = f"none of its {len(names)} members is called {ending!r}"
        raise DownloadError(msg)


def _get_member(source: Source, member: str, target: Path, on_progress: FileProgress) -> None:
    archive = target.with_name(f"{target.name}.zip")
    if not archive.exists():
        _fetch(source, archive, member, on_progress)
    try:
        with (
            zipfile.ZipFile(archive) as file,
            file.open(member) as packed,
            _replacing(target) as new,
            new.open("wb") as out,
        ):
            while block := packed.read(BLOCK):
                out.write(block)
                on_progress(f"unpacking {member}", out.tell(), file.getinfo(member).file_size)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        archive.unlink()
        msg = f"{source.url} is damaged: {error}. It was deleted; the same call downloads it again"
        raise DownloadError(msg) from error
    archive.unlink()


@contextmanager
def _replacing(target: Path) -> Generator[Path]:
    """Yield a path to write to, which becomes `target` on success and is removed otherwise.

    Its name is always the same, since the lock is held, so the remains of a killed process are
    overwritten.
    """
    new = target.with_name(f"{target.name}.new")
    try:
        yield new
        put_in_place(new, target)
    finally:
        new.unlink(missing_ok=True)


def _get_shards(source: Source, split: str, target: Path, on_progress: FileProgress) -> None:
    folder = target.with_name(f"{target.name}.shards")
    folder.mkdir(exist_ok=True)
    urls = _listed(source, split, folder / "listing.json")
    names = [hashlib.sha256(url.encode()).hexdigest()[:16] for url in urls]
    shards = [folder / f"{name}.parquet" for name in names]
    for number, (url, shard) in enumerate(zip(urls, shards, strict=True), start=1):
        if not shard.exists():
            label = f"{target.name} ({number} of {len(urls)})"
            download(url, shard, check=check_parquet, on_progress=partial(on_progress, label))
    if len(shards) == 1:
        shards[0].replace(target)
    else:
        _merge(shards, target, partial(on_progress, f"merging {target.name}"))
    shutil.rmtree(folder)


def _listed(source: Source, split: str, path: Path) -> Sequence[str]:
    """Return the addresses of the parquet files of a split."""
    download(source.url, path)
    try:
        listing: Any = json.loads(path.read_text("utf-8"))
        splits: list[Any] = [config[split] for config in listing.values() if split in config]
    except (ValueError, AttributeError, TypeError):
        splits = []
    path.unlink()
    urls = cast("list[Any]", splits[0]) if len(splits) == 1 and isinstance(splits[0], list) else []
    if not urls or not all(isinstance(url, str) for url in urls):
        msg = (
            f"{source.url} should list the parquet files of one split {split!r}, but lists "
            f"{len(splits)} such splits. Get {source.file} by hand: see the page of the data set"
        )
        raise DownloadError(msg)
    return urls


def _merge(shards: Sequence[Path], target: Path, on_progress: Progress) -> None:
    """Write the rows of all shards to `target`, one group of rows at a time."""
    parquet = lab_module("pyarrow.parquet")
    done, total = 0, sum(shard.stat().st_size for shard in shards)
    writer: Any = None
    with _replacing(target) as new, ExitStack() as stack:
        for shard in shards:
            for group in _groups(parquet, shard, writer and writer.schema):
                if writer is None:
                    writer = stack.enter_context(parquet.ParquetWriter(new, group.schema))
                writer.write_table(group)
            done += shard.stat().st_size
            on_progress(done, total)


def _groups(parquet: Any, shard: Path, schema: Any) -> Generator[Any]:
    """Yield the rows of a shard in a schema; delete a damaged shard, to download it again."""
    try:
        with parquet.ParquetFile(shard) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number).cast(schema or file.schema_arrow)
    except (OSError, ValueError) as error:
        shard.unlink(missing_ok=True)
        msg = f"{shard} cannot be read: {error}. It was deleted; the same call downloads it again"
        raise DownloadError(msg) from error
