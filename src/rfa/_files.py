"""Files that are there as a whole or not at all, and paths that are no files or name nothing."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rfa.errors import InvalidValueError


@contextmanager
def replace_file(path: Path, mode: int = 0o666) -> Generator[BinaryIO]:
    """Write a file so that there is the old content or the new, and never a part.

    The content goes to a file beside it, which takes its place when the block ends well, and
    vanishes when it does not. Several processes may do this at once; the last one wins.

    Args:
        path: the file; its folder is there.
        mode: who may read and write it, within what the umask leaves; 0o600 for secrets.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "wb") as file:
            yield file
        put_in_place(new, path)
    finally:
        new.unlink(missing_ok=True)


def put_in_place(new: Path, path: Path) -> None:
    """Let a finished file take the place of another, after its content is on the disk."""
    with new.open("rb+") as file:
        os.fsync(file.fileno())
    new.replace(path)


def as_path(name: str, value: Any, what: str) -> Path | None:
    """A path that an option names; None if it names none.

    Args:
        name: the option.
        value: what it was given.
        what: what it names, "a file" or "a folder".

    Raises:
        InvalidValueError: if that is no path, or an empty one.
    """
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        msg = f"{name} must be the path of {what}, or None for none, not {value!r}"
        raise InvalidValueError(msg)
    return Path(os.fspath(value))
