"""The records between strategy and mod, beside Flower's own records.

Flower calls mods only for messages that the app has a function for. So the stages of the secure sum
are messages of the type of their task: their content is one ConfigRecord, and the mod answers them
without the app. The request for training or evaluation also carries one, beside the arrays.

    Work   {task, cap, weight, weights[, personal][, robust, bounds, bins][, clipped, limits]
            [, again][, noise][, opening]
            [, unopened]}                  -> {dim, run[, names, sizes][, again][, reply]}: what is
                                              ready, without its values; the digest of the run
                                              config; the sum that it was in before; and its keys
                                              for the round of the secure sum in the opening
    Work with a record `rfa-first` {request, whom: bytes} -> the same, where the reply is the node's
                                              masked input: it has sent its keys a round ahead
    Stage  {task, request: bytes[, whom]}  -> {reply: bytes}
    Over   {task, over: the round, opened} -> {reply: b""}

A device answers a request that it refuses with Flower's Error, which says why. No such record ever
holds an update, example count or metric of a device in the clear.
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
"""The default name of the metric that counts examples."""
TRAIN, EVALUATE = MessageType.TRAIN, MessageType.EVALUATE
TASKS = (TRAIN, EVALUATE)
FIRST = "rfa-first"
"""The record with the first request of a secure sum, which differs between nodes."""
STAND_IN = 1
"""The number of zeros in place of an update in an evaluation."""
FAILED = 0
"""The code of Flower's errors that have no other code."""
REFUSED = 600
"""The code of a device's own refusal: it has masked nothing. Flower's errors do not say that."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""The allowed names of personal parameters: the server chooses them, and they name a folder."""
LONGEST = 300
"""The most letters of a reason that are logged."""


def personal_fault(personal: object) -> str:
    """Return why this cannot name a folder of personal parameters; empty if it can, or is empty."""
    if not personal or (isinstance(personal, str) and NAME.fullmatch(personal)):
        return ""
    return f"personal must be letters, digits and _.- that can name a folder, not {personal!r}"


class RefusedError(RecordError):
    """A node refuses a request."""


@dataclass(frozen=True)
class Work:
    """A request to train or evaluate, and to keep the result for a sum.

    Attributes:
        task: train or evaluate.
        cap: the most examples that count.
        weight: the name of the metric that counts examples.
        personal: the name of the personal parameters; empty for none.
        weights: how examples become a weight.
        histograms: the metrics that have histograms.
        bounds: the bounds of metrics.
        again: whether a sum about this may be lost, so it is to be repeated.
        noise: the noise multiplier of the next sums, which then hold no metrics; 0 for none.
        opening: the opening of the secure sum, without the basis and the number of metrics, which
            only the device knows; empty if it comes later.
        unopened: the number of a round of the secure sum that began with this work and is over. No
            sum of it was opened, so its inputs may be used again. 0 for none.
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
        """Return the record that is sent."""
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
    """A stage of the secure sum over the results of a task.

    Attributes:
        task: the task.
        request: the request.
        whom: the digest of the devices over which a sum is opened, if they are known.
    """

    task: str
    request: bytes
    whom: bytes = b""

    def content(self) -> RecordDict:
        """Return the content that is sent."""
        record = ConfigRecord({"task": self.task, "request": self.request})
        if self.whom:
            record["whom"] = self.whom
        return RecordDict({KEY: record})


@dataclass(frozen=True)
class Over:
    """A message that a round of the secure sum has ended early.

    Attributes:
        task: the task.
        number: the number of the round.
        opened: whether any device was asked to open a sum.
    """

    task: str
    number: int
    opened: bool

    def content(self) -> RecordDict:
        """Return the content that is sent."""
        record: dict[str, Any] = {"task": self.task, "over": self.number, "opened": self.opened}
        return RecordDict({KEY: ConfigRecord(record)})


@dataclass(frozen=True)
class Ready:
    """What a device has for a sum.

    Attributes:
        layout: its metrics.
        dim: the length of its update.
        run: the digest of its run config, which is the same on all nodes of an honest server.
        again: the token of the sum that it was in with the same input; empty if there is none.
    """

    layout: MetricLayout
    dim: int
    run: bytes
    again: bytes = b""


def read_order(message: Message) -> Work | Stage | Over | None:
    """Return the request to the mod in a message; None if there is none.

    Raises:
        RecordError: if it is not valid.
    """
    if not message.has_content() or KEY not in message.content.config_records:
        return None
    record = message.content.config_records[KEY]
    match dict(record):
        case {"task": str(task), **rest} if task in TASKS:
            return _order(task, rest)
        case _:
            msg = f"the record {KEY!r} holds no known request"
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
                msg = "noise requires training, equal weights and no histograms"
                raise RecordError(msg)
            return work
        case {"over": int(number), "opened": bool(opened)}:
            return Over(task, number, opened)
        case _:
            msg = f"the record {KEY!r} holds unknown fields: {sorted(rest)}"
            raise RecordError(msg)


@dataclass(frozen=True)
class First:
    """The first request of a secure sum, which a request for work carries.

    Attributes:
        request: the request.
        whom: the digest of the devices in its sum.
    """

    request: bytes
    whom: bytes

    def record(self) -> ConfigRecord:
        """Return the record that is sent."""
        return ConfigRecord({"request": self.request, "whom": self.whom})


def split_first(message: Message) -> tuple[Message, First | None]:
    """Return the message that all nodes get, and the first request for this node, or None.

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
    """Return the reply that a result is ready, with the device's keys if they were asked for."""
    record = ConfigRecord({"dim": result.dim, "run": result.run})
    if result.layout.names:  # mods of Flower cannot compute the size of an empty list
        record["names"], record["sizes"] = list(result.layout.names), list(result.layout.sizes)
    if result.again:
        record["again"] = result.again
    if advert:
        record["reply"] = advert
    return Message(RecordDict({KEY: record}), reply_to=message)


def reply(message: Message, answer: bytes) -> Message:
    """Return the reply to a stage."""
    return Message(RecordDict({KEY: ConfigRecord({"reply": answer})}), reply_to=message)


def refuse(message: Message, why: str, code: int = REFUSED) -> Message:
    """Return a reply with the reason of a refusal."""
    return Message(Error(code, why), reply_to=message)


def read_ready(message: Message, wanted: int) -> Ready:
    """Return what a reply to a request for work says.

    Raises:
        RecordError: if it is not valid, or its update has another length than expected; the message
            holds the reason.
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
    """Return the answer in a reply to a stage.

    Raises:
        RecordError: if there is none; the message holds the reason.
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
