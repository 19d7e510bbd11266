"""Rounds of federated learning on made data: the tasks, and the loop that one writes by hand."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.peers import load_torch
from rfa._types import Array, Floats32, Ints
from rfa.lab.datasets.cache import load
from rfa.lab.datasets.dataset import Index, Reader
from rfa.lab.learners.visits import Batch
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import LocalEngine, State, play_round
from rfa.lab.tasks import emnist, shakespeare
from rfa.lab.tasks.registry import find_task
from rfa.lab.tasks.task import Task
from rfa.lab.training.batches import draw_batches
from rfa.lab.training.devices import Devices
from rfa.lab.training.pool import WorkerPool, open_pool

WORKERS = 2


class Made(Reader):
    """Devices of one size; 160 of 178, or 500 of 556, are for training."""

    files = ()
    dtype = "uint8"
    min_examples = 2
    count: int
    train: int
    classes: int

    @property
    def size(self) -> int:
        """The examples of a device: a tenth more than it trains on, for testing."""
        return -(-10 * self.train // 9)

    def index(self, paths: Mapping[str, Path]) -> Index:
        """Devices of equal size with labels at random."""
        del paths
        device = np.repeat(np.arange(self.count), self.size)
        y = np.random.default_rng(1).integers(0, self.classes, len(device), np.uint8)
        return Index([f"d{i:04}" for i in range(self.count)], device, y)


class Images(Made):
    """Noise in a fifth of the pixels; which fifth depends on the class."""

    name, count, train, classes = "bench-images", 4000, 160, emnist.CLASSES
    shape = (emnist.SIDE**2,)
    train_share = 160 / 178

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Write them device by device."""
        del paths
        rng = np.random.default_rng(2)
        seen = np.where(rng.random((self.classes, *self.shape)) < 0.2, 255, 0).astype(np.uint8)
        for rows in np.split(np.arange(len(dest)), self.count):
            noise = rng.integers(0, 256, (len(rows), *self.shape), np.uint8)
            out[dest[rows]] = noise & seen[index.y[rows]]


