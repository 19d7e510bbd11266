"""A worker: a process with one thread that does the work of devices, asked line by line.

`python -m rfa.lab.training.worker` reads one JSON object a line from standard input and answers
each with one. The model, the updates and the u_i lie in memory-mapped files that it shares with the
process that asks. It ends when its input does, also when the asking process was killed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from rfa.lab.attacks.corruption import AttackError
from rfa.lab.datasets.cache import load
from rfa.lab.datasets.dataset import DataError
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
        return 1 + settings.devices_per_round * (2 if settings.personalize else 1)

    @classmethod
    def open(cls, path: Path, settings: Settings, dim: int) -> Scratch:
        """Map the file, making it as large as it must be."""
        rows, m = cls.rows(settings), settings.devices_per_round
        with path.open("ab") as file:
            if file.tell() != rows * dim * 4:
                file.truncate(rows * dim * 4)
        whole: Any = np.memmap(path, np.float32, "r+", shape=(rows, dim))
        return cls(whole[0], whole[1 : 1 + m], whole[1 + m :])


class Worker:
    """What a worker knows of a run, and the jobs that it does."""

    def __init__(self, order: dict[str, Any]) -> None:
        settings = Settings(**order["settings"])
        task = find_task(settings.task)
        directory = order["data_dir"]
        population = load(task.reader, directory and Path(directory), iid=settings.iid)
        self.devices = Devices(settings, task, population)
        self.scratch = Scratch.open(Path(order["scratch"]), settings, self.devices.dim)
        self.personal = None
        if settings.personalize:
            path = Path(order["personal"])
            self.personal = PersonalFile(path, self.devices.count, self.devices.dim)

    def train(self, order: dict[str, Any]) -> dict[str, Any]:
        """Train devices; what comes of it goes to their rows of the shared memory."""
        w, t = np.array(self.scratch.model), int(order["round"])
        for device, row, place in zip(
            order["devices"], order["rows"], order["places"], strict=True
        ):
            if self.personal is None:
                update = self.devices.train(w, t, device)
            else:
                u = self.personal.read(device, place)
                update, self.scratch.personal[row] = self.devices.train_personal(w, u, t, device)
            self.scratch.updates[row] = update
        return {}

    def evaluate(self, order: dict[str, Any]) -> dict[str, Any]:
        """Evaluate the model on devices, with their u_i where they have such."""
        shared = np.array(self.scratch.model)
        tallies: list[Any] = []
        for device, place in zip(order["devices"], order["places"], strict=True):
            w = shared
            if self.personal is not None:
                w = shared + self.personal.read(device, place)
            tallies.append(dataclasses.astuple(self.devices.evaluate(w, device)))
        return {"tallies": tallies}


def serve(orders: TextIO, answers: TextIO) -> None:
    """Answer until there is nothing more to read."""
    jobs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
    for line in orders:
        order = json.loads(line)
        try:
            if order["do"] == "begin":
                worker = Worker(order)
                jobs = {"train": worker.train, "evaluate": worker.evaluate}
                answer: dict[str, Any] = {}
            else:
                answer = jobs[order["do"]](order)
        except (AttackError, DataError, ValueError, ImportError) as error:
            answer = {"error": str(error)}
        except Exception:  # noqa: BLE001 the process that asks shall know what happened
            answer = {"error": f"a worker failed:\n{traceback.format_exc()}"}
        try:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        except BrokenPipeError:  # nobody is waiting any more
            return


def main() -> None:
    """Serve on standard input and output; what others print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks decides
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
