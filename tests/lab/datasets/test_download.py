"""Downloads from a server that truncates and lies: whole files or none, and nothing twice."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rfa.lab.datasets.dataset import DataError
from rfa.lab.datasets.download import DownloadError
from rfa.lab.datasets.partial import PartialFile, locked
from tests.lab.datasets.server import (
    BODY,
    HALF,
    TAG,
    Answer,
    Server,
    fetch,
    honest,
    leftovers,
    partial,
    refused,
    truncated,
    whole,
)

OTHER = BODY[::-1]


def test_a_file_comes_whole_with_progress_and_leaves_nothing_behind(
    server: Server, target: Path
) -> None:
    server.script = honest({"/file": BODY})
    seen: list[tuple[int, int | None]] = []

    def note(done: int, total: int | None) -> None:
        seen.append((done, total))

    digest = hashlib.sha256(BODY).hexdigest()
    fetch(server, target, sha256=digest.upper(), size=len(BODY), on_progress=note)
    assert target.read_bytes() == BODY
    assert leftovers(target) == ["file.bin"]
    assert seen[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_empty_file_is_a_file(server: Server, target: Path) -> None:
    server.play(whole(b""))
    fetch(server, target)
    assert target.read_bytes() == b""


def test_a_truncated_answer_is_resumed_within_the_call(server: Server, target: Path) -> None:
    server.play(truncated(BODY, HALF), partial(BODY, HALF))
    assert fetch(server, target) == [1.0]
    assert target.read_bytes() == BODY
    asked = server.asked[1][1]
    assert (asked["Range"], asked["If-Range"]) == (f"bytes={HALF}-", TAG)


def test_what_arrived_is_kept_and_the_next_call_goes_on(server: Server, target: Path) -> None:
    server.play(truncated(BODY, HALF), Answer(b"", 500))
    said = refused(server, target, attempts=3)
    assert f"{HALF} bytes are kept" in said
    assert "3 times" in said
    assert leftovers(target) == ["file.bin.part", "file.bin.part.json"]
    server.script = honest({"/file": BODY})
    fetch(server, target)
    assert target.read_bytes() == BODY
    assert server.asked[-1][1]["Range"] == f"bytes={HALF}-"


def test_a_server_that_always_truncates_and_cannot_resume(server: Server, target: Path) -> None:
    server.play(Answer(BODY[:HALF], length=len(BODY)))
    said = refused(server, target, attempts=2)
    assert f"ended after {HALF} of {len(BODY)} bytes" in said
    assert "Try again later" in said
    assert "Range" not in server.asked[1][1]


def test_a_chunked_answer_that_breaks_off(server: Server, target: Path) -> None:
    chunked = {"Transfer-Encoding": "chunked", "Content-Length": "", "ETag": TAG}
    server.play(Answer(b"5\r\nhello\r\n9\r\nwor", headers=chunked), whole(b"hello world"))
    fetch(server, target)
    assert target.read_bytes() == b"hello world"


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(whole(OTHER, '"version-2"'), id="changed, and said so with 200"),
        pytest.param(whole(OTHER), id="range ignored"),
    ],
)
def test_an_answer_from_the_start_replaces_the_part(
    server: Server, target: Path, second: Answer
) -> None:
    server.play(truncated(BODY, HALF), second)
    fetch(server, target)
    assert target.read_bytes() == OTHER


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(partial(OTHER, HALF, '"version-2"'), id="another version"),
        pytest.param(partial(BODY, HALF + 1), id="another place"),
        pytest.param(partial(BODY + b"more", HALF), id="another size"),
        pytest.param(Answer(BODY[HALF:], 206, {"ETag": TAG}), id="no place"),
        pytest.param(Answer(b"", 416), id="no such range"),
    ],
)
def test_a_wrong_continuation_starts_anew(server: Server, target: Path, lie: Answer) -> None:
    server.play(truncated(BODY, HALF), lie, whole(BODY))
    assert fetch(server, target) == [1.0, 0.0]
    assert target.read_bytes() == BODY
    assert "Range" not in server.asked[2][1]


def test_wrong_bytes_in_a_continuation_are_found_and_thrown_away(
    server: Server, target: Path
) -> None:
    digest = hashlib.sha256(BODY).hexdigest()
    server.play(truncated(BODY, HALF), partial(OTHER, HALF))
    assert digest in refused(server, target, sha256=digest)
    assert leftovers(target) == []


def test_a_part_of_another_address_or_without_a_note_is_not_continued(
    server: Server, target: Path
) -> None:
    target.parent.mkdir()
    part = PartialFile(target)
    server.script = honest({"/file": BODY})
    for note in (json.dumps({"url": "http://else", "validator": TAG}), "{", "[]", "{}"):
        part.path.write_bytes(OTHER[:HALF])
        target.with_name("file.bin.part.json").write_text(note)
        fetch(server, target)
        assert target.read_bytes() == BODY
    part.path.write_bytes(OTHER[:HALF])
    fetch(server, target)
    assert target.read_bytes() == BODY
    assert all("Range" not in headers for _, headers in server.asked)


def test_a_whole_part_needs_no_request(server: Server, target: Path) -> None:
    target.parent.mkdir()
    with PartialFile(target).begin(server.url(), TAG, len(BODY)) as out:
        out.write(BODY)
    fetch(server, target)
    assert target.read_bytes() == BODY
    assert server.asked == []


def test_a_weak_tag_is_not_trusted_but_a_date_is(server: Server, target: Path) -> None:
    date = "Sun, 01 Feb 2026 10:00:00 GMT"
    first = truncated(BODY, HALF, 'W/"weak"')
    first.headers["Last-Modified"] = date
    server.play(first, whole(BODY))
    fetch(server, target)
    assert server.asked[1][1]["If-Range"] == date


@pytest.mark.parametrize(
    ("answer", "options", "said"),
    [
        (whole(BODY), {"sha256": "0" * 64}, "SHA-256"),
        (whole(BODY), {"size": 7}, "should have 7 bytes"),
        (Answer(BODY, headers={"Content-Length": "", "Connection": "close"}), {"size": 7}, "7 by"),
        (whole(BODY, **{"Content-Type": "text/html; charset=utf-8"}), {}, "web page"),
        (whole(b"\n <!DOCTYPE html><p>Sign in"), {}, "web page"),
        (whole(BODY, **{"Content-Encoding": "gzip"}), {}, "encoded as gzip"),
        (Answer(b"", 204), {}, "204"),
    ],
)
def test_what_is_not_the_file_is_refused_and_not_resumed(
    server: Server, target: Path, answer: Answer, options: dict[str, Any], said: str
) -> None:
    server.play(answer)
    assert said in refused(server, target, **options)
    assert leftovers(target) == []
    assert len(server.asked) == 1


def test_a_content_length_that_is_too_small_is_found_by_the_digest(
    server: Server, target: Path
) -> None:
    server.play(Answer(BODY, headers={"ETag": TAG}, length=HALF))
    refused(server, target, sha256=hashlib.sha256(BODY).hexdigest())
    assert leftovers(target) == []


def test_a_failed_check_names_the_reason_and_throws_the_file_away(
    server: Server, target: Path
) -> None:
    def check(path: Path) -> None:
        assert path.read_bytes() == BODY
        assert not target.exists()
        msg = "it is too dull"
        raise DataError(msg)

    server.play(whole(BODY))
    assert "it is too dull" in refused(server, target, check=check)
    assert leftovers(target) == []


def test_a_failure_leaves_the_old_file_alone(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"old")
    server.play(truncated(BODY, HALF))
    with pytest.raises(DownloadError):
        fetch(server, target, attempts=1)
    assert target.read_bytes() == b"old"


def test_an_interrupt_leaves_a_part_to_go_on_from(server: Server, target: Path) -> None:
    def interrupt(_done: int, _total: int | None) -> None:
        raise KeyboardInterrupt

    server.script = honest({"/file": BODY})
    with pytest.raises(KeyboardInterrupt):
        fetch(server, target, on_progress=interrupt)
    assert leftovers(target) == ["file.bin.part", "file.bin.part.json"]
    begun = PartialFile(target).size()
    assert begun > 0
    fetch(server, target)
    assert target.read_bytes() == BODY
    assert server.asked[-1][1].get("Range", f"bytes={begun}-") == f"bytes={begun}-"


def test_of_two_at_once_one_is_told_to_wait(server: Server, target: Path) -> None:
    gate = threading.Event()
    server.play(Answer(BODY, headers={"ETag": TAG}, wait=gate))
    first = threading.Thread(target=fetch, args=(server, target))
    first.start()
    while not server.asked:
        time.sleep(0.001)
    with pytest.raises(DownloadError, match="another process"):
        fetch(server, target)
    gate.set()
    first.join()
    assert target.read_bytes() == BODY
    assert leftovers(target) == ["file.bin"]


def test_many_at_once_do_no_harm(server: Server, target: Path) -> None:
    server.script = honest({"/file": BODY})
    wrong: list[str] = []

    def run() -> None:
        try:
            fetch(server, target)
        except DownloadError as error:
            if "another process" not in str(error):
                wrong.append(str(error))
        if target.exists() and target.read_bytes() != BODY:
            wrong.append("not whole")

    threads = [threading.Thread(target=run) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert leftovers(target) == ["file.bin"]


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from rfa.lab.datasets.partial import locked\n"
        "with locked(Path(sys.argv[1])): os._exit(9)"
    )
    target = tmp_path / "x"
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)  # noqa: S603
    assert done.returncode == 9
    assert (tmp_path / "x.lock").exists()
    with locked(target):
        pass
    assert not (tmp_path / "x.lock").exists()
