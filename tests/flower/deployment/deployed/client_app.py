"""The device's side: training on numbers, behind the mod and under the eyes of a diary."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa.flower import Policy, RobustMod
from rfa.secagg.messages.decoding import decode

from . import numbers


def keep_diary(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Note each message and its answer; at one stage, if told to, never answer."""
    name, came = name_of(message), time.time()
    wait_for_the_end_at(name)
    reply = call_next(message, context)
    entry = {
        "name": name,
        "came": came,
        "went": time.time(),
        "request": size_of(message),
        "reply": size_of(reply),
        "refused": reply.error.reason if reply.has_error() else None,
        "state": len(context.state),
    }
    with (Path(os.environ["RFA_HOME"]) / "diary.jsonl").open("a") as diary:
        diary.write(json.dumps(entry) + "\n")
    return reply


def name_of(message: Message) -> str:
    """What a message is: Work, Over, or a stage of the secure sum with its turn, if any."""
    record = message.content.config_records["rfa"]
    request = record.get("request")
    if not isinstance(request, bytes):
        return "Work" if "cap" in record else "Over"
    stage = decode(request)
    return f"{type(stage).__name__} {getattr(stage, 'masked_sum', '')}".strip()


def wait_for_the_end_at(name: str) -> None:
    """At the stage that the environment names: say that it is reached, and hang, but only once."""
    stage, _, file = os.environ.get("RFA_TEST_HANG", "").partition("@")
    if name == stage and not Path(file).exists():
        Path(file).touch()
        time.sleep(3600)


def size_of(message: Message) -> int:
    """Bytes of the secure sum in a message."""
    if message.has_error():
        return 0
    values = message.content.config_records["rfa"].values()
    return sum(len(value) for value in values if isinstance(value, bytes))


app = ClientApp(mods=[keep_diary, RobustMod(Policy(honest_per_query=0))])


@app.train()
def train(message: Message, context: Context) -> Message:
    """The step of this node in this round."""
    arrays: Any = message.content["arrays"]
    config: Any = message.content["config"]
    partition, t = int(context.node_config["partition-id"]), int(config["server-round"])
    after = numbers.train(arrays["w"].numpy(), partition, t)
    metrics: dict[str, int | float] = {
        "num-examples": numbers.examples(partition),
        "loss": numbers.loss(partition, t),
    }
    content = {"arrays": ArrayRecord({"w": Array(after)}), "metrics": MetricRecord({**metrics})}
    return Message(RecordDict({**content}), reply_to=message)
