"""The server's side: a strategy of rfa, with a record of what its sums were over."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from rfa._types import Vector
from rfa.flower import RFA, OneStepRFA, ServerModel, Terms, read_identities
from rfa.oracle import Sum, SumOracle

from . import numbers


class Watched(RFA):
    """RFA that notes its sums."""

    seen: list[list[dict[str, float]]]

    def aggregate(self, ask: SumOracle, dim: int) -> Vector:
        """The step of the model."""
        sums: list[dict[str, float]] = []
        self.seen.append(sums)

        def watch(v: Vector, nu: float) -> Sum:
            began = time.monotonic()
            total = ask(v, nu)
            seconds = time.monotonic() - began
            sums.append({"count": total.count, "weight": total.weight, "seconds": seconds})
            return total

        return super().aggregate(watch, dim)


class WatchedOneStep(Watched, OneStepRFA):
    """One step, and its sum is noted."""


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train as the run configuration says, and write down what came out."""
    config: Any = context.run_config
    strategy = strategy_of(config)
    strategy.seen = []
    arrays = ArrayRecord({"w": Array(numbers.first_model())})
    result = strategy.start(
        grid, arrays, num_rounds=int(config["rounds"]), timeout=float(config["train-timeout"])
    )
    found = {
        "w": result.arrays["w"].numpy().tolist(),
        "metrics": {t: dict(record) for t, record in result.train_metrics_clientapp.items()},
        "sums": strategy.seen,
    }
    Path(config["result"]).write_text(json.dumps(found))


def strategy_of(config: Any) -> Watched:
    """RFA with a budget; without one, a single step for nodes that do not trust the server."""
    options: dict[str, Any] = {
        "nu": numbers.NU,
        "example_cap": numbers.CAP,
        "stage_timeout": float(config["stage-timeout"]),
        "fraction_evaluate": 0.0,
    }
    if budget := int(config["budget"]):
        return Watched(budget=budget, **options)
    terms, known = (
        Terms(server_model=ServerModel.MALICIOUS),
        read_identities(Path(config["identities"])),
    )
    return WatchedOneStep(terms=terms, identities=known, **options)
