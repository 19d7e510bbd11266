"""Processes that are copies of one that has imported everything: as fresh as new ones."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rfa.lab import forkserver
from rfa.lab.processes import AskedProcess, WorkerError, prepare

pytestmark = pytest.mark.skipif(not forkserver.CAN_FORK, reason="needs Linux")
ASKED = "tests.lab.asked"


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Servers of this test alone."""
    own = forkserver._Servers()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(forkserver, "_servers", own)
    yield own
    own.end()


def look(times: int = 1) -> Any:
    with AskedProcess(ASKED, "it") as process:
        return [process.ask({"look": True}) for _ in range(times)][-1]


def test_each_process_is_new_and_all_come_from_one_server() -> None:
    first, second = look(2), look()
    assert (first["looked"], second["looked"]) == (2, 1)
    assert first["parent"] == second["parent"] != os.getpid()
    assert first["random"] != second["random"]


def test_a_forked_process_finds_what_a_started_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    forked = look()
    monkeypatch.setattr(forkserver, "CAN_FORK", False)
    started = look()
    assert started["parent"] == os.getpid()
    assert started["path"][0] == os.getcwd()  # noqa: PTH109 of `python -m`
    for name in ("variable", "threads", "directory", "path", "arguments", "looked"):
        assert forked[name] == started[name], name


def test_a_change_of_the_environment_or_the_directory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = look()
    monkeypatch.setenv("RFA_TEST_VARIABLE", "changed")
    changed = look()
    assert (before["variable"], changed["variable"]) == (None, "changed")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert str(tmp_path) in look()["path"]
    monkeypatch.chdir(tmp_path)
    assert look()["directory"] == str(tmp_path)


def test_few_servers_are_kept(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parents: list[int] = []
    for value in range(forkserver.KEPT + 2):
        monkeypatch.setenv("RFA_TEST_VARIABLE", str(value))
        parents.append(look()["parent"])
    assert len(servers._kept) == forkserver.KEPT
    assert not any(map(_alive, parents[:2]))


def test_a_server_that_died_is_replaced() -> None:
    before = look()
    os.kill(before["parent"], signal.SIGKILL)
    after = look()
    assert after["parent"] != before["parent"]


def test_a_process_outlives_its_server_and_its_death_is_told() -> None:
    with AskedProcess(ASKED, "it") as process:
        seen = process.ask({"look": True})
        os.kill(seen["parent"], signal.SIGKILL)
        assert process.ask({})["pid"] == seen["pid"]
        os.kill(seen["pid"], signal.SIGKILL)
        with pytest.raises(WorkerError, match="it died: start the run again"):
            process.ask({})
        process.restart_if_dead()
        assert process.ask({})["pid"] != seen["pid"]


def test_a_server_that_nobody_asks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forkserver, "IDLE", 0.2)  # where it is read
    ours, theirs = forkserver.socket.socketpair(
        forkserver.socket.AF_UNIX, forkserver.socket.SOCK_SEQPACKET
    )
    with ours, theirs:
        forkserver._serve(theirs, lambda: None)  # pyright: ignore[reportPrivateUsage]


def test_a_module_that_starts_threads_is_not_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
        "from tests.lab.asked import main\n"
        "if __name__ == '__main__':\n"
        "    main()\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with AskedProcess("threaded", "it") as process:
        assert process.ask({"look": True})["parent"] == os.getpid()


def test_libraries_that_are_missing_are_the_affair_of_who_needs_them(servers: Any) -> None:
    prepare(ASKED, ["no_such_library"])
    with AskedProcess(ASKED, "it", ["no_such_library"]) as process:
        assert process.ask({"look": True})["parent"] != os.getpid()
    assert len(servers._kept) == 1


def test_a_copy_of_this_process_leaves_its_servers_alone() -> None:
    before = look()
    code = "import os, time\nfrom tests.lab.test_forkserver import look\n"
    code += "first = look()\nchild = os.fork()\n"
    code += "if not child:\n    time.sleep(60)\n"
    code += "print(first['parent'], child, look()['parent'] == first['parent'], flush=True)\n"
    code += "time.sleep(60)\n"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:  # noqa: S603
        assert owner.stdout is not None
        server, child, same = owner.stdout.readline().split()
        owner.kill()
        try:
            _wait(lambda: not _alive(int(server)))
        finally:
            os.kill(int(child), signal.SIGKILL)
    assert same == "True"
    assert look()["parent"] == before["parent"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whoever_is_killed_leaves_nobody_behind(how: int) -> None:
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rfa.lab.processes import AskedProcess\n"
        "one, two = (AskedProcess('tests.lab.asked', 'it') for _ in range(2))\n"
        "seen = one.ask({'look': True})\n"
        "print(seen['parent'], seen['pid'], two.ask({})['pid'], flush=True)\n"
        "two.ask({'sleep': 60})\n"
    )
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        owner.send_signal(how)
    _wait(lambda: not any(map(_alive, pids)))


def test_the_end_of_python_ends_servers_without_a_word() -> None:
    code = "from tests.lab.test_forkserver import look\nprint(look()['parent'])\n"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert not _alive(int(done.stdout))


def _wait(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_server_imports_installed_libraries_and_no_code_of_the_user() -> None:
    is_installed = forkserver._is_installed  # pyright: ignore[reportPrivateUsage]
    assert all(map(is_installed, ("numpy", "numpy.linalg", "json")))
    assert not any(map(is_installed, ("tests", ASKED, "no_such_library")))
