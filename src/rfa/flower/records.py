"""What crosses the wire between strategy and mod, beside Flower's own records.

Mods are called for messages that the app has a function for, so the stages of the secure sum travel
as messages of the type of their task, too: their content is one ConfigRecord, and the mod answers
them without the app. The request for training or evaluation carries one as well, beside the arrays.

    Work   {task, cap, weight, weights[, personal][, robust, bounds, bins][, clipped, limits]
            [, again][, noise][, opening]
            [, unopened]}                  -> {dim, run[, names, sizes][, again][, reply]}: what is
                                              ready, not its values, the digest of the run config,
                                              which sum it was in before, and its keys for the round
                                              of the secure sum that the opening is of
    Work with a record `rfa-first` {request, whom: bytes} -> the same, where the reply is the node's
                                              masked input: it has sent its keys a round ahead
    Stage  {task, request: bytes[, whom]}  -> {reply: bytes}
    Over   {task, over: the round, opened} -> {reply: b""}

What a device does not do it answers with Flower's Error, which says why. No update, example count
or metric of a device is ever in such a record in the clear.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict

from rfa.flower.fields import (
    KEY,
    RecordError,
    flat,
    read_bounds,
    read_bytes,
    read_count,
    read_histograms,
    read_noise,
    read_opening,
)
from rfa.flower.histograms import Histograms
from rfa.flower.metric_bounds import MetricBounds
from rfa.flower.metrics import MetricLayout
from rfa.secagg.device.spent import TOKEN_SIZE
from rfa.secagg.messages.opening import NO_BASIS
from rfa.secagg.weights import EQUAL, EXAMPLES, MODES, cap_fault

WEIGHTED_BY = "num-examples"
"""The metric that counts examples, unless another is named."""
TRAIN, EVALUATE = MessageType.TRAIN, MessageType.EVALUATE
TASKS = (TRAIN, EVALUATE)
FIRST = "rfa-first"
"""The record with the first request of a secure sum, of which each node has its own."""
STAND_IN = 1
"""How many zeros stand for an update in an evaluation."""
FAILED = 0
"""The code of Flower's errors that have no other."""
REFUSED = 600
"""The code of what a device refuses itself. It has masked nothing; an error of Flower says less."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What may name a folder of personal parameters: the server chooses it, so it must be harmless."""
LONGEST = 300
"""Letters of a reason that are worth logging."""


def personal_fault(personal: object) -> str:
    """Why this cannot name a folder of personal parameters; nothing if it can, or names none."""
    if not personal or (isinstance(personal, str) and NAME.fullmatch(personal)):
        return ""
    return f"personal must be letters, digits and _.- that can name a folder, not {personal!r}"


class RefusedError(RecordError):
    """A node says itself that it does not do what it was asked."""


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
        bounds: within which metrics count.
        again: whether a sum about this may be lost, so that it is to be repeated.
        noise: the multiplier of the noise of the sums to come, in which no metric is; 0 for none.
        opening: how the round of the secure sum begins, but for what only the device knows: what it
            started from, and how many metrics it has; empty where that is asked later.
        unopened: the number of a round of the secure sum that began with this work and is over: no
            sum of it was opened, so that what was brought into it may be brought again; 0 for none.
    """

    task: str
    cap: float
    weight: str
    personal: str = ""
    weights: str = EXAMPLES
    histograms: Histograms = field(default_factory=Histograms)
    bounds: MetricBounds = field(default_factory=MetricBounds)
    again: bool = False
    noise: float = 0.0
    opening: bytes = b""
    unopened: int = 0

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
        if self.bounds.names:
            record["clipped"] = list(self.bounds.names)
            record["limits"] = [bound for bounds in self.bounds.bounds for bound in bounds]
        if self.again:
            record["again"] = True
        if self.noise:
            record["noise"] = self.noise
        if self.opening:
            record["opening"] = self.opening
        if self.unopened:
            record["unopened"] = self.unopened
        return record


@dataclass(frozen=True)
class Stage:
    """A stage of the secure sum over what the task left on devices.

    Attributes:
        task: over what the sum is.
        request: the request.
        whom: where it is known over whom a sum is opened, the digest of these devices.
    """

    task: str
    request: bytes
    whom: bytes = b""

    def content(self) -> RecordDict:
        """As it travels."""
        record = ConfigRecord({"task": self.task, "request": self.request})
        if self.whom:
            record["whom"] = self.whom
        return RecordDict({KEY: record})


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
        again: by what all nodes name the sum that it was in with the same before; else empty.
    """

    layout: MetricLayout
    dim: int
    run: bytes
    again: bytes = b""


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
        case {"request": bytes(request), **more}:
            return Stage(task, request, read_bytes(more.get("whom", b""), len(NO_BASIS)))
        case {"cap": float(cap), "weight": str(weight), "weights": str(mode), **more} if (
            0 < cap < math.inf and mode in MODES
        ):
            personal = str(more.get("personal", ""))
            if fault := personal_fault(personal) or cap_fault(cap, mode):
                raise RecordError(fault)
            asked = read_histograms(more), read_bounds(more), more.get("again") is True
            how = (*asked, read_noise(more), read_opening(more), read_count(more, "unopened"))
            work = Work(task, cap, weight, personal, mode, *how)
            if work.noise and (task != TRAIN or mode != EQUAL or work.histograms.names):
                msg = "noise goes with training, equal weights and no histograms alone"
                raise RecordError(msg)
            return work
        case {"over": int(number), "opened": bool(opened)}:
            return Over(task, number, opened)
        case _:
            msg = f"the record {KEY!r} asks for nothing that is known: {sorted(rest)}"
            raise RecordError(msg)


