"""A worker: a process with one thread that does the work of devices, asked line by line.

`python -m rfa.lab.training.worker` answers requests as `rfa.lab.processes` has it. The model, the
updates and the u_i lie in memory-mapped files that it shares with the process that asks.
"""

from __future__ import annotations

import dataclasses
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rfa.errors import RfaError
from rfa.lab.datasets.cache import open_population
from rfa.lab.datasets.dataset import DataError
from rfa.lab.objects import unpack
from rfa.lab.processes import ERROR, Answer, Request, Tell, serve
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices
from rfa.lab.training.personal import PersonalFile


@dataclass(frozen=True)
class Scratch:
    """The memory that workers share: the model, and one row for each device of a round.

    Attributes:
        model: the model.
        updates: the updates of the devices.
        personal: their new u_i; empty without personalization. Workers never write to the file
            of the u_i itself, so one that outlives a killed run cannot spoil the next.
    """

    model: Any
    updates: Any
    personal: Any

    @staticmethod
    def rows(settings: Settings) -> int:
        """How many vectors there are."""
        return 1 + settings.training.devices_per_round * (2 if settings.training.personalize else 1)

    @classmethod
    def open(cls, path: Path, settings: Settings, dim: int) -> Scratch:
        """Map the file, making it as large as it must be."""
        rows, m = cls.rows(settings), settings.training.devices_per_round
        with path.open("ab") as file:
            if file.tell() != rows * dim * 4:
                file.truncate(rows * dim * 4)
        vectors: Any = np.memmap(path, np.float32, "r+", shape=(rows, dim))
        return cls(vectors[0], vectors[1 : 1 + m], vectors[1 + m :])


class Worker:
    """What a worker knows of a run, and the jobs that it does."""

    def __init__(self, request: Request) -> None:
        unpack(request["objects"])
        settings = Settings.from_dict(request["settings"])
        task = find_task(settings.task)
        population = open_population(Path(request["population"]))
        if population is None:
            msg = f"the data in {request['population']} went away meanwhile: start the run again"
            raise DataError(msg)
        self.devices = Devices(settings, task, population)
        self.scratch = Scratch.open(Path(request["scratch"]), settings, self.devices.dim)
        self.personal = None
        if settings.training.personalize:
            path = Path(request["personal"])
            self.personal = PersonalFile(path, self.devices.count, self.devices.dim)

    def train(self, request: Request) -> Answer:
        """Train devices; what comes of it goes to their rows of the shared memory."""
        w, t = np.array(self.scratch.model), int(request["round"])
        for device, row, place in zip(
            request["devices"], request["rows"], request["places"], strict=True
        ):
            if self.personal is None:
                update = self.devices.train(w, t, device)
            else:
                u = self.personal.read(device, place)
                update, self.scratch.personal[row] = self.devices.train_personal(w, u, t, device)
            self.scratch.updates[row] = update
        return {}

    def evaluate(self, request: Request) -> Answer:
        """Evaluate the model on devices, with their u_i where they have such."""
        shared = np.array(self.scratch.model)
        tallies: list[Any] = []
        for device, place in zip(request["devices"], request["places"], strict=True):
            w = shared
            if self.personal is not None:
                w = shared + self.personal.read(device, place)
            tallies.append(dataclasses.astuple(self.devices.evaluate(w, device)))
        return {"tallies": tallies}


class Jobs:
    """The worker of the run that began last, and what it can be asked."""

    worker: Worker

    def answer(self, request: Request, tell: Tell) -> Answer:
        """Do a job, and say what came of it, or why nothing did."""
        del tell
        try:
            if request["do"] == "train":
                return self.worker.train(request)
            if request["do"] == "evaluate":
                return self.worker.evaluate(request)
            self.worker = Worker(request)
        except (RfaError, ValueError, ImportError) as error:
            return {ERROR: str(error)}
        except Exception:  # noqa: BLE001 the process that asks shall know what happened
            return {ERROR: f"a worker failed:\n{traceback.format_exc()}"}
        return {}


if __name__ == "__main__":
    serve(Jobs().answer)
