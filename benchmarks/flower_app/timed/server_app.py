"""The server's side: strategies take turns on the same nodes, one round at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from rfa.flower import RFA, OneStepRFA, StrategyOptions, Terms

PATIENCE = 900.0
"""Seconds to wait for a node: one that is slow is waited for, and never left out."""


FEW = Terms(honest_per_query=0)
FEWEST = Terms(honest_per_query=0, max_dropout_fraction=0.0)
"""For three sums over fewer nodes than the rule allows, and over so few that none may drop out."""


class LostNodesError(RuntimeError):
    """A round was not over all nodes, so its time means nothing."""


@dataclass
class Case:
    """A strategy with or without federated evaluation, and what its rounds took.

    Attributes:
        name: the strategy.
        evaluates: whether nodes evaluate the model of each round.
        strategy: the strategy itself.
        model: the model after its last round.
        seconds: those of each round.
        messages: those to each node in each round.
    """

    name: str
    evaluates: bool
    strategy: FedAvg
    model: ArrayRecord
    seconds: list[float] = field(default_factory=list[float])
    messages: list[int] = field(default_factory=list[int])

    def play(self, grid: Grid, nodes: int) -> None:
        """Play one round; what comes before it, such as waiting for nodes to join, is not timed.

        Raises:
            LostNodesError: if some nodes did not take part to the end.
        """
        clock: list[float] = []
        sent: list[int] = []
        push = grid.push_messages

        def count(messages: Iterable[Message]) -> Iterable[str]:
            given = [*messages]
            sent.extend(message.metadata.dst_node_id for message in given)
            return push(given)

        with mock.patch.object(grid, "push_messages", count):
            result = self.strategy.start(
                grid,
                self.model,
                num_rounds=1,
                timeout=PATIENCE,
                evaluate_fn=lambda _t, _model: clock.append(time.perf_counter()),
            )
        done = 1 in result.train_metrics_clientapp
        if self.evaluates:
            done &= 1 in result.evaluate_metrics_clientapp
        counts = {sent.count(node) for node in set(sent)}
        if not done or len(set(sent)) != nodes or len(counts) != 1:
            msg = f"{self.name} lost nodes in a round of {nodes}: it sent {sorted(counts)} messages"
            raise LostNodesError(msg)
        self.model = result.arrays
        self.seconds.append(clock[1] - clock[0])
        self.messages.append(counts.pop())


def terms_of(nodes: int) -> Terms:
    """Terms under which so many nodes may have three sums: the usual ones, if they can."""
    return next((terms for terms in (Terms(), FEW) if terms.smallest(3) <= nodes), FEWEST)


def cases(nodes: int, dim: int) -> list[Case]:
    """FedAvg, one sum and three sums, each without and with evaluation."""
    nu = float(np.sqrt(dim))
    secure: StrategyOptions = {
        "stage_timeout": PATIENCE,
        "stage_grace": PATIENCE,
        "node_timeout": PATIENCE,
    }
    several: StrategyOptions = {**secure, "terms": terms_of(nodes)}
    everyone = {f"min_{which}_nodes": nodes for which in ("available", "train", "evaluate")}
    found: list[Case] = []
    for evaluates in (False, True):
        given: Any = {**everyone, "fraction_evaluate": float(evaluates)}
        strategies = {
            "FedAvg": FedAvg(**given),
            "OneStepRFA, one sum": OneStepRFA(nu=nu, **secure, **given),
            "RFA, three sums": RFA(nu=nu, budget=3, **several, **given),
        }
        for name, strategy in strategies.items():
            model = ArrayRecord({"w": Array(np.zeros(dim, np.float32))})
            found.append(Case(name, evaluates, strategy, model))
    return found


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Let all cases take turns, and write down what their rounds took."""
    config: Any = context.run_config
    nodes = int(config["nodes"])
    playing = cases(nodes, int(config["dim"]))
    for _ in range(int(config["turns"])):
        for case in playing:
            case.play(grid, nodes)
    fields = ("name", "evaluates", "seconds", "messages")
    report = [{name: getattr(case, name) for name in fields} for case in playing]
    Path(config["result"]).write_text(json.dumps(report))
