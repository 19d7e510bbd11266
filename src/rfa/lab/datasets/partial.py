"""The part of a file that has arrived, and a lock so that only one process adds to it."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from rfa._files import put_in_place
from rfa.lab.datasets.dataset import DataError
from rfa.lab.lock import hold_lock


class DownloadError(DataError):
    """A file could not be downloaded; the message names it, the reason, and what to do."""


@dataclass(frozen=True)
class Version:
    """The version of a file of which a part has arrived.

    Attributes:
        url: the address that was requested.
        validator: the server's ETag or date of the file, for an If-Range header.
        total: its size in bytes, if the server gave it.
    """

    url: str
    validator: str
    total: int | None


class PartialFile:
    """The part of `target` that has arrived, in `<target>.part`; a JSON note names its version.

    The note, `<target>.part.json`, is written before the first byte, and after the bytes of any
    other version are removed. So whenever a process ends, the bytes belong to the version in the
    note.
    """

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.part")
        self._note = target.with_name(f"{target.name}.part.json")

    def size(self) -> int:
        """Return the number of bytes that have arrived."""
        return self.path.stat().st_size if self.path.exists() else 0

    def version(self, url: str) -> Version | None:
        """Return the version of the part, if it is of `url` and can be continued; else None."""
        try:
            version = Version(**json.loads(self._note.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return version if version.url == url and self.size() else None

    def begin(self, url: str, validator: str | None, total: int | None) -> BinaryIO:
        """Open for the first byte of another version; without a validator it is not continued."""
        self.drop()
        if validator is not None:
            self._note.write_text(json.dumps(asdict(Version(url, validator, total))), "utf-8")
        return self.path.open("wb")

    def drop(self) -> None:
        """Delete the part."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def finish(self, target: Path) -> None:
        """Move the complete file into place."""
        put_in_place(self.path, target)
        self._note.unlink(missing_ok=True)


def locked(target: Path) -> AbstractContextManager[None]:
    """Hold the lock of `target`, in `<target>.lock`, while the block runs.

    Raises:
        DownloadError: if another process holds it.
    """
    msg = f"{target} is being downloaded by another process; wait until it is done"
    return hold_lock(target.with_name(f"{target.name}.lock"), DownloadError(msg))
