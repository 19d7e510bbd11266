"""Processes that start in milliseconds: copies of one that has imported everything already.

Most of a short process is spent on imports: half a second for ours, and some more for torch. A
server (`python -m rfa.lab.forkserver`) imports a module of ours and the libraries that it will
need, runs nothing, and forks itself whenever a process of that module is asked for. Each copy is as
fresh as a new process: it has imported none of the user's own code, and what it does dies with it.

A server belongs to the process that started it, and ends with it, or when nobody asked for long. It
serves as long as environment, directory and module path are the same; then another takes its
place. Where a process cannot be forked safely (not on Linux, or a library has started threads), it
is started in the plain way.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TextIO

from rfa.lab.errors import LabError

KEPT = 4
"""Servers that a process keeps: for workers and for jobs, with torch and without."""
IDLE = 600.0
"""Seconds after which a server ends that nobody has asked, and that has no process left."""
LONGEST = 1 << 10
"""Bytes of a message, at most."""


class ServerGoneError(LabError):
    """A server has ended, or cannot serve."""


@dataclass(frozen=True)
class Kind:
    """The properties of a process that decide how it starts.

    Attributes:
        module: the module that it runs: its function `main`.
        libraries: libraries that it will import besides those of the module.
        environment: its environment, as pairs.
        directory: its working directory.
    """

    module: str
    libraries: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    directory: str

    @classmethod
    def of(cls, module: str, libraries: tuple[str, ...], environment: Mapping[str, str]) -> Kind:
        """The kind of a process that starts here and now."""
        return cls(module, libraries, tuple(sorted(environment.items())), str(Path.cwd()))


class Forked:
    """A process that a server forked."""

    def __init__(self, server: ForkServer, pid: int, stdin: TextIO, stdout: TextIO) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._server, self._lock, self._is_known = server, threading.Lock(), False
        self._handle = os.pidfd_open(pid)  # unlike its number, it never stands for another

    def kill(self) -> None:
        """Kill the process, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self) -> int | None:
        """Wait until it ends, and return its exit code; None if its server is gone, who knew it."""
        self._has_ended(None)
        with self._lock:
            if not self._is_known:
                self._is_known, self.returncode = True, self._server.exit_code(self.pid)
        return self.returncode

    def has_ended(self) -> bool:
        """Whether it has ended, for whatever reason."""
        return self._has_ended(0)

    def close(self) -> None:
        """Close what leads to the process, which has ended, and which nobody may be using."""
        for stream in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                stream.close()
        os.close(self._handle)

    def _has_ended(self, timeout: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._handle, select.POLLIN)
        return bool(waiting.poll(timeout))


class ForkServer:
    """A server of this process: the side that asks."""

    def __init__(self, kind: Kind) -> None:
        """Start the server; requests wait until it has imported everything."""
        self.has_ended, self._lock = False, threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(  # noqa: S603 our own module
                [*command, kind.module, *kind.libraries],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=dict(kind.environment),
                cwd=kind.directory,
            )

    def fork(self) -> Forked:
        """A new process.

        Raises:
            ServerGoneError: if the server has ended.
        """
        with contextlib.ExitStack() as stack:
            theirs_in, stdin = os.pipe()
            writer = os.fdopen(stdin, "w", encoding="utf-8")
            stack.callback(os.close, theirs_in)
            stdout, theirs_out = os.pipe()
            reader = os.fdopen(stdout, encoding="utf-8")
            stack.callback(os.close, theirs_out)
            try:
                pid = self._ask("fork", [theirs_in, theirs_out, 2])
                return Forked(self, pid, writer, reader)
            except BaseException:
                writer.close()  # ends a process that nobody waits for
                reader.close()
                raise

    def exit_code(self, pid: int) -> int | None:
        """The exit code of a process that has ended; None if the server is gone."""
        with contextlib.suppress(ServerGoneError):
            return self._ask(f"collect {pid}")
        return None

    def end(self) -> None:
        """End the server; its processes run until their input ends."""
        self.has_ended = True
        self._control.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Leave it to the process that this one is a copy of."""
        self._control.close()
        self._process.returncode = 0  # it is no child of this process

    def _ask(self, request: str, handles: Sequence[int] = ()) -> int:
        with self._lock:
            try:
                socket.send_fds(self._control, [request.encode()], handles)
                answer = self._control.recv(LONGEST)
            except OSError as error:
                self.end()
                raise ServerGoneError from error
            except BaseException:  # an answer that nobody reads would be taken for another
                self.end()
                raise
            if not answer:
                self.end()
                raise ServerGoneError
            return int(answer)


class _Servers:
    """The servers of this process, those used last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Kind, ForkServer] = OrderedDict()
        self._useless: set[Kind] = set()
        self._lock = threading.Lock()

    def of(self, kind: Kind) -> ForkServer:
        """The server of a kind, started if there is none."""
        with self._lock:
            server = self._kept.pop(kind, None)
            if server is None or server.has_ended:
                server = ForkServer(kind)
            self._kept[kind] = server
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)[1].end()
            return server

    def fork(self, kind: Kind) -> Forked | None:
        """A new process, or None where there is no server that could make it.

        A server may have ended meanwhile: then another one is asked, once.
        """
        if kind in self._useless:
            return None
        for _ in range(2):
            with contextlib.suppress(ServerGoneError, OSError):
                return self.of(kind).fork()
        self._useless.add(kind)
        return None

    def end(self) -> None:
        """End them all."""
        while self._kept:
            self._kept.popitem()[1].end()

    def forget(self) -> None:
        """Leave them to the process that this one is a copy of."""
        self._lock = threading.Lock()
        while self._kept:
            self._kept.popitem()[1].forget()


