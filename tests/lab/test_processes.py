"""Processes that are asked by lines: answers, progress, failures, deaths, and no orphans."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from rfa.lab import forkserver
from rfa.lab.processes import AskedProcess, WorkerError


@pytest.fixture(params=["forked", "started"])
def process(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AskedProcess]:
    """A process that starts in either way."""
    if request.param == "started":
        monkeypatch.setattr(forkserver, "CAN_FORK", False)
    with AskedProcess("tests.lab.asked", "the process") as started:
        yield started


def test_an_answer_comes_after_its_progress_whatever_is_printed(process: AskedProcess) -> None:
    told: list[float] = []
    first = process.ask({"tell": [0.5, 1.0], "print": "no JSON"}, told.append)
    assert told == [0.5, 1.0]
    assert process.ask({"tell": [0.5]}) == first


def test_an_error_is_raised_and_the_process_lives_on(process: AskedProcess) -> None:
    before = process.ask({})
    with pytest.raises(WorkerError, match="no such thing"):
        process.ask({"fail": "no such thing"})
    process.restart_if_dead()
    assert process.ask({}) == before


def test_a_death_is_told_and_the_process_can_start_again(process: AskedProcess) -> None:
    before = process.ask({})
    with pytest.raises(WorkerError, match=r"the process ended with code 3: start the run again"):
        process.ask({"exit": 3})
    process.restart_if_dead()
    again = process.ask({})
    assert again != before
    os.kill(again["pid"], signal.SIGKILL)
    with pytest.raises(WorkerError, match="the process was killed by signal 9"):
        process.ask({})


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_memory_that_was_freed_is_used_again(process: AskedProcess) -> None:
    assert process.ask({"allocate": [24 << 20] * 3})["faults"] < 1000  # 18,000 pages of 4 kB


def test_an_interruption_is_the_affair_of_who_asks(process: AskedProcess) -> None:
    before = process.ask({})
    os.kill(before["pid"], signal.SIGINT)
    assert process.ask({}) == before


def test_who_is_ended_while_it_is_asked_is_not_started_again(process: AskedProcess) -> None:
    process.ask({})
    failed: list[WorkerError] = []

    def ask() -> None:
        try:
            process.ask({"sleep": 60})
        except WorkerError as error:
            failed.append(error)

    thread = Thread(target=ask)
    thread.start()
    process.end()
    thread.join(timeout=20)
    process.restart_if_dead()
    assert process.ended
    assert len(failed) == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_process_in_the_middle_of_its_work_ends_with_who_asked() -> None:
    code = (
        "from rfa.lab.processes import AskedProcess\n"
        "process = AskedProcess('tests.lab.asked', 'it')\n"
        "print(process.ask({})['pid'], flush=True)\n"
        "process.ask({'sleep': 60})\n"
    )
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        asking.kill()
    for _ in range(200):
        if not _alive(pid):
            return
        time.sleep(0.05)
    pytest.fail("it is still there")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("can_fork", [True, False])
def test_files_of_the_current_directory_are_not_taken_for_modules(
    can_fork: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "CAN_FORK", can_fork and forkserver.CAN_FORK)
    for name in ("random.py", "numpy.py", "queue.py"):
        (tmp_path / name).write_text("raise SystemExit('a file of the user')\n")
    monkeypatch.setattr(sys, "path", [part or str(Path.cwd()) for part in sys.path])
    monkeypatch.chdir(tmp_path)
    with AskedProcess("tests.lab.asked", "the process") as started:
        assert started.ask({})["pid"]


def test_a_current_directory_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(WorkerError, match="the current directory is gone: change to one"):
        AskedProcess("tests.lab.asked", "the process")
