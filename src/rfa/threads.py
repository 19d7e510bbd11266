"""Work shared out to threads, with BLAS held to one thread meanwhile.

Threads of BLAS spin while they wait for each other. Beside another busy process that can take a
hundred times as long as the work itself, while threads of ours that never wait lose only their
share of the processor. It also makes sums independent of the number of processors.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
    """The work on each item, in order, by as many threads as there are processors to use."""
    threads = min(cores(), len(items))
    if threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, items)


@contextmanager
def one_blas_thread() -> Generator[None]:
    """Hold BLAS to one thread; the last one to leave gives the others back."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


class _Limit:
    """The limit is one for the whole process, so those who want it at a time are counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limiter: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limiter = _controller().limit(limits=1, user_api="blas")
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limiter.restore_original_limits()


_limit = _Limit()


@functools.cache
def _controller() -> Any:
    """Looking for the libraries takes milliseconds, so it is done once."""
    return ThreadpoolController()
