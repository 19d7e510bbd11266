"""The device's side: training adds random numbers, behind the mod where a strategy of rfa asks.

A process of a deployment answers one message, so one that is asked by FedAvg imports no rfa.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp


def mod_if_asked(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Let rfa's mod answer what is for it, and the app itself what FedAvg asks."""
    if "rfa" not in message.content.config_records:
        return call_next(message, context)
    from rfa.flower import Policy, RobustMod, robust_mod  # noqa: PLC0415

    mod = robust_mod
    if context.run_config["rule-off"]:
        mod = RobustMod(Policy(honest_per_query=0, max_queries=3))
    return mod(message, context, call_next)


app = ClientApp(mods=[mod_if_asked])
METRICS = {"num-examples": 100, "loss": 0.5}


@app.train()
def train(message: Message, context: Context) -> Message:  # noqa: ARG001
    """A random step."""
    w = message.content.array_records["arrays"]["w"].numpy()
    step = np.random.default_rng().standard_normal(w.shape, np.float32)
    content = {"arrays": ArrayRecord({"w": Array(w + step)}), "metrics": MetricRecord({**METRICS})}
    return Message(RecordDict({**content}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:  # noqa: ARG001
    """The same metrics for every model."""
    return Message(RecordDict({"metrics": MetricRecord({**METRICS})}), reply_to=message)
