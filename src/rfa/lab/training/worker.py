"""A worker: a process with one thread that does the work of devices, one request per line.

`python -m rfa.lab.training.worker` answers requests as defined in `rfa.lab.processes`. The model,
the updates and the kept vectors are in memory-mapped files that it shares with the process that
asks.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rfa.errors import RfaError
from rfa.lab.datasets.cache import open_population
from rfa.lab.datasets.dataset import DataError
from rfa.lab.objects import unpack
from rfa.lab.processes import ERROR, Answer, Request, Tell, WorkerError, serve
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices
from rfa.lab.training.kept import KeptFile


@dataclass(frozen=True)
class Scratch:
    """The memory that workers share: the model, and one row for each device of a round.

    Attributes:
        model: the model.
        updates: the updates of the devices.
        kept: the new vectors that they keep; momentum is the update itself, before an attack
            changes it. Workers never write to the file of kept vectors, so a worker that outlives a
            killed run cannot damage the next.
    """

    model: Any
    updates: Any
    kept: Any

    @staticmethod
    def rows(settings: Settings) -> int:
        """Return the number of vectors."""
        return 1 + settings.training.devices_per_round * (2 if settings.training.personalize else 1)

    @classmethod
    def open(cls, path: Path, settings: Settings, dim: int) -> Scratch:
        """Map the file, and set its size."""
        rows = cls.rows(settings)
        with path.open("ab") as file:
            if file.tell() != rows * dim * 4:
                file.truncate(rows * dim * 4)
        return cls.of(np.memmap(path, np.float32, "r+", shape=(rows, dim)), settings)

    @classmethod
    def of(cls, vectors: Any, settings: Settings) -> Scratch:
        """Divide vectors into the model, the updates and the kept vectors."""
        m = settings.training.devices_per_round
        updates = vectors[1 : 1 + m]
        kept = vectors[1 + m :] if settings.training.personalize else updates
        return cls(vectors[0], updates, kept)


class Worker:
    """The state of a worker in a run, and its jobs."""

    def __init__(self, devices: Devices, scratch: Scratch, kept: KeptFile | None) -> None:
        self.devices, self.scratch, self.kept = devices, scratch, kept

    @classmethod
    def begin(cls, request: Request) -> Worker:
        """Begin a run from the request of another process."""
        unpack(request["objects"])
        settings = Settings.from_dict(request["settings"])
        task = find_task(settings.task)
        population = open_population(Path(request["population"]))
        if population is None:
            msg = f"the data in {request['population']} went away meanwhile: start the run again"
            raise DataError(msg)
        devices = Devices(settings, task, population)
        scratch = Scratch.open(Path(request["scratch"]), settings, devices.dim)
        kept = request["kept"] and KeptFile(Path(request["kept"]), devices.count, devices.dim)
        return cls(devices, scratch, kept or None)

    def train(self, request: Request) -> Answer:
        """Train devices, and write the results to their rows of the shared memory.

        The answer names the devices that have something new to keep there.
        """
        w, t = np.array(self.scratch.model), int(request["round"])
        keep: list[int] = []
        for device, row, slot in zip(
            request["devices"], request["rows"], request["slots"], strict=True
        ):
            before = self.kept.read(device, slot) if self.kept else None
            self.scratch.updates[row], after = self.devices.take_part(w, before, t, device)
            if after is not None:
                self.scratch.kept[row] = after
                keep.append(device)
        return {"keep": keep}

    def evaluate(self, request: Request) -> Answer:
        """Evaluate the model on devices, with their u_i if they have any."""
        shared = np.array(self.scratch.model)
        devices: list[int] = request["devices"]
        if self.kept is None or not self.devices.settings.training.personalize:
            return {"tallies": self.devices.evaluate_all(shared, devices)}
        tallies: list[Any] = []
        for device, slot in zip(devices, request["slots"], strict=True):
            u = self.kept.read(device, slot)
            tallies.append(self.devices.evaluate(shared if u is None else shared + u, device))
        return {"tallies": tallies}


class Jobs:
    """The worker of a run, and its requests; a request of another process begins it."""

    worker: Worker

    def ask(self, request: Request) -> Answer:
        """Do a job in this process, as `AskedProcess.ask` does it in another.

        Raises:
            WorkerError: if it fails.
        """
        answer = self.answer(request)
        if ERROR in answer:
            raise WorkerError(answer[ERROR])
        return answer

    def answer(self, request: Request, _: Tell | None = None) -> Answer:
        """Do a job, and return the answer or the error."""
        try:
            if request["do"] == "train":
                return self.worker.train(request)
            if request["do"] == "evaluate":
                return self.worker.evaluate(request)
            self.worker = Worker.begin(request)
        except (RfaError, ValueError, ImportError) as error:
            return {ERROR: str(error)}
        except Exception:  # noqa: BLE001 the process that asks shall know what happened
            return {ERROR: f"a worker failed:\n{traceback.format_exc()}"}
        return {}


def main() -> None:
    """Do jobs until the asking process ends."""
    serve(Jobs().answer)


if __name__ == "__main__":
    main()
