"""What crosses the wire between strategy and mod, beside Flower's own records.

Mods are called for messages that the app has a function for, so the stages of the secure sum travel
as messages of the type train, too: their content is one ConfigRecord, and the mod answers them
without the app. The request for training or evaluation carries one as well, beside the arrays.

    Work   {task, cap, weight, weights[, personal][, robust, bounds, bins]}
                                           -> {names, sizes, dim, run}: what is ready, not its
                                              values, and the digest of the run config
    Stage  {task, request: bytes}          -> {reply: bytes}
    Over   {task, over: the round, opened} -> {reply: b""}

What a device does not do it answers with Flower's Error, which says why. No update, example count
or metric of a device is ever in such a record in the clear.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict

from rfa.errors import InvalidValueError
from rfa.flower.errors import FlowerError
from rfa.flower.histograms import Histograms
from rfa.flower.metrics import MetricLayout
from rfa.secagg.messages.round import NO_BASIS
from rfa.secagg.weights import EXAMPLES, MODES, cap_fault

KEY = "rfa"
TRAIN, EVALUATE = MessageType.TRAIN, MessageType.EVALUATE
TASKS = (TRAIN, EVALUATE)
STAND_IN = 1
"""How many zeros stand for an update in an evaluation."""
REFUSED = 0
"""The code of Flower's errors that have no other."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What may name a folder of personal parameters: the server chooses it, so it must be harmless."""
LONGEST = 300
"""Letters of a reason that are worth logging."""


class RecordError(FlowerError):
    """A message is not what it should be, or a node does not do what it was asked."""


@dataclass(frozen=True)
class Work:
    """A request to train or evaluate, and to keep the result for a sum.

    Attributes:
        task: train or evaluate.
        cap: the most examples that count.
        weight: the name of the metric that counts examples.
        personal: under what name personal parameters are kept; empty for none.
        weights: how examples make a weight.
        histograms: of which metrics there are histograms.
    """

    task: str
    cap: float
    weight: str
    personal: str = ""
    weights: str = EXAMPLES
    histograms: Histograms = field(default_factory=Histograms)

    def record(self) -> ConfigRecord:
        """As it travels."""
        record = ConfigRecord({"task": self.task, "cap": self.cap, "weight": self.weight})
        record["weights"] = self.weights
        if self.personal:
            record["personal"] = self.personal
        if self.histograms.names:
            record["robust"] = list(self.histograms.names)
            record["bounds"] = [bound for bounds in self.histograms.bounds for bound in bounds]
            record["bins"] = self.histograms.bins
        return record


@dataclass(frozen=True)
class Stage:
    """A stage of the secure sum over what the task left on devices."""

    task: str
    request: bytes

    def content(self) -> RecordDict:
        """As it travels."""
        return RecordDict({KEY: ConfigRecord({"task": self.task, "request": self.request})})


@dataclass(frozen=True)
class Over:
    """The word that a round of the secure sum has ended early.

    Attributes:
        task: over what the sum was.
        number: the number of the round.
        opened: whether any device was asked to open a sum.
    """

    task: str
    number: int
    opened: bool

    def content(self) -> RecordDict:
        """As it travels."""
        record: dict[str, Any] = {"task": self.task, "over": self.number, "opened": self.opened}
        return RecordDict({KEY: ConfigRecord(record)})


@dataclass(frozen=True)
class Ready:
    """What a device has for a sum.

    Attributes:
        layout: which metrics.
        dim: the length of its update.
        run: the digest of its run config, which is the same on all nodes of an honest server.
    """

    layout: MetricLayout
    dim: int
    run: bytes


def read_order(message: Message) -> Work | Stage | Over | None:
    """What a message asks of the mod; None if there is nothing about it.

    Raises:
        RecordError: if it makes no sense.
    """
    if not message.has_content() or KEY not in message.content.config_records:
        return None
    record = message.content.config_records[KEY]
    match dict(record):
        case {"task": str(task), **rest} if task in TASKS:
            return _order(task, rest)
        case _:
            msg = f"the record {KEY!r} asks for nothing that is known"
            raise RecordError(msg)


