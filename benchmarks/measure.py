"""Times and memory of calls that take turns, so that a change of the machine's mood hits all."""

from __future__ import annotations

import ctypes
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
ENOUGH = 2
"""Times of a call that takes very long."""


def times(calls: dict[str, Call], *, rounds: int, seconds: float = 0.3) -> dict[str, float]:
    """The median time of each call in milliseconds.

    In each of the rounds every call runs, after one run to warm up, for some time and at least
    once; threads of different libraries that linger after a call then disturb the warm-up only.
    A call that takes longer than ten times that runs twice in all: a first run is as good as
    another then, and some peers stall for many seconds beside busy processes.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    long = 10 * seconds
    for _ in range(rounds):
        for name, call in calls.items():
            if sum(one > long for one in taken[name]) >= ENOUGH:
                continue
            warm_up = _timed(call)
            if warm_up > long:
                taken[name].append(warm_up)
                continue
            gc.collect()
            spent = 0.0
            while spent <= seconds:
                taken[name].append(_timed(call))
                spent += taken[name][-1]
    return {name: 1e3 * statistics.median(values) for name, values in taken.items()}


def _timed(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextmanager
def busy_processes(count: int) -> Generator[None]:
    """So many other processes that compute without end, until this ends."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def extra_memory(call: Call) -> float:
    """How many megabytes a call needs at its peak beyond what there was before (Linux, glibc)."""
    call()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier calls left behind would serve this one
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    answer = call()
    peak = _status("VmHWM")
    del answer
    return (peak - before) / 1024


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    msg = f"no {field} in /proc/self/status"
    raise LookupError(msg)


def processes_below(pid: str) -> Iterator[str]:
    """The processes that a process started, and those that they did."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            yield child
            yield from processes_below(child)
