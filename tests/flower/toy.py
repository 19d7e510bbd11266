"""A small app for tests: each node's update is a vector of its own near (1, 2, 3, ...)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray

from rfa.flower import (
    Policy,
    RobustMod,
    RunFailedError,
    SecureStrategy,
    Terms,
    create_identity,
)

NODES, DIM = 8, 6
FIRST = 101
TARGET = np.arange(1, DIM + 1, dtype=np.float64)
LAX, FEW_HONEST = Policy(honest_per_query=0), Terms(honest_per_query=0)
"""A policy and terms for several sums over a handful of nodes, which nobody should have."""
Lie = Callable[[NDArray[Any]], NDArray[Any]]


def step_of(node: int, t: int) -> NDArray[Any]:
    """What a node would add to the model in a round."""
    rng = np.random.default_rng([node, t])
    return TARGET + 0.1 * rng.standard_normal(DIM)


def app(
    node: int, home: Path, lie: Lie | None = None, policy: Policy | None = None, **metrics: Any
) -> ClientApp:
    """The app of a node, whose update a lie may spoil."""
    client = ClientApp(mods=[RobustMod(policy or LAX, home)])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        arrays: Any = message.content["arrays"]
        config: Any = message.content["config"]
        step = step_of(node, int(config["server-round"]))
        after = arrays["w"].numpy() + (lie(step) if lie else step)
        found = MetricRecord({"num-examples": 10 + node, "loss": float(node), **metrics})
        record = ArrayRecord({"w": Array(after.astype(np.float32))})
        return Message(RecordDict({"arrays": record, "metrics": found}), reply_to=message)

    @client.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        w: Any = message.content["arrays"]
        seen = float(w["w"].numpy()[0])
        found = MetricRecord({"num-examples": 10 + node, "accuracy": node / 10, "seen": seen})
        return Message(RecordDict({"metrics": found}), reply_to=message)

    return client


def nodes(home: Path, lies: dict[int, Lie] | None = None, **metrics: Any) -> dict[int, ClientApp]:
    """The apps of all nodes."""
    lies = lies or {}
    numbers = range(FIRST, FIRST + NODES)
    return {node: app(node, home, lies.get(node), **metrics) for node in numbers}


def model() -> ArrayRecord:
    """The first model."""
    return ArrayRecord({"w": Array(np.zeros(DIM, np.float32))})


def options(**more: Any) -> dict[str, Any]:
    """Options of a strategy for these nodes."""
    usual = {"example_cap": 200.0, "stage_timeout": 0.4, "node_timeout": 0.1, "terms": FEW_HONEST}
    return {**usual, **more}


def with_nu(**more: Any) -> dict[str, Any]:
    """The same for a strategy that has a smoothing radius."""
    return {"nu": 0.5, **options(**more)}


def signing(home: Path, names: Iterable[int]) -> dict[int, bytes]:
    """Identities for nodes, each in a folder of its own by its number; and the public ones."""
    publics = {str(node): create_identity(home / str(node)) for node in names}
    for node in publics:
        (home / node / "identities.json").write_text(json.dumps(publics))
    return {int(node): bytes.fromhex(public) for node, public in publics.items()}


def attempt(strategy: SecureStrategy, *given: Any, **named: Any) -> Result:
    """What a run comes to, also one in which nothing is done."""
    try:
        return strategy.start(*given, **named)
    except RunFailedError as error:
        return error.result
