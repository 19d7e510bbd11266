"""Downloads where the way to the server, the server or the disk fails."""

from __future__ import annotations

import email.utils
import errno
import socket
import threading
import time
from pathlib import Path

import pytest

from rfa.lab.datasets.download import DownloadError, download
from rfa.lab.datasets.partial import PartialFile
from tests.lab.datasets.server import (
    BODY,
    HALF,
    Answer,
    Server,
    fetch,
    honest,
    refused,
    truncated,
    whole,
)


def test_redirects_are_followed_with_the_range(server: Server, target: Path) -> None:
    files = honest({"/c": BODY})
    hops = {"/a": "/b", "/b": server.url("/c")}

    def script(path: str, headers: dict[str, str]) -> Answer:
        if path in hops:
            return Answer(b"", 302, {"Location": hops[path]})
        return files(path, headers) if "Range" in headers else truncated(BODY, HALF)

    server.script = script
    fetch(server, target, "/a")
    assert target.read_bytes() == BODY
    assert [path for path, _ in server.asked] == ["/a", "/b", "/c"] * 2


@pytest.mark.parametrize(
    "place", ["/loop", "file:///etc/hostname", "ftp://localhost/x", "data:,x", "http://[broken"]
)
def test_bad_redirects_are_refused(server: Server, target: Path, place: str) -> None:
    server.play(Answer(b"", 302, {"Location": place}))
    refused(server, target, "/loop")
    assert len(server.asked) <= 12


def test_an_endless_chain_of_redirects_ends(server: Server, target: Path) -> None:
    server.script = lambda path, _: Answer(b"", 302, {"Location": f"{path}x"})
    refused(server, target)
    assert len(server.asked) <= 12


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://a/b", "x", "http://", "http://[a"])
def test_other_addresses_are_refused(target: Path, url: str) -> None:
    with pytest.raises(DownloadError, match="only http and https"):
        download(url, target)
    assert not target.parent.exists()


def test_passing_failures_are_tried_again_with_growing_pauses(server: Server, target: Path) -> None:
    server.play(Answer(status=500), Answer(status=502), Answer(status=504), whole(BODY))
    assert fetch(server, target) == [1.0, 2.0, 4.0]
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 501])
def test_lasting_failures_are_not_tried_again(server: Server, target: Path, status: int) -> None:
    server.play(Answer(b"no", status))
    assert str(status) in refused(server, target)
    assert len(server.asked) == 1


def test_retry_after_is_honored_within_limits(server: Server, target: Path) -> None:
    soon = email.utils.formatdate(time.time() - 5, usegmt=True)
    server.play(
        Answer(status=429, headers={"Retry-After": "7"}),
        Answer(status=503, headers={"Retry-After": soon}),
        Answer(status=503, headers={"Retry-After": "whenever"}),
        whole(BODY),
    )
    assert fetch(server, target) == [7.0, 0.0, 4.0]


def test_a_long_retry_after_is_told(server: Server, target: Path) -> None:
    server.play(Answer(status=429, headers={"Retry-After": "86400"}))
    assert "86400 s" in refused(server, target)
    assert len(server.asked) == 1


def test_a_silent_server_times_out(server: Server, target: Path) -> None:
    never = threading.Event()
    server.play(Answer(wait=never))
    said = refused(server, target, timeout=0.1, attempts=2)
    never.set()
    assert "timed out" in said


def test_a_refused_connection(target: Path) -> None:
    with socket.socket() as idle:
        idle.bind(("127.0.0.1", 0))
        nobody = Server(f"http://127.0.0.1:{idle.getsockname()[1]}", honest({}))
        assert "refused" in refused(nobody, target, attempts=2)


def test_a_name_that_is_none(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    said = refused(Server("http://nowhere.invalid", honest({})), target)
    assert "Name or service not known" in said


def test_a_full_disk(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    server.play(whole(BODY))
    monkeypatch.setattr(PartialFile, "begin", full)
    said = refused(server, target)
    assert "No space left" in said
    assert str(target) in said
    assert len(server.asked) == 1


def test_a_place_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    server.play(whole(BODY))
    for place in (tmp_path / "file" / "x", tmp_path / "file" / "deep" / "x"):
        assert "cannot be written" in refused(server, place)
