"""What a message of a round on Flower takes on a device, and what it leaves on the disk.

    python -m benchmarks.flower_messages

The grid is in this process; ClientApps, mod and messages are the real ones. Of the seconds of a
message those of the app's own training are taken off. A device of a deployment keeps what it must
in files, one commit a message; one of a simulation in its context.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from tests.flower.grid import LocalGrid

from benchmarks.wire import Nothing
from rfa.flower import OneStepRFA, RobustMod

NODES, DIM, ROUNDS = 100, 100_000, 2
Next = Callable[[Message, Context], Message]


@dataclass
class Clock:
    """Seconds of all messages, and how many there were."""

    seconds: float = 0.0
    messages: int = 0
    training: float = field(default=0.0, repr=False)

    def __call__(self, message: Message, context: Context, call_next: Next) -> Message:
        """Measure what the mods behind it take, without the app."""
        began, before = time.perf_counter(), self.training
        reply = call_next(message, context)
        self.seconds += time.perf_counter() - began - (self.training - before)
        self.messages += 1
        return reply


def app(home: Path, clock: Clock) -> ClientApp:
    """An app whose training adds random numbers."""
    client = ClientApp(mods=[clock, RobustMod(folder=home)])

    @client.train()
    def train(message: Message, context: Context) -> Message:  # noqa: ARG001
        began = time.perf_counter()
        w = message.content.array_records["arrays"]["w"].numpy()
        step = np.random.default_rng().standard_normal(w.shape, np.float32)
        metrics = MetricRecord({"num-examples": 100, "loss": 0.5})
        content = {"arrays": ArrayRecord({"w": Array(w + step)}), "metrics": metrics}
        reply = Message(RecordDict({**content}), reply_to=message)
        clock.training += time.perf_counter() - began
        return reply

    return client


def measure(nodes: int, dim: int) -> tuple[Clock, float, float]:
    """The clock of some rounds, seconds per round, and bytes that a node leaves on the disk."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        grid = LocalGrid(dict.fromkeys(range(1000, 1000 + nodes), app(home, clock)))
        grid.seen = Nothing()
        strategy = OneStepRFA(nu=float(np.sqrt(dim)), fraction_evaluate=0.0)
        began = time.perf_counter()
        strategy.start(grid, ArrayRecord({"w": Array(np.zeros(dim, np.float32))}), ROUNDS)
        took = (time.perf_counter() - began) / ROUNDS
        left = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    return clock, took, left / nodes


def main() -> None:
    """Print a table."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"{NODES} nodes, d = {DIM}, one sum per round")
    print()
    print("| device | ms per message | s per round | bytes that a node leaves |")
    print("|---|---:|---:|---:|")
    for name, simulated in (("of a deployment", False), ("of a simulation", True)):
        with mock.patch("rfa.flower.simulated.is_simulated", lambda here=simulated: here):
            clock, took, left = measure(NODES, DIM)
        each = 1e3 * clock.seconds / clock.messages
        print(f"| {name} | {each:.1f} | {took:.2f} | {left:.0f} |")


if __name__ == "__main__":
    main()
