"""The workers of a run: processes with one thread each, kept from the first round to the last.

A device's work is the same whoever does it, so the number of workers decides how long a round
takes and nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from rfa._types import Floats32
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.errors import LabError
from rfa.lab.training.devices import Devices, Tally
from rfa.lab.training.personal import PersonalFile, Places
from rfa.lab.training.worker import Scratch

PIECES = 6
"""Jobs for each worker in a round: more share the work out better, fewer cost less."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


class WorkerError(LabError):
    """A worker died or failed."""


@contextlib.contextmanager
def hire(
    devices: Devices, workers: int, *, data_dir: Path | None = None, personal: Path | None = None
) -> Generator[Crew]:
    """Start so many workers for the devices of a run, and end them at the end.

    Args:
        devices: the devices, whose settings the workers get.
        workers: how many.
        data_dir: where the data is.
        personal: the file of the u_i, if there are such.
    """
    settings = devices.settings
    order = {
        "do": "begin",
        "settings": dataclasses.asdict(settings),
        "data_dir": data_dir and str(data_dir),
        "personal": personal and str(personal),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(one_blas_thread())
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        processes = [stack.enter_context(_Process(number)) for number in range(workers)]
        with _scratch_file(Scratch.rows(settings) * devices.dim * 4) as path:
            scratch = Scratch.open(path, settings, devices.dim)
            begin = order | {"scratch": str(path)}
            list(threads.map(_Process.ask, processes, [begin] * workers))
        yield Crew(devices, scratch, processes, threads, personal)


class Crew:
    """Workers that train and evaluate the devices of a run; `hire` gets them."""

    def __init__(
        self,
        devices: Devices,
        scratch: Scratch,
        workers: list[_Process],
        threads: Executor,
        personal: Path | None,
    ) -> None:
        self._devices, self._scratch, self._threads = devices, scratch, threads
        self._personal = personal and PersonalFile(personal, devices.count, devices.dim)
        self._pieces = PIECES * len(workers)
        self._free: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        for worker in workers:
            self._free.put(worker)

    def train(
        self, model: Floats32, t: int, devices: Sequence[int], places: Places | None = None
    ) -> Floats32:
        """The updates of devices in round t, one row each, in memory that the next round reuses."""
        self._scratch.model[:] = model
        rows = {device: row for row, device in enumerate(devices)}
        jobs = [
            {
                "do": "train",
                "round": t,
                "devices": part,
                "rows": [rows[device] for device in part],
                "places": _current(places, part),
            }
            for part in self._share_out(devices)
        ]
        list(self._threads.map(self._do, jobs))
        if places is not None and self._personal:
            for device, row in rows.items():
                self._personal.write(device, places.move(device), self._scratch.personal[row])
        return self._scratch.updates[: len(devices)]

    def flush(self) -> None:
        """Make sure that the u_i are on disk."""
        if self._personal:
            self._personal.flush()

    def evaluate(self, model: Floats32, places: Places | None = None) -> list[Tally]:
        """How well a model serves each device of the population, in order."""
        self._scratch.model[:] = model
        everyone = list(range(self._devices.count))
        jobs: list[dict[str, Any]] = [
            {
                "do": "evaluate",
                "devices": part,
                "places": _current(places, part),
            }
            for part in self._share_out(everyone)
        ]
        answers = list(self._threads.map(self._do, jobs))
        tallies: dict[int, Tally] = {}
        for job, answer in zip(jobs, answers, strict=True):
            for device, numbers in zip(job["devices"], answer["tallies"], strict=True):
                tallies[device] = Tally(*numbers)
        return [tallies[device] for device in everyone]

    def _do(self, job: dict[str, Any]) -> dict[str, Any]:
        worker = self._free.get()
        try:
            return worker.ask(job)
        finally:
            self._free.put(worker)

    def _share_out(self, devices: Sequence[int]) -> list[list[int]]:
        """Parts of about equal work; the largest devices come first, so that none is left over."""
        order = sorted(devices, key=lambda device: -self._devices.cost(device))
        total = sum(self._devices.cost(device) for device in devices)
        goal = total / self._pieces
        parts: list[list[int]] = [[]]
        filled = 0
        for device in order:
            if filled >= goal:
                parts.append([])
                filled = 0
            parts[-1].append(device)
            filled += self._devices.cost(device)
        return parts


def _current(places: Places | None, devices: list[int]) -> list[int]:
    """Where the u_i of devices are."""
    return [int(places.current[device]) if places else 0 for device in devices]


class _Process:
    """One worker process."""

    def __init__(self, number: int) -> None:
        self._number = number
        path = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rfa.lab.training.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
        )

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Give an order and wait for the answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        line = ""
        if stdin is not None and stdout is not None:
            with contextlib.suppress(OSError, ValueError):  # it died, or was closed meanwhile
                stdin.write(json.dumps(order) + "\n")
                stdin.flush()
                line = stdout.readline()
        if not line:
            code = self._process.wait()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            msg = f"worker {self._number} {how}: start the run again to go on from its checkpoint"
            raise WorkerError(msg)
        answer = cast("dict[str, Any]", json.loads(line))
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def __enter__(self) -> _Process:
        """Begin to use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """Hold this process's BLAS to one thread, beside others that work.

    Threads of BLAS spin while they wait for the next product, on processors that others need:
    without this, a round of softmax regression takes half as long again.
    """
    return lab_module("threadpoolctl").threadpool_limits(1, user_api="blas")


@contextlib.contextmanager
def _scratch_file(size: int) -> Generator[Path]:
    """A file for shared memory, on a file system in memory where there is room.

    Its name goes as soon as all have opened it, so nothing is left behind, whoever is killed.
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
