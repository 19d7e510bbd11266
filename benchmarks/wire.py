"""What crosses the wire in a round on Flower: messages and bytes of a node, each way.

    python -m benchmarks.wire

The grid is in this process; the ClientApps, the mod and the messages are the real ones. Counted is
the content that rfa sends, beside the model of d float32 that every strategy sends and Flower's own
metadata. The rule on how many nodes several sums take is off.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from tests.flower.grid import LocalGrid

from rfa.flower import (
    RFA,
    OneStepRFA,
    Policy,
    RobustMod,
    SecureFedAvg,
    SecureStrategy,
    Terms,
)

SIZES = ((10, 7850), (10, 1_000_000), (100, 7850))


@dataclass
class Count:
    """Messages and bytes of one node in a round."""

    messages: int = 0
    down: int = 0
    up: int = 0


def app(home: Path) -> ClientApp:
    """An app whose training adds random numbers."""
    client = ClientApp(mods=[RobustMod(Policy(honest_per_query=0), home)])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        w = message.content.array_records["arrays"]["w"].numpy()
        step = np.random.default_rng(context.node_id).standard_normal(w.shape)
        after = (w + step).astype(np.float32)
        metrics = MetricRecord({"num-examples": 100, "loss": 0.5})
        content = {"arrays": ArrayRecord({"w": Array(after)}), "metrics": metrics}
        return Message(RecordDict({**content}), reply_to=message)

    return client


def measure(strategy: SecureStrategy, nodes: int, dim: int) -> Count:
    """The largest node's traffic in one round."""
    counts: dict[int, Count] = {}

    def spoil(node: int, request: Message, reply: Message) -> Message:
        count = counts.setdefault(node, Count())
        count.messages += 1
        count.down += _size(request)
        count.up += _size(reply)
        return reply

    with tempfile.TemporaryDirectory() as home:
        apps = dict.fromkeys(range(1000, 1000 + nodes), app(Path(home)))
        grid = LocalGrid(apps, spoil)
        grid.seen = Nothing()
        strategy.start(grid, ArrayRecord({"w": Array(np.zeros(dim, np.float32))}), 1)
    return max(counts.values(), key=lambda count: count.up)


class Nothing(list[Any]):
    """A list that keeps nothing."""

    def append(self, item: Any) -> None:
        """Forget it."""


def _size(message: Message) -> int:
    values = message.content.config_records["rfa"].values()
    return sum(len(value) if isinstance(value, bytes) else 8 for value in values)


def main() -> None:
    """Print a table."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print("| nodes | d | strategy | exchanges | down | up | up / (4 d) |")
    print("|---:|---:|---|---:|---:|---:|---:|")
    for nodes, dim in SIZES:
        nu = float(np.sqrt(dim))
        how: dict[str, Any] = {
            "fraction_evaluate": 0.0,
            "terms": Terms(honest_per_query=0),
        }
        for strategy in (
            SecureFedAvg(**how),
            OneStepRFA(nu=nu, **how),
            RFA(nu=nu, budget=3, **how),
        ):
            count = measure(strategy, nodes, dim)
            name = f"{type(strategy).__name__}, R = {strategy.aggregator.layout(nodes).queries}"
            share = count.up / (4 * dim)
            print(
                f"| {nodes} | {dim} | {name} | {count.messages} | {count.down / 1e3:.1f} kB | "
                f"{count.up / 1e3:.1f} kB | {share:.2f} |"
            )


if __name__ == "__main__":
    main()
