"""Python processes with requests and replies as lines of JSON.

`AskedProcess` is the side that asks, `serve` the side that answers. Lines with progress may come
before an answer. A process ends on request, or when nobody is left to ask it, even if the asking
process was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, cast

from rfa.lab import forkserver
from rfa.lab.errors import LabError

PROGRESS, ERROR = "progress", "error"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""The environment of a process beside others: libraries take one thread, not one a processor."""
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 27), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
"""Keep freed memory for the next device: from the system it would come page by page (glibc)."""
Request: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]
Tell: TypeAlias = Callable[[Any], None]


class WorkerError(LabError):
    """A worker process died or failed."""


class AskedProcess:
    """A process that runs a module of ours, whose `main` calls `serve`."""

    def __init__(self, module: str, name: str, libraries: Iterable[str] = ()) -> None:
        """Start the process.

        Args:
            module: the module to run.
            name: what an error calls the process.
            libraries: what it is going to import, so that it can start with it.
        """
        self._module, self._name, self._libraries = module, name, tuple(libraries)
        self._process = self._start()
        self.ended = False

    def ask(self, request: Request, on_progress: Tell | None = None) -> Answer:
        """Send a request, and wait for the answer.

        Args:
            request: the request.
            on_progress: is called with the progress before the answer.

        Raises:
            WorkerError: if the process answers with an error, or dies. A dead process needs
                `restart` before it can be asked again.
        """
        answer = self._exchange(request, on_progress)
        if answer is None:
            self._process.kill()  # it is gone already, or says what nobody understands
            how = _describe_end(self._process.wait())
            msg = f"{self._name} {how}: start the run again to go on from its checkpoint"
            raise WorkerError(msg)
        if ERROR in answer:
            raise WorkerError(answer[ERROR])
        return answer

    def restart_if_dead(self) -> None:
        """Start the process again if it died, but not if it was ended on purpose."""
        if self._process.has_ended() and not self.ended:
            self._process.wait()
            self._process.close()
            self._process = self._start()

    def end(self) -> None:
        """End the process, whatever it is doing; another thread may be asking it."""
        self.ended = True
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> AskedProcess:
        """Begin to use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and close its pipes, which nobody may be using."""
        self.end()
        self._process.close()

    def _exchange(self, request: Request, on_progress: Tell | None) -> Answer | None:
        """The answer to a request, or None if the process died or was ended meanwhile."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            for line in stdout:
                answer = cast("Answer", json.loads(line))
                if PROGRESS not in answer:
                    return answer
                if on_progress is not None:
                    on_progress(answer[PROGRESS])
        return None

    def _start(self) -> forkserver.Forked | _Started:
        kind = _kind(self._module, self._libraries)
        return forkserver.fork(kind) or _Started(kind)


class _Started(subprocess.Popen[str]):
    """A process that was started in the plain way."""

    def __init__(self, kind: forkserver.Kind) -> None:
        super().__init__(
            [sys.executable, "-P", "-m", kind.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(kind.environment),
        )

    def has_ended(self) -> bool:
        """Whether it has ended, for whatever reason."""
        return self.poll() is not None

    def close(self) -> None:
        """Close what leads to the process, which nobody may be using."""
        for stream in (self.stdin, self.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def prepare(module: str, libraries: Iterable[str] = ()) -> None:
    """Say that processes of a module are going to start: what can be done beforehand begins."""
    forkserver.prepare(_kind(module, tuple(libraries)))


def _kind(module: str, libraries: tuple[str, ...]) -> forkserver.Kind:
    try:
        here = str(Path.cwd())
    except FileNotFoundError as error:
        msg = "the current directory is gone: change to one that exists, and start again"
        raise WorkerError(msg) from error
    path = os.pathsep.join(part or here for part in sys.path)
    environment = KEEP_MEMORY | os.environ | ONE_THREAD | {"PYTHONPATH": path}
    return forkserver.Kind.of(module, libraries, environment)


def _describe_end(code: int | None) -> str:
    if code is None:
        return "died"
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def serve(answer: Callable[[Request, Tell], Answer]) -> None:
    """Answer the requests on standard input until it ends; what others print goes to stderr.

    An interruption is the affair of who asks. When nobody is left to ask, the process ends at
    once, in the middle of a request if need be.

    Args:
        answer: is called with a request and with what tells progress; returns the answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)  # the user's own code, and what it starts, may print
        sys.stdout = sys.stderr

        def send(reply: Answer) -> None:
            try:
                print(json.dumps(reply), file=replies, flush=True)
            except BrokenPipeError:
                os._exit(0)

        while True:
            request = json.loads(requests.get())
            send(answer(request, lambda progress: send({PROGRESS: progress})))


def _listen(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)  # who asked is gone, and nobody waits for the answer
