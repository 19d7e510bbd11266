"""The workers of a run: processes with one thread each, kept from the first round to the last.

A device's work is the same in every worker, so the number of workers only decides how long a round
takes. A process that does nothing but a run can be its only worker itself.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rfa._types import Floats32
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.objects import pack, texts_of
from rfa.lab.processes import AskedProcess, prepare
from rfa.lab.tasks.task import Task
from rfa.lab.training.devices import Devices, Tally
from rfa.lab.training.kept import NEVER, KeptFile, Slots
from rfa.lab.training.worker import Jobs, Scratch, Worker

WORKER = "rfa.lab.training.worker"
SHARE = 1.5
"""A job is the remaining work of a round, divided by this and by the number of workers."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


def prepare_workers(task: Task) -> None:
    """Start the imports for a task's workers early, while other work is done."""
    lab_module("threadpoolctl")  # it sets a variable of the environment, which workers start with
    prepare(WORKER, task.libraries)


@contextlib.contextmanager
def open_pool(devices: Devices, workers: int, *, kept: Path | None = None) -> Generator[WorkerPool]:
    """Start worker processes for the devices of a run, and end them at the end.

    They get the settings of the devices, the cache entry of the data, and the file of kept vectors,
    if any.
    """
    settings = devices.settings
    begin = {
        "do": "begin",
        "objects": pack(texts_of(settings)),
        "settings": settings.to_dict(),
        "population": str(devices.population.folder),
        "kept": kept and str(kept),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(one_blas_thread())
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        processes = [
            stack.enter_context(AskedProcess(WORKER, f"worker {number}", devices.task.libraries))
            for number in range(workers)
        ]
        with _scratch_file(Scratch.rows(settings) * devices.dim * 4) as path:
            scratch = Scratch.open(path, settings, devices.dim)
            begin |= {"scratch": str(path)}
            list(threads.map(AskedProcess.ask, processes, [begin] * workers))
        file = kept and KeptFile(kept, devices.count, devices.dim)
        yield WorkerPool(devices, scratch, processes, threads.map, file)


@contextlib.contextmanager
def pool_of_one(devices: Devices, *, kept: Path | None = None) -> Generator[WorkerPool]:
    """Use this process as the only worker, if it does nothing else.

    Its libraries must have been limited to one thread before it started, as `AskedProcess` does.
    """
    settings = devices.settings
    vectors = np.zeros((Scratch.rows(settings), devices.dim), np.float32)
    scratch = Scratch.of(vectors, settings)
    file = kept and KeptFile(kept, devices.count, devices.dim)
    jobs = Jobs()
    jobs.worker = Worker(devices, scratch, file)
    yield WorkerPool(devices, scratch, [jobs], map, file)


class Asked(Protocol):
    """A worker, in this process or in another one."""

    def ask(self, request: dict[str, Any], /) -> dict[str, Any]:
        """Do a job, and return the answer."""
        ...


Map = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Maps a function over items, one after another or in parallel."""


class WorkerPool:
    """Workers that train and evaluate the devices of a run; `open_pool` starts them."""

    def __init__(
        self,
        devices: Devices,
        scratch: Scratch,
        workers: Sequence[Asked],
        do_all: Map,
        kept: KeptFile | None,
    ) -> None:
        self._devices, self._scratch, self._do_all = devices, scratch, do_all
        self._kept, self._workers = kept, len(workers)
        self._free: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        for worker in workers:
            self._free.put(worker)

    def train(
        self, model: Floats32, t: int, devices: Sequence[int], slots: Slots | None = None
    ) -> Floats32:
        """Return what devices send in round t, one row each; the next round reuses the memory."""
        self._scratch.model[:] = model
        rows = {device: row for row, device in enumerate(devices)}
        jobs = [
            {
                "do": "train",
                "round": t,
                "devices": part,
                "rows": [rows[device] for device in part],
                "slots": _current(slots, part),
            }
            for part in self._share_out(devices)
        ]
        answers = list(self._do_all(self._do, jobs))
        if slots is not None and self._kept:
            for device in (device for answer in answers for device in answer["keep"]):
                self._kept.write(device, slots.move(device), self._scratch.kept[rows[device]])
        return self._scratch.updates[: len(devices)]

    def flush(self) -> None:
        """Make sure that the kept vectors of devices are on disk."""
        if self._kept:
            self._kept.flush()

    def evaluate(self, model: Floats32, slots: Slots | None = None) -> list[Tally]:
        """Return the evaluation of a model on each device of the population, in order."""
        self._scratch.model[:] = model
        everyone = list(range(self._devices.count))
        jobs: list[dict[str, Any]] = [
            {"do": "evaluate", "devices": part, "slots": _current(slots, part)}
            for part in self._share_out(everyone)
        ]
        answers = list(self._do_all(self._do, jobs))
        tallies = {
            device: Tally(*numbers)
            for job, answer in zip(jobs, answers, strict=True)
            for device, numbers in zip(job["devices"], answer["tallies"], strict=True)
        }
        return [tallies[device] for device in everyone]

    def _do(self, job: dict[str, Any]) -> dict[str, Any]:
        worker = self._free.get()
        try:
            return worker.ask(job)
        finally:
            self._free.put(worker)

    def _share_out(self, devices: Sequence[int]) -> list[list[int]]:
        """Return parts that get smaller, so that all workers end at about the same time.

        Each has the same fraction of the remaining work; the largest devices come first.
        """
        order = sorted(devices, key=lambda device: -self._devices.cost(device))
        left = sum(self._devices.cost(device) for device in devices)
        parts: list[list[int]] = []
        room = 0.0
        for device in order:
            if room <= 0:
                parts.append([])
                room = left / (SHARE * self._workers)
            parts[-1].append(device)
            room -= self._devices.cost(device)
            left -= self._devices.cost(device)
        return parts


def _current(slots: Slots | None, devices: list[int]) -> list[int]:
    """Return the slots of the current vectors of devices."""
    return [int(slots.current[device]) if slots else NEVER for device in devices]


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """Limit this process's BLAS to one thread, beside other busy processes.

    BLAS threads spin while they wait for the next product, on processors that others need: without
    this limit, a round of softmax regression takes half as long again.
    """
    return lab_module("threadpoolctl").threadpool_limits(1, user_api="blas")


@contextlib.contextmanager
def _scratch_file(size: int) -> Generator[Path]:
    """Yield a file for shared memory, on a file system in memory if there is room.

    Its name is removed when all processes have opened it, so nothing stays behind if one is killed.
    """
    room = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 2 * size
    where = SHARED_MEMORY if room else Path(tempfile.gettempdir())
    if shutil.disk_usage(where).free < size:
        msg = f"the updates of a round need {size >> 20} MB, and {where} has less: set TMPDIR"
        raise OSError(msg)
    handle, name = tempfile.mkstemp(prefix="rfa-", dir=where)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()