@dataclass(frozen=True)
class First:
    """The first request of a secure sum, as it travels with a request for work.

    Attributes:
        request: the request.
        whom: the digest of the devices that its sum is over.
    """

    request: bytes
    whom: bytes

    def record(self) -> ConfigRecord:
        """It as a record."""
        return ConfigRecord({"request": self.request, "whom": self.whom})


def split_first(message: Message) -> tuple[Message, First | None]:
    """A message as all nodes get it, and the first request for this one; None if there is none.

    Raises:
        RecordError: if there is something else in its place.
    """
    if not message.has_content() or FIRST not in message.content:
        return message, None
    record: Any = message.content[FIRST]
    found = [record.get(name) for name in ("request", "whom")]
    if not isinstance(record, ConfigRecord) or not all(isinstance(x, bytes) and x for x in found):
        msg = f"the record {FIRST!r} has no bytes where the first request of a sum is wanted"
        raise RecordError(msg)
    common = copy.copy(message)
    common.content = RecordDict(
        {name: kept for name, kept in message.content.items() if name != FIRST}
    )
    return common, First(*found)


def ready(message: Message, result: Ready, advert: bytes = b"") -> Message:
    """The reply that a result is there, with the device's keys where they were asked for."""
    record = ConfigRecord({"dim": result.dim, "run": result.run})
    if result.layout.names:  # mods of Flower cannot tell the size of an empty list
        record["names"], record["sizes"] = list(result.layout.names), list(result.layout.sizes)
    if result.again:
        record["again"] = result.again
    if advert:
        record["reply"] = advert
    return Message(RecordDict({KEY: record}), reply_to=message)


def reply(message: Message, answer: bytes) -> Message:
    """The reply to a stage."""
    return Message(RecordDict({KEY: ConfigRecord({"reply": answer})}), reply_to=message)


def refuse(message: Message, why: str, code: int = REFUSED) -> Message:
    """The reply that says why there is no other."""
    return Message(Error(code, why), reply_to=message)


def read_ready(message: Message, wanted: int) -> Ready:
    """What a reply to a request for work says.

    Raises:
        RecordError: if it says something else, or has an update of another length than is wanted;
            the text holds the reason.
    """
    record = _record(message)
    names, sizes = (flat(record.get(name, [])) for name in ("names", "sizes"))
    dim = flat(record.get("dim"))
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
    return Ready(layout, dim[0], run, read_bytes(record.get("again", b""), TOKEN_SIZE))


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


def _record(message: Message) -> Mapping[str, Any]:
    if message.has_error():
        reason = message.error.reason or f"error {message.error.code}"
        kind = RefusedError if message.error.code == REFUSED else RecordError
        raise kind(" ".join(reason.split())[:LONGEST])
    if KEY not in message.content.config_records:
        msg = "it does not speak for rfa: has its ClientApp mods=[robust_mod]?"
        raise RecordError(msg)
    return message.content.config_records[KEY]
