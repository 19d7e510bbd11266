"""A lock that one process holds at a time, and that goes when the process does, however it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rfa.errors import RfaError
from rfa.lab.errors import LabError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


class LockedError(LabError):
    """Another process is doing this very run."""


@contextmanager
def hold_lock(path: Path, busy: RfaError) -> Generator[None]:
    """Hold the lock of a file while the block runs, and remove the file at the end.

    Args:
        path: the file, which need not be there.
        busy: what to raise if another process, or another thread, holds the lock.
    """
    file = _acquire(path)
    if file is None:
        raise busy
    try:
        yield
    finally:
        # Removed while it is held, so that nobody's fresh lock is removed. Windows refuses that.
        with suppress(OSError):
            path.unlink()
        file.close()


def _acquire(path: Path) -> BinaryIO | None:
    while True:
        file = path.open("ab")
        if not _try_lock(file):
            file.close()
            return None
        # The one who held it may have removed the file between our opening and our locking.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def _try_lock(file: BinaryIO) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
