"""A lock that one process holds at a time, and that goes when the process does, however it ends."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path

from rfa.lab.errors import LabError


class LockedError(LabError):
    """Another process holds the lock."""


@contextlib.contextmanager
def only_one(path: Path, what: str) -> Generator[None]:
    """Hold the lock of a file while the block runs.

    SQLite's lock on its own file is used, because it works alike on all systems.

    Raises:
        LockedError: if another process holds it.
    """
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            msg = f"{what} is being run by another process: wait for it, or give another --out"
            raise LockedError(msg) from None
        yield
    finally:
        connection.close()