def _order(task: str, rest: dict[str, Any]) -> Work | Stage | Over:
    match rest:
        case {"request": bytes(request)}:
            return Stage(task, request)
        case {"cap": float(cap), "weight": str(weight), "weights": str(mode), **more} if (
            0 < cap < math.inf and mode in MODES
        ):
            personal = str(more.get("personal", ""))
            if personal and not NAME.fullmatch(personal):
                msg = f"{personal!r} cannot name a folder: letters, digits and _.- can"
                raise RecordError(msg)
            if fault := cap_fault(cap, mode):
                raise RecordError(fault)
            return Work(task, cap, weight, personal, mode, _histograms(more))
        case {"over": int(number), "opened": bool(opened)}:
            return Over(task, number, opened)
        case _:
            msg = f"the record {KEY!r} asks for nothing that is known: {sorted(rest)}"
            raise RecordError(msg)


def _histograms(more: Mapping[str, Any]) -> Histograms:
    """The histograms that a request for work asks for.

    Raises:
        RecordError: if there can be no such.
    """
    names, bounds = _flat(more.get("robust", [])), _flat(more.get("bounds", []))
    if not names and not bounds:
        return Histograms()
    try:
        pairs = tuple(zip(bounds[::2], bounds[1::2], strict=True))
        return Histograms(tuple(map(str, names)), pairs, more.get("bins", 0))
    except (InvalidValueError, TypeError, ValueError) as error:
        msg = f"these histograms cannot be summed: {error}"
        raise RecordError(msg) from None


def ready(message: Message, result: Ready) -> Message:
    """The reply that a result is there."""
    names, sizes = list(result.layout.names), list(result.layout.sizes)
    record = ConfigRecord({"names": names, "sizes": sizes, "dim": result.dim, "run": result.run})
    return Message(RecordDict({KEY: record}), reply_to=message)


def reply(message: Message, answer: bytes) -> Message:
    """The reply to a stage."""
    return Message(RecordDict({KEY: ConfigRecord({"reply": answer})}), reply_to=message)


def refuse(message: Message, why: str) -> Message:
    """The reply that says why there is no other."""
    return Message(Error(REFUSED, why), reply_to=message)


def read_ready(message: Message, wanted: int) -> Ready:
    """What a reply to a request for work says.

    Raises:
        RecordError: if it says something else, or has an update of another length than is wanted;
            the text holds the reason.
    """
    record = _record(message)
    names, sizes, dim = (_flat(record.get(name)) for name in ("names", "sizes", "dim"))
    run = record.get("run")
    good = (
        len(names) == len(sizes)
        and len(dim) == 1
        and all(isinstance(name, str) for name in names)
        and all(type(size) is int and size >= 0 for size in (*sizes, *dim))
    )
    if not good or not isinstance(run, bytes) or len(run) != len(NO_BASIS):
        msg = "it does not say what it has"
        raise RecordError(msg)
    if dim[0] != wanted:
        msg = f"its update has {dim[0]} numbers, and {wanted} are wanted"
        raise RecordError(msg)
    layout = MetricLayout(names, sizes)
    if layout.fault:
        raise RecordError(layout.fault)
    return Ready(layout, dim[0], run)


def read_reply(message: Message) -> bytes:
    """The answer in a reply to a stage.

    Raises:
        RecordError: if there is none; the text holds the reason.
    """
    answer = _record(message).get("reply")
    if not isinstance(answer, bytes):
        msg = "it has no answer"
        raise RecordError(msg)
    return answer


def _flat(value: Any) -> tuple[Any, ...]:
    """A value of a record as a tuple, whether it is a list or not."""
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else (value,)


def _record(message: Message) -> Mapping[str, Any]:
    if message.has_error():
        reason = message.error.reason or f"error {message.error.code}"
        raise RecordError(" ".join(reason.split())[:LONGEST])
    if KEY not in message.content.config_records:
        msg = "it does not speak for rfa: has its ClientApp mods=[robust_mod]?"
        raise RecordError(msg)
    return message.content.config_records[KEY]
