"""The server's side: strategies take turns on the same nodes, two rounds at a time.

The second one is timed: in it nodes have sent their keys a round ahead, as in all rounds but the
first of a run.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from rfa.flower import RFA, OneStepRFA, SecureStrategy, StrategyOptions, Terms
from rfa.flower.parts import PartOracle

PATIENCE = 900.0
"""Seconds to wait for a node: one that is slow is waited for, and never left out."""


FEW = Terms(honest_per_query=0)
FEWEST = Terms(honest_per_query=0, max_dropout_fraction=0.0)
"""For three sums over fewer nodes than the rule allows, and over so few that none may drop out."""


class NotPlayedError(RuntimeError):
    """A round lost nodes or left out sums, so its time means nothing."""


@dataclass
class Case:
    """A strategy with or without federated evaluation, and what its rounds took.

    Attributes:
        name: the strategy.
        sums: how many each round takes, with its evaluation; FedAvg has none.
        evaluates: whether nodes evaluate the model of each round.
        strategy: the strategy itself.
        model: the model after its last round.
        seconds: those of each round that is timed.
        messages: those to each node in it.
    """

    name: str
    sums: int
    evaluates: bool
    strategy: FedAvg
    model: ArrayRecord
    seconds: list[float] = field(default_factory=list[float])
    messages: list[int] = field(default_factory=list[int])

    def play(self, grid: Grid, nodes: int) -> None:
        """Play two rounds, and time the second: not what comes before, such as waiting for nodes.

        Raises:
            NotPlayedError: if some nodes did not take part to the end, or sums are missing.
        """
        clock: list[float] = []
        if isinstance(self.strategy, SecureStrategy):  # nodes have those of another strategy
            self.strategy.ahead.forget()
        with counted_messages(grid) as sent, watched_oracles(self.strategy) as oracles:

            def note(t: int, _: ArrayRecord) -> None:
                clock.append(time.perf_counter())
                if t == 1:
                    sent.clear()
                    oracles.clear()

            result = self.strategy.start(
                grid, self.model, num_rounds=2, timeout=PATIENCE, evaluate_fn=note
            )
        evaluated = 2 in result.evaluate_metrics_clientapp
        whole = 2 in result.train_metrics_clientapp and evaluated == self.evaluates
        counts, sums = {*sent.values()}, sum(oracle.answers for oracle in oracles)
        if not whole or sums != self.sums or len(sent) != nodes or len(counts) != 1:
            msg = (
                f"a round of {self.name} over {nodes} nodes was not played to its end: "
                f"{sums} sums, {sorted(counts)} messages to each of {len(sent)} nodes"
            )
            raise NotPlayedError(msg)
        self.model = result.arrays
        self.seconds.append(clock[2] - clock[1])
        self.messages.append(counts.pop())


@contextmanager
def counted_messages(grid: Grid) -> Generator[Counter[int]]:
    """How many messages go to each node."""
    sent, push = Counter[int](), grid.push_messages

    def push_messages(messages: Iterable[Message]) -> Iterable[str]:
        given = [*messages]
        sent.update(message.metadata.dst_node_id for message in given)
        return push(given)

    with mock.patch.object(grid, "push_messages", push_messages):
        yield sent


@contextmanager
def watched_oracles(strategy: FedAvg) -> Generator[list[PartOracle]]:
    """The oracles of all rounds and evaluations, where a strategy has them."""
    seen: list[PartOracle] = []
    if not isinstance(strategy, SecureStrategy):
        yield seen
        return
    take = strategy.over

    @contextmanager
    def over(*given: Any) -> Generator[list[PartOracle]]:
        with take(*given) as oracles:
            seen.extend(oracles)
            yield oracles

    with mock.patch.object(strategy, "over", over):
        yield seen


def terms_of(nodes: int) -> Terms:
    """Terms under which so many nodes may have three sums: the usual ones, if they can."""
    return next((terms for terms in (Terms(), FEW) if terms.smallest(3) <= nodes), FEWEST)


def cases(nodes: int, dim: int) -> list[Case]:
    """FedAvg, one sum and three sums, each without and with evaluation."""
    nu = float(np.sqrt(dim)) / 4  # updates are four times as long: none is near, which ends a round
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
            "FedAvg": (0, FedAvg(**given)),
            "OneStepRFA, one sum": (1 + evaluates, OneStepRFA(nu=nu, **secure, **given)),
            "RFA, three sums": (3 + evaluates, RFA(nu=nu, budget=3, **several, **given)),
        }
        for name, (sums, strategy) in strategies.items():
            model = ArrayRecord({"w": Array(np.zeros(dim, np.float32))})
            found.append(Case(name, sums, evaluates, strategy, model))
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
