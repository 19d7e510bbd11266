"""Work shared out to threads: numpy lets go of Python's lock while it copies, sorts and adds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from threading import Lock
from typing import TypeVar

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


class Threads:
    """Threads for one piece of work after another: they start when needed, and end with this.

    The caller works too. A caller that waits instead leaves it to the system where the threads
    that it wakes are put, and for work of some milliseconds that was often the same processor.
    Each takes the next item when it is done with one, so none waits for one that is held up.
    They work in the caller's context, and so ignore the warnings of numpy that it ignores.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def map(
        self, work: Callable[[Item], Answer], items: Sequence[Item], most: int | None = None
    ) -> list[Answer]:
        """The work on each item, in order, by at most a number of threads."""
        helpers = min(cores(), len(items), most or len(items)) - 1
        if helpers <= 0:
            return [work(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max(cores() - 1, 1))
        turns = _Turns(len(items))
        answers: dict[int, Answer] = {}

        def take_turns() -> None:
            for turn in turns:
                answers[turn] = work(items[turn])

        futures = [self._pool.submit(copy_context().run, take_turns) for _ in range(helpers)]
        try:
            take_turns()
        finally:
            turns.end()
            started = [future for future in futures if not future.cancel()]
            wait(started)
        for future in started:
            future.result()
        return [answers[turn] for turn in range(len(items))]


class _Turns:
    """The numbers from 0 on, each of which goes to one thread."""

    def __init__(self, count: int) -> None:
        self._left = iter(range(count))
        self._lock = Lock()

    def __iter__(self) -> Iterator[int]:
        while (turn := self._next()) is not None:
            yield turn

    def _next(self) -> int | None:
        with self._lock:
            return next(self._left, None)

    def end(self) -> None:
        """Let no more numbers go out, such as after an error."""
        with self._lock:
            self._left = iter(range(0))
