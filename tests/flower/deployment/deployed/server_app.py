"""The server's side: a strategy of rfa, with a record of what its sums were over."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from rfa._types import Vector
from rfa.aggregators import RFA, Layout, OneStepRFA, SumAggregator
from rfa.flower import SecureStrategy, ServerModel, StrategyOptions, Terms, read_identities
from rfa.oracle import RecordingOracle, Sum

from . import numbers

Seen = list[list[dict[str, float]]]
"""The sums of each round."""


@dataclass(frozen=True)
class Watched(SumAggregator[Any]):
    """An aggregator of this app: one of rfa, and what its sums were over."""

    inner: SumAggregator[Any]
    seen: Seen = field(default_factory=list[list[dict[str, float]]])

    def layout(self, devices: int) -> Layout:
        """That of the inner one."""
        return self.inner.layout(devices)

    def aggregate(self, oracles: Sequence[RecordingOracle], dim: int, state: Any) -> Vector:
        """The step of the model."""
        sums: list[dict[str, float]] = []
        self.seen.append(sums)

        def watch(v: Vector, nu: Any) -> Sum:
            began = time.monotonic()
            total = oracles[0](v, nu)
            seconds = time.monotonic() - began
            sums.append({"count": total.count, "weight": total.need("weight"), "seconds": seconds})
            return total

        return self.inner.aggregate([RecordingOracle(watch)], dim, state)


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train as the run configuration says, and write down what came out."""
    config: Any = context.run_config
    aggregator = Watched(aggregator_of(config))
    strategy = SecureStrategy(aggregator, **options_of(config))
    arrays = ArrayRecord({"w": Array(numbers.first_model())})
    result = strategy.start(
        grid, arrays, num_rounds=int(config["rounds"]), timeout=float(config["train-timeout"])
    )
    report = {
        "w": result.arrays["w"].numpy().tolist(),
        "metrics": {t: dict(record) for t, record in result.train_metrics_clientapp.items()},
        "sums": aggregator.seen,
    }
    Path(config["result"]).write_text(json.dumps(report))


def aggregator_of(config: Any) -> SumAggregator[Any]:
    """RFA with a budget; without one, a single step."""
    budget = int(config["budget"])
    return RFA(nu=numbers.NU, budget=budget) if budget else OneStepRFA(nu=numbers.NU)


def options_of(config: Any) -> StrategyOptions:
    """Where there is no budget, nodes do not trust the server."""
    options: StrategyOptions = {
        "example_cap": numbers.CAP,
        "stage_timeout": float(config["stage-timeout"]),
        "fraction_evaluate": 0.0,
    }
    if int(config["budget"]):  # more sums over a handful of nodes than anybody should allow
        options["terms"] = Terms(honest_per_query=0)
    else:
        options["terms"] = Terms(server_model=ServerModel.MALICIOUS)
        options["identities"] = read_identities(Path(config["identities"]))
    return options
