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


def times(calls: dict[str, Call], *, rounds: int, seconds: float = 0.3) -> dict[str, float]:
    """The median time of each call in milliseconds.

    In each of the rounds every call runs, after one run to warm up, for some time and at least
    once; threads of different libraries that linger after a call then disturb the warm-up only.
    What takes longer than ten times that is warm enough after its first round.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if not taken[name] or taken[name][-1] < 10 * seconds:
                call()
            gc.collect()
            spent = 0.0
            while spent <= seconds:
                start = time.perf_counter()
                call()
                taken[name].append(time.perf_counter() - start)
                spent += taken[name][-1]
    return {name: 1e3 * statistics.median(values) for name, values in taken.items()}


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
