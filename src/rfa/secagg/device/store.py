"""The store of a device: in its own files, or in memory.

A store keeps strings of bytes by name, in two places: `main`, which lasts for a run, and one that
outlives runs, if there is one. Removed values are overwritten, and the file gets shorter.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Generator, MutableMapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

MAIN, LASTING = "main", "spent"
"""The two places."""
WAIT = 30.0
"""Seconds to wait for another process of the same device."""
_DURABLE = ("journal_mode = DELETE", "synchronous = EXTRA", "secure_delete = ON")
_FLEETING = ("journal_mode = MEMORY", "synchronous = OFF", "secure_delete = ON")


class Store(Protocol):
    """The store of the values that a device must not forget.

    Attributes:
        where: the place that outlives a run; `main` if none does.
        name: the name of the store in errors.
        lasting_name: the name in errors of the place that outlives a run; empty if there is none.
    """

    where: str
    name: str
    lasting_name: str

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context in which all changes happen, or none; all access is within one."""
        ...

    def find(self, name: str, where: str = MAIN) -> object:
        """Return the value under a name; None if there is none."""
        ...

    def keep(self, name: str, value: bytes, where: str = MAIN) -> None:
        """Store a value under a name."""
        ...

    def remove(self, name: str, where: str = MAIN) -> None:
        """Remove the value under a name."""
        ...

    def close(self) -> None:
        """Close the store; its values stay."""
        ...


class FileStore:
    """A store in one or two files that only their owner may read.

    A transaction that changes nothing writes nothing. One with changes is on the disk when it ends,
    and excludes other processes. Of two files, the one that outlives runs is written first. So a
    device that is killed in between is as before the transaction, but knows what it was about to
    mark.

    Two files cost one more commit where both change. But the file of a run is large, is written
    with each message, and may be removed when it is damaged or old. The values that must never be
    forgotten are safe then.
    """

    def __init__(self, path: Path, lasting: Path | None = None, *, durable: bool = True) -> None:
        """Open or create the files.

        Args:
            path: the file of a run.
            lasting: the file that outlives runs, if there is one.
            durable: False to let the operating system decide when to write, if a power failure may
                lose values.

        Raises:
            OSError: if they cannot be used; its `filename` says which. The file with the values
                that must not be forgotten is checked as a whole: no damage hides them.
        """
        self.where = LASTING if lasting else MAIN
        self.name, self.lasting_name = str(path), str(lasting or "")
        self._lock = threading.RLock()
        self._files: dict[str, _File] = {}
        try:
            self._files[MAIN] = _File(path, durable=durable, whole=not lasting)
            if lasting:
                self._files[LASTING] = _File(lasting, durable=durable, whole=True)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Generator[None]:
        """Write all changes of the block to disk or none, and exclude other processes.

        Raises:
            OSError: if a file cannot be used; its `filename` says which.
        """
        files = list(self._files.values())
        with self._lock:
            try:
                for file in files:
                    file.begin()
                yield
                for file in reversed(files):
                    file.commit()
            finally:
                for file in files:
                    file.roll_back()

    def find(self, name: str, where: str = MAIN) -> object:
        """Return the value under a name, of any type; None if there is none."""
        return self._files[where].find(name)

    def keep(self, name: str, value: bytes, where: str = MAIN) -> None:
        """Store a value under a name."""
        self._files[where].keep(name, value)

    def remove(self, name: str, where: str = MAIN) -> None:
        """Remove the value under a name."""
        self._files[where].remove(name)

    def close(self) -> None:
        """Close the files, which hold everything already."""
        for file in self._files.values():
            file.close()


class _File:
    """A file of a store: a table of names and values. All errors are an OSError with its name."""

    def __init__(self, path: Path, *, durable: bool, whole: bool) -> None:
        self._path = path
        create_private(path)
        with self._named():
            self._base = sqlite3.connect(
                path, timeout=WAIT, isolation_level=None, check_same_thread=False
            )
        try:
            for pragma in _DURABLE if durable else _FLEETING:
                self._run(f"PRAGMA {pragma}")
            self._made = self._has_table()
            if self._made:  # notice damage at once
                self._run("SELECT name, value FROM kept LIMIT 1")
            else:
                self._run("PRAGMA auto_vacuum = FULL")
            if whole:
                self._check_whole()
            path.chmod(0o600)
        except BaseException:
            self._base.close()
            raise

    def begin(self) -> None:
        self._run("BEGIN EXCLUSIVE")
        self._made = self._has_table()

    def commit(self) -> None:
        self._run("COMMIT")

    def roll_back(self) -> None:
        if self._base.in_transaction:
            self._run("ROLLBACK")

    def find(self, name: str) -> object:
        if not self._made:
            return None
        rows = self._run("SELECT value FROM kept WHERE name = ?", name)
        if rows == [(None,)]:
            raise OSError(errno.EIO, f"{name} has no value", str(self._path))
        return rows[0][0] if rows else None

    def keep(self, name: str, value: bytes) -> None:
        if not self._made:
            self._run("CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB)")
            self._made = True
        self._run("INSERT OR REPLACE INTO kept VALUES (?, ?)", name, value)

    def remove(self, name: str) -> None:
        if self._made:
            self._run("DELETE FROM kept WHERE name = ?", name)

    def close(self) -> None:
        self._base.close()

    def _has_table(self) -> bool:
        return bool(self._run("SELECT 1 FROM sqlite_master WHERE name = 'kept'"))

    def _check_whole(self) -> None:
        """Check all pages: in damaged ones, values would be looked up and not be found.

        Raises:
            OSError: if something is damaged, or the table of a file that is not empty is missing.
        """
        ((found,),) = self._run("PRAGMA integrity_check(1)")
        ((pages,),) = self._run("PRAGMA page_count")  # a new file has one, for its settings
        if found == "ok" and pages > 1 and not self._has_table():  # others may have made it since
            found = "its table is missing"
        if found != "ok":
            raise OSError(errno.EIO, str(found), str(self._path))

    def _run(self, order: str, *values: str | bytes) -> list[Any]:
        """Return the rows of an order."""
        with self._named():
            return self._base.execute(order, values).fetchall()

    @contextlib.contextmanager
    def _named(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:  # damaged texts
            raise OSError(errno.EIO, str(error), str(self._path)) from None


class MemoryStore:
    """A store in a mapping, for a device that keeps nothing after its run."""

    where = LASTING
    name, lasting_name = "memory", ""

    def __init__(self, kept: MutableMapping[str, bytes], prefix: str = "") -> None:
        """Keep everything in a mapping, under names with a prefix."""
        self._kept, self._prefix = kept, prefix

    @contextlib.contextmanager
    def transaction(self) -> Generator[None]:
        """Make all changes of the block, or none."""
        before = dict(self._kept)
        try:
            yield
        except BaseException:
            for name in set(self._kept) - set(before):
                del self._kept[name]
            self._kept.update(before)
            raise

    def find(self, name: str, where: str = MAIN) -> object:
        """Return the value under a name; None if there is none."""
        return self._kept.get(self._key(name, where))

    def keep(self, name: str, value: bytes, where: str = MAIN) -> None:
        """Store a value under a name."""
        self._kept[self._key(name, where)] = value

    def remove(self, name: str, where: str = MAIN) -> None:
        """Remove the value under a name."""
        self._kept.pop(self._key(name, where), None)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _key(self, name: str, where: str) -> str:
        return f"{self._prefix}{where} {name}"


def create_private(path: Path) -> None:
    """Create an empty file, unless it exists, that only its owner can ever read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        path.chmod(0o600)  # restores the bits that the umask removed
