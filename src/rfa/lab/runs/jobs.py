"""Many runs, several at once, each in a process of its own.

A run keeps one processor busy by itself, so as many runs at once as there are processors is faster
than one run with as many workers. Runs that are done already are not done again, and one that fails
does not stop the others.
"""

from __future__ import annotations

import contextlib
import functools
import queue
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rfa._threads import cores
from rfa.errors import PluginError, RfaError
from rfa.lab.datasets.dataset import DataError
from rfa.lab.objects import names_of, pack, texts_of
from rfa.lab.processes import AskedProcess, WorkerError
from rfa.lab.runs.estimate import pace, seconds
from rfa.lab.runs.run import Options, begin_digest, finish_digest
from rfa.lab.runs.store import DONE, Store
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import find_task

if TYPE_CHECKING:
    from _hashlib import HASH as Digest  # noqa: N811


@dataclass(frozen=True)
class Work:
    """What is to be done.

    Attributes:
        todo: runs that are not done, each once, in order.
        done: how many others are done already.
        seconds: how long the rest takes on this machine, about.
        at_once: how many runs go on at once.
    """

    todo: Sequence[Settings]
    done: int
    seconds: float
    at_once: int


class SweepObserver(Protocol):
    """What is told how many runs go."""

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
    total = pace(known) * sum(seconds(settings) for settings in todo) / min(slots, cores())
    return Work(todo, len(unique) - len(todo), total, slots)


def do_work(work: Work, options: Options, observer: SweepObserver) -> dict[str, str]:
    """Do all runs, and return the problems of those that could not be done, by their names."""
    if options.rebuild:
        _rebuild(work.todo, options.data)
    waiting: queue.SimpleQueue[Settings] = queue.SimpleQueue()
    for settings in work.todo:
        waiting.put(settings)
    problems: dict[str, str] = {}
    how = {
        "paths": {"out": str(options.out), "data": options.data and str(options.data)},
        "options": {
            "workers": options.workers or max(1, cores() // work.at_once),
            "checkpoint_every": options.checkpoint_every,
            "fresh": options.fresh,
        },
    }
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(AskedProcess("rfa.lab.runs.job", "its process"))
            for _ in range(work.at_once)
        ]
        threads = stack.enter_context(ThreadPoolExecutor(work.at_once))
        loops = [
            threads.submit(_feed, process, waiting, how, observer, problems)
            for process in processes
        ]
        try:
            for loop in loops:
                loop.result()
        except BaseException:
            for process in processes:
                process.end()
            raise
    return problems


def _rebuild(runs: Sequence[Settings], data: Path | None) -> None:
    """Read the data sets of runs anew, each once; what cannot be read, the runs will tell."""
    each = {(run.task, run.training.partition, run.training.devices) for run in runs}
    for task, partition, devices in sorted(each):
        with contextlib.suppress(RfaError):
            find_task(task).load(data, partition=partition, devices=devices, rebuild=True)


def _feed(
    process: AskedProcess,
    waiting: queue.SimpleQueue[Settings],
    how: Mapping[str, Any],
    observer: SweepObserver,
    problems: dict[str, str],
) -> None:
    """Give a process run after run until none waits; one that dies is started again."""
    while not process.ended:
        try:
            settings = waiting.get_nowait()
        except queue.Empty:
            return
        observer.on_begin(settings)
        problem = ""
        try:
            objects = pack(texts_of(settings))
            process.ask(
                {**how, "settings": settings.to_dict(), "objects": objects},
                lambda done, settings=settings: observer.on_progress(settings, done),
            )
        except (WorkerError, PluginError) as error:
            problem = problems[settings.run_name] = str(error)
        if process.ended:
            return
        process.restart_if_dead()
        observer.on_end(settings, problem)
