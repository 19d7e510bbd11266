"""Evaluating a linear model over the whole population, against a plain torch loop."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measure import times
from benchmarks.peers import load_torch
from benchmarks.workloads import LINEAR, WORKERS, Simulation, simulations
from rfa.lab.simulation.rounds import LocalEngine, evaluate
from rfa.lab.tasks import emnist

EVERY, WARM, BLOCK = 10, 40, 2000
"""Rounds from one evaluation to the next, rounds before measuring, rows of the largest product."""
ROUND, OURS, PLAIN, GEMM = "a round", "rfa", "plain torch loop", "products alone"


class PlainEvaluation:
    """Losses and correct answers device by device, from pixels that are float32 in memory."""

    def __init__(self, run: Simulation) -> None:
        torch, devices = load_torch(), run.devices
        self._torch, self._run = torch, run
        self._layer = emnist.linear_module(torch)
        self._each = [
            (
                torch.from_numpy(devices.task.prepare(np.array(devices.population.x[a:b]))),
                torch.from_numpy(np.array(devices.population.y[a:b], np.int64)),
            )
            for a, b in zip(devices.starts, devices.stops, strict=True)
        ]

    def __call__(self) -> tuple[float, int]:
        """The summed loss, and how many examples are classified correctly."""
        torch, loss, right = self._torch, 0.0, 0
        torch.set_num_threads(WORKERS)
        with torch.no_grad():
            flat = torch.from_numpy(self._run.state.model)
            self._layer.weight.copy_(flat.view_as(self._layer.weight))
            for x, y in self._each:
                scores = self._layer(x)
                loss += float(torch.nn.functional.cross_entropy(scores, y, reduction="sum"))
                right += int((scores.argmax(dim=1) == y).sum())
        return loss, right


def run() -> Iterator[str]:
    """The section, line by line."""
    with simulations(LINEAR, aggregator=["fedavg"]) as (mean,):
        for _ in range(WARM):
            mean()
        engine = LocalEngine(mean.devices, mean.pool)
        plain = PlainEvaluation(mean)
        examples = sum(mean.devices.cost(device) for device in range(mean.devices.count))
        ours = evaluate(mean.state, engine)
        found = ours.test_loss, ours.train_loss
        tests = int((mean.devices.stops - mean.devices.trains).sum())
        apart = abs((found[0] * tests + found[1] * (examples - tests)) / plain()[0] - 1)
        assert apart < 1e-4
        block = np.ones((BLOCK, emnist.SIDE**2), np.float32)
        weights = mean.state.model.reshape(emnist.CLASSES, -1).T
        measured = times(
            {
                ROUND: mean,
                OURS: lambda: evaluate(mean.state, engine),
                PLAIN: plain,
                GEMM: lambda: [block @ weights for _ in range(examples // BLOCK)],
            },
            rounds=3,
        )
    flops = 2e-9 * examples * emnist.SIDE**2 * emnist.CLASSES
    yield f"### Evaluating softmax regression on {examples:,} images of all devices"
    yield ""
    yield "| | seconds | GFLOP/s | times rfa's |"
    yield "|---|---|---|---|"
    for name in (OURS, PLAIN):
        seconds = measured[name] / 1e3
        ratio = measured[name] / measured[OURS]
        yield f"| {name} | {seconds:.3f} | {flops / seconds:.0f} | {ratio:.1f} |"
    alone = 2 * flops / (measured[GEMM] / 1e3)
    share = measured[OURS] / (measured[OURS] + EVERY * measured[ROUND])
    yield ""
    yield (
        f"Products of {BLOCK} images with the model and nothing else run at {alone / 2:.0f} GFLOP/s"
        f" in one thread, so {alone:.0f} in two. With an evaluation every {EVERY} rounds, which"
        f" take {measured[ROUND] / 1e3:.3f} s each, {100 * share:.0f} % of the time is evaluation."
        f" rfa reads pixels as bytes; the plain loop, with {WORKERS} threads, finds them as float32"
        f" in memory. The losses differ by {apart:.0e}."
    )
    yield ""
