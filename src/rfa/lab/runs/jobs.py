"""Many runs, several at once, each in a process of its own.

A run keeps one processor busy by itself, so as many runs at once as there are processors is faster
than one run with as many workers. Runs that are done already are not done again, and one that fails
does not stop the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from rfa._threads import cores
from rfa.lab.datasets.cache import load
from rfa.lab.datasets.dataset import DataError
from rfa.lab.runs.estimate import pace, seconds
from rfa.lab.runs.run import Digest, Options, begin_digest, finish_digest
from rfa.lab.runs.store import Store
from rfa.lab.settings.config import run_name
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.pool import ONE_THREAD

DONE = ("finished", "diverged")


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


class _SameData:
    """Whether runs that are done used the data, and the user's own code, as they are now."""

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._begun: dict[tuple[str, bool], tuple[Digest, int]] = {}

    def holds(self, settings: Settings, row: Mapping[str, Any] | None) -> bool:
        """Whether a run is done and would come out the same; missing data is no change."""
        if row is None:
            return False
        try:
            begun, there = self._examples(settings)
            count = settings.devices or min(find_task(settings.task).devices, there)
            return finish_digest(begun, settings, count) == row["data"]
        except DataError:
            return True

    def _examples(self, settings: Settings) -> tuple[Digest, int]:
        key = settings.task, settings.iid
        if key not in self._begun:
            reader = find_task(settings.task).reader
            population = load(reader, self._data, iid=settings.iid)
            self._begun[key] = begin_digest(population), len(population)
        return self._begun[key]


class Overseer(Protocol):
    """Whoever wants to know how many runs go."""

    def on_begin(self, settings: Settings) -> None:
        """A run begins."""
        ...

    def on_progress(self, settings: Settings, done: float) -> None:
        """A share of a run is done."""
        ...

    def on_end(self, settings: Settings, problem: str) -> None:
        """A run has ended, with a problem or without."""
        ...


def plan_work(runs: Iterable[Settings], options: Options, at_once: int = 0) -> Work:
    """Which of the runs are not done yet, and how long they take."""
    unique = {run_name(settings): settings for settings in runs}
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


def do_work(work: Work, options: Options, overseer: Overseer) -> dict[str, str]:
    """Do all runs; the problems of those that could not be done, by their names."""
    waiting: queue.SimpleQueue[Settings] = queue.SimpleQueue()
    for settings in work.todo:
        waiting.put(settings)
    problems: dict[str, str] = {}
    workers = max(1, cores() // work.at_once)
    order = {
        "out": str(options.out),
        "data": options.data and str(options.data),
        "workers": options.workers or workers,
        "checkpoint_every": options.checkpoint_every,
        "fresh": options.fresh,
    }
    with _processes(work.at_once) as processes, ThreadPoolExecutor(work.at_once) as threads:
        loops = [
            threads.submit(_serve, process, waiting, order, overseer, problems)
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


def _serve(
    process: _Process,
    waiting: queue.SimpleQueue[Settings],
    order: Mapping[str, Any],
    overseer: Overseer,
    problems: dict[str, str],
) -> None:
    """Give one process run after run until none waits."""
    while True:
        try:
            settings = waiting.get_nowait()
        except queue.Empty:
            return
        overseer.on_begin(settings)
        whole = {**order, "settings": dataclasses.asdict(settings)}
        problem = process.do(whole, lambda done, s=settings: overseer.on_progress(s, done))
        if process.ended:
            return
        if problem:
            problems[run_name(settings)] = problem
        overseer.on_end(settings, problem)


@dataclass
class _Process:
    """One process that does runs."""

    process: subprocess.Popen[str]
    ended: bool = False

    def do(self, order: Mapping[str, Any], tell: Callable[[float], None]) -> str:
        """Give an order and follow it to its end; what was the problem, if any."""
        rounds = order["settings"]["rounds"]
        with contextlib.suppress(OSError, ValueError):  # it died, or was ended meanwhile
            stdin, stdout = self.process.stdin, self.process.stdout
            if stdin is not None and stdout is not None:
                stdin.write(json.dumps(order) + "\n")
                stdin.flush()
                for line in stdout:
                    answer = cast("dict[str, Any]", json.loads(line))
                    if "round" in answer:
                        tell(answer["round"] / rounds)
                    if "done" in answer:
                        return ""
                    if "error" in answer:
                        return str(answer["error"])
        if not self.ended:
            self.process.kill()  # it is gone, or says what nobody understands
            code = self.process.wait()
            self._close()
            self.process = _start()
            return f"its process ended with code {code}: start again to go on"
        return "ended"

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.ended = True
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the process, and its streams, which nobody may be using."""
        self.end()
        self._close()

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@contextlib.contextmanager
def _processes(count: int) -> Generator[list[_Process]]:
    processes = [_Process(_start()) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.close()


def _start() -> subprocess.Popen[str]:
    path = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
    return subprocess.Popen(
        [sys.executable, "-m", "rfa.lab.runs.job"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
    )
