"""Many runs, several at the same time, each in its own process.

A run keeps one processor busy by itself. So one run per processor is faster than one run with a
worker per processor. Runs that are done are not repeated, and a failed run does not stop the
others.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rfa._threads import cores
from rfa.errors import PluginError, RfaError
from rfa.lab.datasets.dataset import DataError
from rfa.lab.objects import names_of, pack, texts_of
from rfa.lab.processes import AskedProcess, Request, Tell, WorkerError
from rfa.lab.runs.digest import begin_digest, finish_digest
from rfa.lab.runs.estimate import total_seconds
from rfa.lab.runs.run import Options
from rfa.lab.runs.spent import libraries_of
from rfa.lab.runs.store import DONE, Store
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import find_task

if TYPE_CHECKING:
    from _hashlib import HASH as Digest  # noqa: N811


@dataclass(frozen=True)
class Work:
    """The work to do.

    Attributes:
        todo: runs that are not done, each once, in order.
        done: the number of runs that are done.
        seconds: the approximate time for the rest on this machine.
        at_once: the number of runs at the same time.
    """

    todo: Sequence[Settings]
    done: int
    seconds: float
    at_once: int


class SweepObserver(Protocol):
    """An observer of many runs."""

    def on_begin(self, settings: Settings) -> None:
        """A run begins."""

    def on_progress(self, settings: Settings, done: float) -> None:
        """A share of a run is done."""

    def on_end(self, settings: Settings, problem: str) -> None:
        """A run has ended, with a problem or without."""


class _SameData:
    """Whether runs that are done used the data, and the user's own code, as they are now."""

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._examples = functools.cache(self._read)

    def holds(self, settings: Settings, row: Mapping[str, Any] | None) -> bool:
        """Whether a run is done and would come out the same.

        Missing data is no change; but without it nobody can tell whether the user's own code is
        still the same, so such a run is not done.
        """
        if row is None:
            return False
        try:
            training = settings.training
            begun, there = self._examples(settings.task, training.partition, training.devices)
        except DataError:
            return not any(":" in name for name in names_of(settings))
        count = settings.training.devices or min(find_task(settings.task).devices, there)
        return finish_digest(begun, settings, count) == row["data"]

    def _read(self, task: str, partition: str, devices: int) -> tuple[Digest, int]:
        population = find_task(task).load(self._data, partition=partition, devices=devices)
        return begin_digest(population), len(population)


def plan_work(runs: Iterable[Settings], options: Options, at_once: int = 0) -> Work:
    """Which of the runs are not done yet, and how long they take."""
    unique = {settings.run_name: settings for settings in runs}
    known: list[dict[str, Any]] = []
    if not options.fresh and (options.out / "runs.sqlite").exists():
        with Store(options.out) as store:
            known = store.runs()
    ended = {row["run"]: row for row in known if row["status"] in DONE}
    same = _SameData(options.data)
    done = {name for name, settings in unique.items() if same.holds(settings, ended.get(name))}
    todo = [settings for name, settings in unique.items() if name not in done]
    slots = max(1, min(at_once or cores(), len(todo)))
    total = total_seconds(todo, known) / min(slots, cores())
    return Work(todo, len(unique) - len(todo), total, slots)


def do_work(work: Work, options: Options, observer: SweepObserver) -> dict[str, str]:
    """Do all runs, and return the problems of those that could not be done, by their names."""
    if options.rebuild:
        _rebuild(work.todo, options.data)
    waiting: queue.SimpleQueue[Settings] = queue.SimpleQueue()
    for settings in work.todo:
        waiting.put(settings)
    problems: dict[str, str] = {}
    workers = options.workers or max(1, cores() // work.at_once)
    how = {
        "paths": {"out": str(options.out), "data": options.data and str(options.data)},
        "options": {
            "workers": workers,
            "checkpoint_every": options.checkpoint_every,
            "fresh": options.fresh,
            "in_process": workers == 1,
        },
    }
    slots = [_Slot(once=workers == 1) for _ in range(work.at_once)]
    with contextlib.ExitStack() as stack:
        for slot in slots:
            stack.callback(slot.close)
        threads = stack.enter_context(ThreadPoolExecutor(work.at_once))
        loops = [threads.submit(_feed, slot, waiting, how, observer, problems) for slot in slots]
        try:
            for loop in loops:
                loop.result()
        except BaseException:
            for slot in slots:
                slot.end()
            raise
    return problems


class _Slot:
    """A place for one run at a time, and the process that does it.

    A process that trains devices itself does one run, so that nothing of a run meets the next:
    neither code of the user's, nor memory. One that has workers goes on with them.
    """

    def __init__(self, *, once: bool) -> None:
        self.ended, self._once = False, once
        self._process: AskedProcess | None = None
        self._lock = threading.Lock()

    def do(self, request: Request, libraries: Iterable[str], on_progress: Tell) -> None:
        """Do a run in a process that has some libraries.

        Raises:
            WorkerError: if the run fails, or its process dies, or the slot has been ended.
        """
        with self._lock:
            if self.ended:
                msg = "ended"
                raise WorkerError(msg)
            if self._process is None:
                self._process = AskedProcess("rfa.lab.runs.job", "its process", libraries)
            process = self._process
        process.restart_if_dead()
        try:
            process.ask(request, on_progress)
        finally:
            if self._once:
                self.close()

    def end(self) -> None:
        """End the process, which may be in the middle of a run, and start no other."""
        with self._lock:
            self.ended = True
            if self._process is not None:
                self._process.end()

    def close(self) -> None:
        """End the process, which nobody may be asking."""
        with self._lock:
            if self._process is not None:
                self._process.__exit__()
            self._process = None


def _rebuild(runs: Sequence[Settings], data: Path | None) -> None:
    """Read the data sets of runs again, each once; runs report data that cannot be read."""
    each = {(run.task, run.training.partition, run.training.devices) for run in runs}
    for task, partition, devices in sorted(each):
        with contextlib.suppress(RfaError):
            find_task(task).load(data, partition=partition, devices=devices, rebuild=True)


def _feed(
    slot: _Slot,
    waiting: queue.SimpleQueue[Settings],
    how: Mapping[str, Any],
    observer: SweepObserver,
    problems: dict[str, str],
) -> None:
    """Do run after run in a slot until none waits."""
    while not slot.ended:
        try:
            settings = waiting.get_nowait()
        except queue.Empty:
            return
        observer.on_begin(settings)
        problem = ""
        try:
            objects = pack(texts_of(settings))
            slot.do(
                {**how, "settings": settings.to_dict(), "objects": objects},
                libraries_of(settings),
                lambda done, settings=settings: observer.on_progress(settings, done),
            )
        except (WorkerError, PluginError) as error:
            problem = problems[settings.run_name] = str(error)
        if slot.ended:
            return
        observer.on_end(settings, problem)