CAN_FORK = sys.platform == "linux" and hasattr(os, "pidfd_open")
"""Elsewhere libraries of the system start threads, which a copy does not have."""
_servers = _Servers()
atexit.register(_servers.end)
if CAN_FORK:
    os.register_at_fork(after_in_child=_servers.forget)


def prepare(kind: Kind) -> None:
    """Let processes of a kind start sooner: their server imports meanwhile."""
    if CAN_FORK:
        with contextlib.suppress(OSError):
            _servers.of(kind)


def fork(kind: Kind) -> Forked | None:
    """A new process of a kind, or None where it must be started in the plain way."""
    return _servers.fork(kind) if CAN_FORK else None


def main() -> None:
    """Be a server: import everything, and fork when asked, until nobody is left to ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    number, module, *libraries = sys.argv[1:]
    with socket.socket(fileno=int(number)) as control:
        control.set_inheritable(False)
        for name in filter(_is_installed, libraries):
            with contextlib.suppress(ImportError):  # the process itself will say what is missing
                importlib.import_module(name)
        work = importlib.import_module(module).main
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            return  # a copy would not have the other threads
        del sys.argv[1:]
        gc.collect()
        gc.freeze()  # pages that nobody touches stay shared
        _serve(control, work)


def _is_installed(name: str) -> bool:
    """Whether a module is an installed library, and no code of the user's, which may change."""
    spec = importlib.util.find_spec(name.partition(".")[0])
    places = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]
    return bool(spec and spec.origin and any(map(Path(spec.origin).is_relative_to, places)))


def _serve(control: socket.socket, work: Callable[[], None]) -> None:
    children: set[int] = set()
    control.settimeout(IDLE)
    while True:
        try:
            message, handles, _, _ = socket.recv_fds(control, LONGEST, 3)
        except TimeoutError:
            if children:
                continue
            return
        if not message:
            break
        if handles:
            answer = os.fork()
            if not answer:
                _become(control, handles, work)
            children.add(answer)
            for handle in handles:
                os.close(handle)
        else:
            pid = int(message.split()[1])
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            children.remove(pid)
        control.send(str(answer).encode())
    for pid in children:  # they end with who asked for them
        os.waitpid(pid, 0)


def _become(control: socket.socket, handles: Sequence[int], work: Callable[[], None]) -> NoReturn:
    """Be the process that was asked for, with its own input and outputs."""
    try:
        control.close()
        for target, handle in enumerate(handles):
            os.dup2(handle, target)
            os.close(handle)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()  # as in a new process; `random` does it by itself
        work()
    except BaseException:  # noqa: BLE001 no copy may go on as a server
        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    main()