class Windows(Made):
    """Characters at random."""

    name, count, train, classes = "bench-windows", 50, 500, shakespeare.CLASSES
    shape = (shakespeare.REACH,)
    train_share = 500 / 556

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Write them all."""
        del paths, index
        rng = np.random.default_rng(3)
        out[dest] = rng.integers(0, self.classes, (len(dest), *self.shape), np.uint8)


def _task(name: str, reader: Reader, like: str, devices: int, **defaults: Any) -> Task:
    """A task of the lab on made data."""
    other = find_task(like)
    return Task(
        name=f"benchmarks.workloads:{name}",
        title=f"{like} on made data",
        reader=reader,
        devices=devices,
        prepare=other.prepare,
        learner=other.learner,
        libraries=other.libraries,
        poisons={},
        defaults={"max_norm": 0.0, **defaults},
    )


LINEAR = _task(
    "LINEAR", Images(), "emnist-linear", 1000,
    devices_per_round=100, batch_size=50, local_epochs=5, learning_rate=0.08,
)  # fmt: skip
LSTM = _task(
    "LSTM", Windows(), "shakespeare-lstm", 50,
    devices_per_round=50, batch_size=10, local_epochs=1, learning_rate=0.1,
)  # fmt: skip
CONVNET = _task(
    "CONVNET", Images(), "emnist-convnet", 10,
    devices_per_round=10, batch_size=50, local_epochs=1, learning_rate=0.05,
)  # fmt: skip


@contextmanager
def own_cache() -> Generator[None]:
    """Keep the made data where it goes away afterwards."""
    folder = tempfile.TemporaryDirectory(prefix="rfa-bench-")
    with folder as path, mock.patch.dict("os.environ", RFA_CACHE=path):
        yield


def open_devices(task: Task, **settings: Any) -> Devices:
    """The devices of a task."""
    resolved = Settings.of(**{"task": task.name, "aggregator": "fedavg", **settings})
    return Devices(resolved, task, load(task.reader))


class Simulation:
    """A run of rfa: each call plays the next round."""

    def __init__(self, devices: Devices, pool: WorkerPool) -> None:
        self.devices, self.pool = devices, pool
        self.state = State(0, devices.initial())

    def __call__(self) -> None:
        """Play a round."""
        self.state, facts = play_round(
            self.state, self.devices, LocalEngine(self.devices, self.pool)
        )
        assert not facts.rejected
        assert not facts.dropped


@contextmanager
def simulations(task: Task, **settings: Sequence[Any]) -> Generator[list[Simulation]]:
    """Runs of rfa that differ in some settings, with workers of their own."""
    with ExitStack() as stack:
        runs: list[Simulation] = []
        for values in zip(*settings.values(), strict=True):
            devices = open_devices(task, **dict(zip(settings, values, strict=True)))
            runs.append(Simulation(devices, stack.enter_context(open_pool(devices, WORKERS))))
        yield runs


class Examples:
    """The training examples of each device as tensors in memory, ready for the model."""

    def __init__(self, devices: Devices) -> None:
        torch, self.each = load_torch(), list[tuple[Any, Any]]()
        for start, stop in zip(devices.starts, devices.trains, strict=True):
            x = devices.task.prepare(np.array(devices.population.x[start:stop]))
            y = np.array(devices.population.y[start:stop], np.int64)
            self.each.append((torch.from_numpy(x), torch.from_numpy(y)))


class PlainLoop:
    """What one writes with torch: device after device, then the weighted mean of the models."""

    def __init__(self, devices: Devices, examples: Examples, make: Any, threads: int) -> None:
        self.devices, self.examples, self.threads = devices, examples, threads
        self._torch = load_torch()
        self._module = make(self._torch)
        self._parameters: list[Any] = [p for p in self._module.parameters() if p.requires_grad]
        rate = devices.settings.training.learning_rate
        self._optimizer = self._torch.optim.SGD(self._parameters, lr=rate)
        self.state = State(0, devices.initial())

    def __call__(self) -> None:
        """Play a round on the batches that rfa has in it."""
        self._torch.set_num_threads(self.threads)
        model = self.play(self.state.model, self._drawn(self.state.round))
        self.state = State(self.state.round + 1, model)

    def play(self, model: Floats32, plan: Iterator[tuple[int, Sequence[Batch]]]) -> Floats32:
        """The mean of the models that devices reach with their batches."""
        torch, total = self._torch, 0.0
        flat = torch.from_numpy(model).split([p.numel() for p in self._parameters])
        start = [part.view_as(p) for part, p in zip(flat, self._parameters, strict=True)]
        sums = [torch.zeros_like(p) for p in self._parameters]
        for device, batches in plan:
            with torch.no_grad():
                torch._foreach_copy_(self._parameters, start)
            self._train(*self.examples.each[device], batches)
            weight = float(self.devices.weights[device])
            total += weight
            with torch.no_grad():
                torch._foreach_add_(sums, self._parameters, alpha=weight)
        return (torch.cat([part.flatten() for part in sums]) / total).numpy()

    def _train(self, x: Any, y: Any, batches: Sequence[Batch]) -> None:
        torch, loss_of = self._torch, self._torch.nn.functional.cross_entropy
        for rows in map(torch.from_numpy, batches):
            self._optimizer.zero_grad(set_to_none=True)
            loss_of(self._module(x[rows]), y[rows]).backward()
            self._optimizer.step()

    def _drawn(self, t: int) -> Iterator[tuple[int, Sequence[Batch]]]:
        settings = self.devices.settings
        for device in self.devices.sample(t):
            count = len(self.examples.each[device][1])
            rng = stream(settings.seed, "batches", t, device)
            yield device, draw_batches(count, settings.training, rng)


def check_same(ours: Floats32, theirs: Floats32, first: Floats32, within: float = 1e-4) -> float:
    """How far two models are apart, as a share of what the round changed.

    Where nothing is chosen by comparing numbers, that is rounding. Max-pooling is such a choice: of
    two values that are equal but for rounding, either may get the gradient, and the steps after it
    take another way. So the ConvNet of the plain loop is 8e-5 to 7e-3 of a round's change away from
    the same loop in double precision, and rfa's 3e-5 to 4e-3.
    """
    change = np.linalg.norm(ours.astype(np.float64) - first)
    apart = float(np.linalg.norm(ours.astype(np.float64) - theirs) / change)
    assert apart < within, f"not the same work: the models are {apart:.0e} of the change apart"
    return apart
