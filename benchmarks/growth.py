"""Time and memory of a round against the number of devices and the size of the model."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.measure import Call, processes_below
from benchmarks.workloads import Made, own_cache, simulations
from rfa._types import Array, Ints
from rfa.lab.datasets.dataset import Index
from rfa.lab.learners.own_module import LinearModel
from rfa.lab.report.style import COLORS
from rfa.lab.tasks.emnist import prepare
from rfa.lab.tasks.task import Task

PICTURE = Path(__file__).parent.parent / "docs" / "cost-growth.png"
FEATURES = 100
DEVICES, AT_DEVICES = (10, 100, 1000, 10_000), 100_000
SIZES, AT_SIZES = (10_000, 100_000, 1_000_000, 10_000_000), 100
AGGREGATORS = {"FedAvg": "fedavg", "RFA, 3 calls": "rfa"}
ROUNDS = 3


class Small(Made):
    """Many devices with 20 examples of noise each."""

    name, count, train, classes = "bench-small", DEVICES[-1], 20, 100
    shape = (FEATURES,)
    train_share = 20 / 23

    def fill(self, paths: Mapping[str, Path], index: Index, dest: Ints, out: Array) -> None:
        """Write them all."""
        del paths, index
        out[dest] = np.random.default_rng(4).integers(0, 256, (len(dest), FEATURES), np.uint8)


def _task(name: str, size: int) -> Task:
    """Softmax regression with so many parameters."""
    return Task(
        name=f"benchmarks.growth:{name}",
        title=f"{size:,} parameters on made data",
        reader=Small(),
        devices=DEVICES[-1],
        prepare=prepare,
        learner=LinearModel(FEATURES, size // FEATURES),
        poisons={},
        defaults={"max_norm": 0.0, "batch_size": 10, "local_epochs": 1, "learning_rate": 0.01},
    )


P4, P5, P6, P7 = (_task(f"P{len(str(size)) - 1}", size) for size in SIZES)
TASKS = dict(zip(SIZES, (P4, P5, P6, P7), strict=True))


@dataclass(frozen=True)
class Cost:
    """What a round costs: seconds, and gigabytes of all processes at the peak."""

    seconds: float
    gigabytes: float


Grids: TypeAlias = dict[str, tuple[tuple[int, ...], dict[str, list[Cost]]]]
"""By what grows: its values, and the costs of each aggregator at them."""


def measure(devices: int, size: int, aggregator: str) -> Cost:
    """The cost of a round after a first one."""
    before = _memory()  # what earlier measurements left in this process
    with simulations(TASKS[size], aggregator=[aggregator], devices_per_round=[devices]) as (run,):
        run()
        taken = [_seconds(run) for _ in range(ROUNDS)]
        return Cost(statistics.median(taken), _peak(run) - before)


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _peak(call: Call) -> float:
    """The largest memory of this process and those that it started while the call runs, in GB."""
    seen, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            seen.append(_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return max(*seen, _memory())


def _memory() -> float:
    """Proportional set sizes, which count shared pages once over all processes."""
    total = 0
    for pid in ("self", *processes_below("self")):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in text.splitlines() if "Pss:" in line)
    return total / 1e6


def slope(costs: list[Cost], grid: tuple[int, ...], what: str) -> float:
    """How fast a cost grows at the large end: 1 is in proportion."""
    low, high = (getattr(cost, what) for cost in costs[-2:])
    return math.log(high / low) / math.log(grid[-1] / grid[-2])


def run() -> Iterator[str]:
    """The whole report, line by line."""
    with own_cache():
        grids = measured()
    draw(grids)
    yield from report(grids)


def measured() -> Grids:
    """The costs over devices, and over parameters."""
    return {
        f"devices in the round, {AT_DEVICES:,} parameters": (
            DEVICES,
            {n: [measure(m, AT_DEVICES, a) for m in DEVICES] for n, a in AGGREGATORS.items()},
        ),
        f"parameters, {AT_SIZES} devices in the round": (
            SIZES,
            {n: [measure(AT_SIZES, d, a) for d in SIZES] for n, a in AGGREGATORS.items()},
        ),
    }


def report(grids: Grids) -> Iterator[str]:
    """Tables and what they mean."""
    yield "## How costs grow"
    yield ""
    yield (
        "A round of softmax regression in the lab: 20 examples per device, one epoch in batches of"
        f" 10, two workers; the median of {ROUNDS} rounds after a first one. Memory is what all"
        " processes take more at the peak than before, where shared pages count once."
    )
    yield ""
    yield f"![Seconds and gigabytes of a round over devices and parameters]({PICTURE.name})"
    yield ""
    for title, (grid, lines) in grids.items():
        yield f"| {title} | " + " | ".join(f"{value:,}" for value in grid) + " | growth |"
        yield "|---|" + "---|" * (len(grid) + 1)
        for name, costs in lines.items():
            for what, unit in (("seconds", "s"), ("gigabytes", "GB")):
                cells = " | ".join(f"{getattr(cost, what):.3g} {unit}" for cost in costs)
                yield f"| {name} | {cells} | {slope(costs, grid, what):.2f} |"
        yield ""
    yield (
        "Growth is the slope between the last two columns: 1 means ten times the cost for ten times"
        " the devices or parameters. The dashed lines of the picture have that slope."
    )
    yield ""


def draw(grids: Grids) -> None:
    """Seconds above gigabytes, devices beside parameters."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure: Any = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 2)
    for column, (title, (grid, lines)) in enumerate(grids.items()):
        for row, what in enumerate(("seconds", "gigabytes")):
            axes = panels[row][column]
            for color, (name, costs) in zip(COLORS, lines.items(), strict=False):
                values = [getattr(cost, what) for cost in costs]
                axes.loglog(grid, values, "-o", color=color, label=name, linewidth=2)
            last = max(getattr(costs[-1], what) for costs in lines.values())
            straight = [last * value / grid[-1] for value in grid]
            axes.loglog(grid, straight, "--", color="0.6", label="in proportion")
            axes.set(xlabel=title, ylabel=what)
            axes.grid(alpha=0.3)
            axes.legend(frameon=False)
    figure.savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    for line in run():
        print(line, flush=True)
