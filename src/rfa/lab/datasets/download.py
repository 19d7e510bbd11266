"""Download a file over http(s), completely or not at all, and continue interrupted downloads.

The bytes are kept in `<target>.part`. The file becomes `<target>` in one step, after it is complete
and has passed all checks. An interrupted download continues from its part if the server still has
the same version of the file, and starts over otherwise.
"""

from __future__ import annotations

import hashlib
import http.client
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from rfa.lab.datasets import web
from rfa.lab.datasets.partial import DownloadError, PartialFile, Version, locked

__all__ = ["Check", "DownloadError", "Progress", "download"]

Check: TypeAlias = Callable[[Path], None]
Progress: TypeAlias = Callable[[int, int | None], None]

CHUNK = 1 << 18


@dataclass(frozen=True)
class _Job:
    url: str
    part: PartialFile
    size: int | None
    timeout: float
    on_progress: Progress | None


def download(  # noqa: PLR0913
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    size: int | None = None,
    check: Check | None = None,
    on_progress: Progress | None = None,
    timeout: float = 30.0,
    attempts: int = 5,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Download `url` to `target`, and replace an existing file.

    Args:
        url: the http or https address of the file.
        target: the path to write; its directory is created if needed.
        sha256: its digest in hexadecimal, if known.
        size: its size in bytes, if known.
        check: called with the path of the complete file; raises an exception if it is wrong,
            preferably a `DataError` that says why.
        on_progress: called with the bytes that have arrived, and the total if known.
        timeout: the seconds that the server may be silent.
        attempts: the number of attempts.
        pause: waits for a number of seconds.

    Raises:
        DownloadError: if it fails. The bytes that arrived are kept for the next call, unless they
            are wrong.
    """
    web.check_url(url)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target):
            job = _Job(url, PartialFile(target), size, timeout, on_progress)
            _transfer(job, attempts, pause)
            _verify(job, sha256, check)
            job.part.finish(target)
    except OSError as error:  # those of the network have become TransientError
        hint = "Make room there, or choose another place; the same call then continues"
        msg = f"{url} cannot be written to {target}: {error}. {hint}"
        raise DownloadError(msg) from error


def _transfer(job: _Job, attempts: int, pause: Callable[[float], None]) -> None:
    for attempt in range(1, attempts + 1):
        try:
            return _attempt(job)
        except web.TransientError as error:
            if error.restart:
                job.part.drop()
            if attempt == attempts:
                hint = "Try again later, or put the file into the data directory by hand"
                if job.part.version(job.url):
                    hint = f"{job.part.size()} bytes are kept: the same call continues from there"
                msg = f"{job.url} failed {attempts} times, at last because {error}. {hint}"
                raise DownloadError(msg) from error
            usual = min(2.0 ** (attempt - 1), web.LONGEST_PAUSE)
            pause(usual if error.pause is None else error.pause)
    return None


def _attempt(job: _Job) -> None:
    version, done = job.part.version(job.url), job.part.size()
    if version is not None and version.total == done:
        return
    headers = {"User-Agent": "rfa", "Accept-Encoding": "identity"}
    if version is not None:
        headers |= {"Range": f"bytes={done}-", "If-Range": version.validator}
    with web.ask(job.url, headers, job.timeout) as response:
        web.refuse_wrong(job.url, response)
        continued = response.status == HTTPStatus.PARTIAL_CONTENT
        if continued:
            total = _continued(response, version, done)
        else:
            done, total = 0, web.number(response.headers.get("Content-Length"))
        _check_size(job, total)
        if continued:
            out = job.part.path.open("ab")
        else:
            out = job.part.begin(job.url, web.validator(response), total)
        with out:
            _receive(job, response, out, (done, total))


def _check_size(job: _Job, size: int | None) -> None:
    if job.size is not None and size is not None and size != job.size:
        job.part.drop()
        msg = f"{job.url} should have {job.size} bytes, but has {size}: the file has changed"
        raise DownloadError(msg)


def _continued(response: Any, version: Version | None, done: int) -> int | None:
    """Return the total size of the file, if the response is its part from byte `done` on."""
    start, total = web.content_range(response)
    same = (
        version is not None
        and web.validator(response) in {version.validator, None}
        and version.total in {total, None}
    )
    if not same or start != done:
        msg = "the server went on with another file, or at another place, than asked for"
        raise web.TransientError(msg, 0.0, restart=True)
    return total


def _receive(job: _Job, response: Any, out: BinaryIO, so_far: tuple[int, int | None]) -> None:
    done, total = so_far
    while chunk := _read(response, done):
        out.write(chunk)
        done += len(chunk)
        if job.on_progress is not None:
            job.on_progress(done, total)
    if total is not None and done < total:
        msg = f"the connection ended after {done} of {total} bytes"
        raise web.TransientError(msg)


def _read(response: Any, done: int) -> bytes:
    try:
        return response.read1(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        msg = f"the connection broke after {done} bytes ({web.name_of(error)})"
        raise web.TransientError(msg) from error


def _verify(job: _Job, sha256: str | None, check: Check | None) -> None:
    """Check a complete file, and delete its bytes if it is wrong."""
    try:
        _check_content(job, sha256)
        if check is not None:
            check(job.part.path)
    except OSError:  # the disk failed, not the download
        raise
    except Exception as error:
        job.part.drop()  # or the next call would continue from it
        msg = f"{job.url} is not what it should be: {error}. What arrived is thrown away"
        raise DownloadError(msg) from error


def _check_content(job: _Job, sha256: str | None) -> None:
    _check_size(job, job.part.size())
    with job.part.path.open("rb") as file:
        head = file.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest() if sha256 else ""
    if head.startswith((b"<!doctype html", b"<html")):
        raise web.web_page(job.url)
    if sha256 and digest != sha256.lower():
        msg = f"its SHA-256 should be {sha256.lower()}, but is {digest}"
        raise DownloadError(msg)
