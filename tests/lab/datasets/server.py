"""A web server on this computer that answers as a test wants: truncates, lies, redirects, fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from rfa.lab.datasets.download import DownloadError, download

TAG = '"version-1"'
BODY = bytes(range(256)) * 4000
HALF = len(BODY) // 2


@dataclass
class Answer:
    """One answer. `length` is what Content-Length claims; the true size by default."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    length: int | None = None
    wait: threading.Event | None = None


Script: TypeAlias = Callable[[str, dict[str, str]], Answer]


@dataclass
class Server:
    """What the server shall say, and what it was asked: (path, headers)."""

    root: str
    script: Script
    asked: list[tuple[str, dict[str, str]]] = field(
        default_factory=list[tuple[str, dict[str, str]]]
    )

    def url(self, path: str = "/file") -> str:
        return self.root + path

    def play(self, *answers: Answer) -> None:
        """Give these answers in turn, and the last one for ever."""
        left = list(answers)
        self.script = lambda _path, _headers: left.pop(0) if len(left) > 1 else left[0]


def whole(body: bytes, tag: str = TAG, **headers: str) -> Answer:
    return Answer(body, headers={"ETag": tag, **headers})


def truncated(body: bytes, sent: int, tag: str = TAG) -> Answer:
    return Answer(body[:sent], headers={"ETag": tag}, length=len(body))


def partial(body: bytes, start: int, tag: str = TAG) -> Answer:
    place = f"bytes {start}-{len(body) - 1}/{len(body)}"
    return Answer(body[start:], 206, {"ETag": tag, "Content-Range": place})


def honest(files: dict[str, bytes]) -> Script:
    """A server of these files that honors Range and If-Range."""

    def answer(path: str, headers: dict[str, str]) -> Answer:
        if path not in files:
            return Answer(b"no", 404)
        asked = headers.get("Range", "")
        if asked and headers.get("If-Range") == TAG:
            return partial(files[path], int(asked.removeprefix("bytes=").removesuffix("-")))
        return whole(files[path])

    return answer


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are part of the game."""


@contextmanager
def serve() -> Generator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = dict(self.headers.items())
            server.asked.append((self.path, headers))
            answer = server.script(self.path, headers)
            if answer.wait is not None:
                answer.wait.wait(10)
            self.send_response(answer.status)
            length = len(answer.body) if answer.length is None else answer.length
            for name, value in {"Content-Length": str(length), **answer.headers}.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    http = _Quiet(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_address[1]}", lambda _p, _h: Answer(b"", 404))
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def fetch(server: Server, target: Path, path: str = "/file", **options: Any) -> list[float]:
    """Download, and tell the pauses that were made."""
    pauses: list[float] = []
    download(server.url(path), target, pause=pauses.append, **options)
    return pauses


def refused(server: Server, target: Path, path: str = "/file", **options: Any) -> str:
    """Fail to download, and tell what the error says; nothing is in place."""
    with pytest.raises(DownloadError) as caught:
        fetch(server, target, path, **options)
    assert not target.exists()
    assert server.url(path) in str(caught.value)
    assert not target.with_name(f"{target.name}.lock").exists()
    return str(caught.value)


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())
