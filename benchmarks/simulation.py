"""Seconds for a round of federated learning: rfa, a plain torch loop and pfl on the same work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import evaluation
from benchmarks.measure import Call, processes_below, times
from benchmarks.peers import load_pfl
from benchmarks.pfl_rounds import PflLoop, pfl_processes
from benchmarks.workloads import (
    CONVNET,
    LINEAR,
    LSTM,
    WORKERS,
    Examples,
    PlainLoop,
    Simulation,
    check_same,
    own_cache,
    simulations,
)
from rfa.lab.learners.visits import Batch
from rfa.lab.tasks import emnist, shakespeare
from rfa.lab.tasks.task import Task

THREADS = (1, 2)
FIRST, WARM = 5, 100
"""Rounds that count as first ones, and rounds until nearly all Gram matrices are kept."""
POPULATIONS, LATER = (1000, 4000), 200
OURS = f"rfa, {WORKERS} workers"


def linear() -> Iterator[str]:
    """Softmax regression: all contestants."""
    yield "### Softmax regression 784 x 62: 100 of 1000 devices, 160 examples, 5 epochs, batch 50"
    yield ""
    with (
        simulations(LINEAR, aggregator=["fedavg", "rfa"]) as (mean, median),
        pfl_processes(WORKERS) as spread,
    ):
        examples = Examples(mean.devices)
        plain = _plain(mean, examples, emnist.linear_module)
        pfl = [PflLoop(mean.devices, examples, n) for n in THREADS]
        first = _median_time(mean, FIRST)
        apart = _check_plain(mean, plain[0]), _check_pfl(pfl[0], plain[0])
        spread()
        assert np.isclose(spread.moved, pfl[0].moved(), rtol=1e-4)
        for _ in range(WARM):
            mean()
            median()
        calls: dict[str, Call] = {OURS: mean, f"{OURS}, geometric median in 3 calls": median}
        calls |= _named(plain) | {f"pfl, {_threads(loop.threads)}": loop for loop in pfl}
        calls[f"pfl, {WORKERS} processes"] = spread
        measured = times(calls, rounds=3)
    yield from _table(measured, {f"{OURS}, first {FIRST} rounds": first})
    yield (
        "After a round on the same batches, the models of rfa and the plain loop are"
        f" {apart[0]:.0e} of the round's change apart, those of pfl and the plain loop"
        f" {apart[1]:.0e}. rfa keeps a Gram matrix for each device it met, so its first rounds"
        " take longer. It converts pixels from bytes each time; the others find them as float32"
        " in memory, and pfl's batches need no gathering."
    )
    yield ""


def network(
    task: Task, make: Callable[[Any], Any], title: str, within: float = 1e-4
) -> Iterator[str]:
    """A network: rfa against the plain loop, which ends within a share of the round's change."""
    yield f"### {title}"
    yield ""
    with simulations(task, aggregator=["fedavg"]) as (mean,):
        plain = _plain(mean, Examples(mean.devices), make)
        mean()
        apart = _check_plain(mean, plain[0], within)
        measured = times({OURS: mean} | _named(plain), rounds=3)
    yield from _table(measured, {})
    yield f"The models after a round are {apart:.0e} of the round's change apart."
    yield ""


def memory() -> Iterator[str]:
    """Memory of the workers at populations of different size."""
    yield f"### Memory of {WORKERS} workers, in MB, softmax regression, 100 devices per round"
    yield ""
    yield (
        f"| devices | peak, first {FIRST} rounds | peak, {LATER} rounds |"
        f" own after {LATER} | of files after {LATER} |"
    )
    yield "|---|---|---|---|---|"
    for count in POPULATIONS:
        with simulations(LINEAR, aggregator=["fedavg"], devices=[count]) as (run,):
            _median_time(run, FIRST)
            cells = [_memory("VmHWM")]
            _median_time(run, LATER - FIRST)
            cells += [_memory(field) for field in ("VmHWM", "RssAnon", "RssFile")]
        yield f"| {count} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |"
    yield ""
    yield (
        "Sums over the workers and the process that they are copies of, so what they share counts"
        " more than once. Own memory grows by the Gram"
        " matrices that are kept, up to 256 MB per worker. Pages of files are the mapped examples"
        " that rounds have touched; the system takes them back when it needs memory."
    )
    yield ""


def _plain(run: Simulation, examples: Examples, make: Callable[[Any], Any]) -> list[PlainLoop]:
    return [PlainLoop(run.devices, examples, make, n) for n in THREADS]


def _named(loops: list[PlainLoop]) -> dict[str, Call]:
    return {f"plain torch loop, {_threads(loop.threads)}": loop for loop in loops}


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


def _median_time(call: Call, rounds: int) -> float:
    """The median time of consecutive rounds in milliseconds."""
    taken: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return 1e3 * statistics.median(taken)


def _check_plain(run: Simulation, loop: PlainLoop, within: float = 1e-4) -> float:
    """Let both play rfa's next round, and compare their models."""
    loop.state = first = run.state
    run()
    loop()
    return check_same(run.state.model, loop.state.model, first.model, within)


def _check_pfl(peer: PflLoop, loop: PlainLoop) -> float:
    """Let pfl play a round, and the plain loop on pfl's batches."""
    first = peer.read()
    peer()
    settings = loop.devices.settings

    def plan() -> Iterator[tuple[int, list[Batch]]]:
        for device in peer.chosen:
            rows = np.arange(len(loop.examples.each[device][1]))
            batches = np.split(
                rows, range(settings.training.batch_size, len(rows), settings.training.batch_size)
            )
            yield device, batches * settings.training.local_epochs

    return check_same(peer.read(), loop.play(first, plan()), first)


def _table(measured: dict[str, float], extra: dict[str, float]) -> Iterator[str]:
    """Seconds, and how many times slower than rfa; the best of each peer in bold."""
    kinds = {name.split(",")[0] for name in measured}
    best = {min((n for n in measured if n.startswith(kind)), key=measured.__getitem__)
            for kind in kinds}  # fmt: skip
    yield "| | seconds per round | times rfa's |"
    yield "|---|---|---|"
    for name, value in (measured | extra).items():
        ratio = f"{value / measured[OURS]:.1f}"
        bold = name in best and not name.startswith("rfa")
        yield f"| {name} | {value / 1e3:.3f} | {f'**{ratio}**' if bold else ratio} |"
    yield ""


def _memory(field: str) -> float:
    """A field of /proc/PID/status, summed over the processes below this one, in MB."""
    lines = [
        line
        for pid in processes_below("self")
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    ]
    return sum(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def run() -> Iterator[str]:
    """The whole report, line by line."""
    yield "## Federated simulation"
    yield ""
    yield f"pfl {load_pfl().version}. Peers run in several ways; the best counts."
    yield ""
    with own_cache():
        yield from linear()
        yield from evaluation.run()
        title = "LSTM of 128 units, 20 characters of 53: 50 devices, 500 examples, batch 10"
        yield from network(LSTM, shakespeare.lstm_module, title)
        title = "The paper's ConvNet: 10 devices, 160 images, batch 50"
        yield from network(CONVNET, emnist.convnet_module, title, within=2e-2)
        yield from memory()


if __name__ == "__main__":
    for line in run():
        print(line, flush=True)
