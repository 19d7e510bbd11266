"""pfl's simulation of FedAvg: in this process, or in several, as pfl spreads its work.

`python -m benchmarks.pfl_rounds` is one of several processes: it plays a round for each line of
its input, and answers with how far the model is from the first one.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import IO, Any, cast

import numpy as np

from benchmarks.peers import load_pfl, load_torch
from benchmarks.workloads import LINEAR, Examples, open_devices
from rfa._types import Floats32
from rfa.lab.tasks import emnist
from rfa.lab.training.devices import Devices


class PflLoop:
    """A run of pfl's FedAvg on tensors in memory; each call plays the next round.

    Its batches are the same in every round, cut from a device's examples in their order: slices
    where the others gather rows. It evaluates in its very first round only, which is no one's.
    """

    def __init__(self, devices: Devices, examples: Examples, threads: int) -> None:
        self._torch, self.threads = load_torch(), threads
        self._pfl, self._rounds = load_pfl(), itertools.count(1)
        settings, optim = devices.settings, self._torch.optim.SGD
        self._module = _pfl_module(self._torch)
        self._first = devices.initial()
        self.write(self._first)
        self._model = self._pfl.PyTorchModel(
            self._module, optim, optim(self._module.parameters(), lr=1.0)
        )
        self._devices, self._algorithm = devices, self._pfl.FederatedAveraging()
        self.chosen: list[int] = []
        users = [self._pfl.PyTorchTensorDataset(pair) for pair in examples.each]
        data = self._pfl.FederatedDataset(users.__getitem__, self._next_user)
        self._backend = self._pfl.SimulatedBackend(data, data)
        self._training = self._pfl.NNTrainHyperParams(
            local_batch_size=settings.training.batch_size,
            local_num_epochs=settings.training.local_epochs,
            local_learning_rate=settings.training.learning_rate,
        )

    def __call__(self) -> None:
        """Play a round."""
        self._torch.set_num_threads(self.threads)
        number = next(self._rounds)
        self.chosen = self._devices.sample(number - 1)
        self._users = iter(self.chosen)
        rounds = self._pfl.NNAlgorithmParams(
            central_num_iterations=number,
            evaluation_frequency=1 << 30,
            train_cohort_size=len(self.chosen),
            val_cohort_size=0,
        )
        self._algorithm.run(
            rounds, self._backend, self._model, self._training, send_metrics_to_platform=False
        )

    def write(self, model: Floats32) -> None:
        """Set the model."""
        with self._torch.no_grad():
            weight = self._module.layer.weight
            weight.copy_(self._torch.from_numpy(model).view_as(weight))

    def read(self) -> Floats32:
        """The model."""
        return self._module.layer.weight.detach().numpy().ravel().copy()

    def moved(self) -> float:
        """How far the model is from the first one."""
        return float(np.linalg.norm(self.read() - self._first))

    def _next_user(self) -> int:
        return next(self._users)


def _pfl_module(torch: Any) -> Any:
    """The linear model with the methods that pfl asks for."""

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            self.layer = emnist.linear_module(torch)

        def loss(self, x: Any, y: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.layer(x), y)

        def metrics(self, x: Any, y: Any) -> Any:
            loss = self.loss(x, y).item()
            return {"loss": load_pfl().Weighted(loss * len(y), len(y))}

    return Module()


class PflProcesses:
    """A run of pfl in processes of one thread each; `pfl_processes` starts them."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes, self.moved = processes, 0.0

    def __call__(self) -> None:
        """Play a round."""
        for process in self._processes:
            orders = cast("IO[str]", process.stdin)
            orders.write("\n")
            orders.flush()
        answers = [cast("IO[str]", process.stdout).readline() for process in self._processes]
        self.moved = float(answers[0])


@contextmanager
def pfl_processes(count: int) -> Generator[PflProcesses]:
    """Start so many processes, and end them at the end."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    address = ",".join([f"localhost:{port}"] * count)
    common = {"PFL_WORKER_ADDRESSES": address, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with ExitStack() as stack:
        processes: list[subprocess.Popen[str]] = []
        for rank in range(count):
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.pfl_rounds"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | common | {"PFL_WORKER_RANK": str(rank)},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:  # they find each other, and read their data
            cast("IO[str]", process.stdout).readline()
        yield PflProcesses(processes)


def main() -> None:
    """Play rounds on demand."""
    devices = open_devices(LINEAR)
    loop = PflLoop(devices, Examples(devices), threads=1)
    print("ready", flush=True)
    for _ in sys.stdin:
        loop()
        print(loop.moved(), flush=True)


if __name__ == "__main__":
    main()
