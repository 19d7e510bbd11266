"""Targets on Flower: records, the mod of a device, and whole rounds of a strategy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp

from rfa.flower import RobustMod, SecureFedAvg, Terms, records
from rfa.flower.errors import FlowerError
from rfa.flower.histograms import histograms_of
from rfa.flower.storage import DeviceStorage
from rfa.secagg.device.machine import Device
from rfa.secagg.device.memory import Memory
from rfa.secagg.device.profile import Profile
from rfa.secagg.errors import SecAggError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.oracle import open_round
from rfa.secagg.weights import MODES
from tests.flower.grid import LocalGrid
from tests.flower.toy import attempt
from tests.fuzz.engine import ACCEPTED
from tests.fuzz.mutate import mutate_value
from tests.fuzz.sessions import sessions

ODD: tuple[Any, ...] = (0, -1, 1 << 62, True, 0.5, math.nan, math.inf, "", "train", b"", b"rfa")
DIM = 3
VOTES = histograms_of({"hits": (0.0, 4.0), "loss": (0.0, 1.0)})


def mutate_record(rng: Random, record: Any) -> dict[str, Any]:
    """The values of a record, with some changed, missing, of another kind, or new."""
    values = dict(record)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice([*values, "task", "request", "over", "opened", "names", "dim", "new"])
        chance = rng.random()
        if chance < 0.2:
            values.pop(name, None)
        elif chance < 0.5 or name not in values:
            odd = rng.choice(ODD)
            values[name] = [odd] * rng.randrange(4) if rng.random() < 0.3 else odd
        else:
            values[name] = mutate_value(rng, values[name])
    return {name: value for name, value in values.items() if value is not None}


def content_of(values: dict[str, Any]) -> RecordDict:
    """Values as they travel; as much of them as can."""
    record = ConfigRecord()
    for name, value in values.items():
        try:
            record[name] = value
        except (TypeError, ValueError):
            continue
    return RecordDict({records.KEY: record})


def flower_name(reason: str) -> str:
    """The name of the error with which a mod refuses: one of ours, and nothing unexpected."""
    name, _, text = reason.partition(": ")
    assert text.strip(), reason
    known = {one.__name__ for one in (*_below(SecAggError), *_below(FlowerError))}
    assert name in known, f"an unexpected error: {reason}"
    return name


def _below(kind: type[Any]) -> list[type[Any]]:
    return [kind, *(each for one in kind.__subclasses__() for each in _below(one))]


OPENING = open_round(1, Terms(), queries=1, dim=DIM, fast=True).encode()
"""How a round begins, as nodes are told with their work."""


class Records:
    """Records of another kind, with other values, or none."""

    def __init__(self, folder: Path) -> None:
        LocalGrid({})
        self.last: Any = None
        self._orders = [
            records.Work("train", 200.0, "num-examples", "mine").record(),
            records.Work("train", 200.0, "num-examples", opening=OPENING).record(),
            records.Work("evaluate", 256.0, "n", weights="buckets", histograms=VOTES).record(),
            records.Stage("train", b"rfa").content()[records.KEY],
            records.Over("evaluate", 7, opened=True).content()[records.KEY],
            ConfigRecord({"names": ["a", "b"], "sizes": [0, 4], "dim": DIM, "run": bytes(32)}),
            ConfigRecord({"reply": b"rfa"}),
        ]
        self._readers: list[Callable[[Message], object]] = [
            records.read_order,
            lambda message: records.read_ready(message, DIM),
            records.read_reply,
        ]

    def one(self, rng: Random) -> str:
        """Read a record as an order, as what is ready, or as a reply."""
        self.last = mutate_record(rng, rng.choice(self._orders))
        message = Message(content_of(self.last), dst_node_id=5, message_type="train")
        if rng.random() < 0.02:
            message.metadata.__dict__.update(_message_id="1", _src_node_id=1)
            error = Error(rng.randrange(20), rng.choice((None, "", "why")))
            message = Message(error, reply_to=message)
        try:
            rng.choice(self._readers)(message)
        except records.RecordError as error:
            return flower_name(f"{type(error).__name__}: {error}")
        return ACCEPTED


@dataclass
class Kept:
    """A device's store without a file."""

    node: int
    contribution: Contribution | None = None
    memory: Memory = field(default_factory=Memory)

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def bring(
        self,
        contribution: Contribution | None,
        label: bytes = b"",
        opening: OpenRound | None = None,
        *,
        noisy: bool = False,
    ) -> bytes:
        del label, noisy  # nothing is marked here
        self.contribution, self.memory = contribution, Memory(round=self.memory.round)
        if opening is None:
            return b""
        if contribution:
            metrics, basis = len(contribution.metrics), contribution.basis
            opening = dataclasses.replace(opening, metrics=metrics, basis=basis)
        return self.receive(opening.encode())

    def receive(self, request: bytes, whom: bytes = b"") -> bytes:
        device = Device(self.contribution, Profile(self.node), memory=self.memory)
        try:
            return device.receive(request)
        finally:
            self.memory = device.memory

    def end(self, number: int | None = None, *, opened: bool = True) -> None:
        self.memory = Memory(round=self.memory.round)


@dataclass(frozen=True)
class LightMod(RobustMod):
    """The mod without files."""

    kept: dict[str, Kept] = field(default_factory=dict[str, Kept])

    def vault(self, task: str, message: Message, storage: DeviceStorage) -> Any:
        return self.kept.setdefault(task, Kept(storage.node))


def arrays(rng: Random | None = None) -> ArrayRecord:
    """A model; with a generator, often an odd one."""
    value: Any = np.zeros(DIM, np.float32)
    if rng and rng.random() < 0.5:
        value = rng.choice(
            (
                np.full(DIM, rng.choice((math.nan, math.inf, 1e38, 1.0)), np.float32),
                np.zeros(rng.randrange(6), np.float64),
                np.zeros((1, DIM), np.int64),
                np.zeros(DIM, np.bool_),
                np.array(3.0),
            )
        )
    return ArrayRecord({rng.choice(("w", "w", "v")) if rng else "w": Array(value)})


class Mods:
    """The mod of one device, asked anything, around an app that does anything."""

    def __init__(self, folder: Path) -> None:
        LocalGrid({})
        self.last: Any = None
        self._folder = folder
        self._requests = [asked.request for s in sessions() for asked in s.asked]

    def one(self, rng: Random) -> str:
        """Send a message or two to a new device."""
        mod = LightMod(folder=self._folder)
        outcome = ACCEPTED
        for _ in range(rng.choice((1, 2, 3))):
            outcome = self._send(rng, mod)
        return outcome

    def _send(self, rng: Random, mod: LightMod) -> str:
        order: Any = rng.choice(
            (
                records.Work("train", 200.0, "n", rng.choice(("", "mine"))).record(),
                records.Work("evaluate", 200.0, "n").record(),
                records.Work("train", 200.0, "n", opening=OPENING).record(),
                records.Work("train", 256.0, "n", "", rng.choice(MODES), VOTES).record(),
                records.Stage("train", rng.choice(self._requests)).content()[records.KEY],
                records.Over("train", 1, opened=False).content()[records.KEY],
            )
        )
        self.last = dict(order) if rng.random() < 0.5 else mutate_record(rng, order)
        content = content_of(self.last) if rng.random() < 0.97 else RecordDict()
        if rng.random() < 0.9:
            content["arrays"] = arrays(rng)
        kind = rng.choice(("train", "train", "evaluate", "train.other"))
        message = Message(content, dst_node_id=5, message_type=kind)
        message.metadata.__dict__.update(_message_id="1", _src_node_id=1)
        context = Context(run_id=7, node_id=5, node_config={}, state=RecordDict(), run_config={})
        reply = mod(message, context, lambda asked, _: self._app(rng, asked))
        return flower_name(str(reply.error.reason)) if reply.has_error() else ACCEPTED

    def _app(self, rng: Random, message: Message) -> Any:
        chance = rng.random()
        if chance < 0.05:
            msg = "patient 4711"
            raise rng.choice((ValueError, OSError, KeyError, SecAggError))(msg)
        if chance < 0.1:
            return rng.choice((None, 7, Message(Error(1, "patient 4711"), reply_to=message)))
        values: dict[str, Any] = {"n": rng.choice((10, 0, -1, math.nan, 1e300, 5, 7.5, 1 << 62))}
        for name in ("loss", "hits")[: rng.randrange(3)]:
            values[name] = rng.choice((0.5, math.inf, [1, 2], [1e30], [0.0] * 300, 1 << 62))
        if rng.random() < 0.1:
            values.pop("n")
        found = RecordDict({"metrics": MetricRecord(values)})
        for _ in range(rng.choice((1, 1, 1, 0, 2))):
            found[f"arrays{len(found)}"] = arrays(rng)
        return Message(found, reply_to=message)


class Strategies:
    """Whole rounds in which replies are lost, changed, or errors: none leaves a strategy."""

    def __init__(self, folder: Path) -> None:
        self.last: Any = None
        self._folder = folder

    def one(self, rng: Random) -> str:
        """Play a round of training and one of evaluation."""
        self.last = spoiled = list[Any]()
        rate = rng.choice((0.02, 0.1, 0.4))

        def spoil(node: int, request: Message, reply: Message) -> Message | None:
            if rng.random() >= rate or reply.has_error():
                return reply
            spoiled.append((node, mutate_record(rng, reply.content.config_records[records.KEY])))
            match rng.randrange(6):
                case 0:
                    return None
                case 1:
                    return Message(Error(0, rng.choice(("", "why", "x" * 5000))), reply_to=request)
                case 2:
                    reply.content = RecordDict()
                case _:
                    reply.content = content_of(spoiled[-1][1])
            return reply

        apps = {node: _app(node, self._folder) for node in range(101, 107)}
        strategy = SecureFedAvg(
            terms=Terms(0.0, 0.2), stage_timeout=0.001, node_timeout=0.1, example_cap=200.0
        )
        result = attempt(strategy, LocalGrid(apps, spoil), arrays(), num_rounds=1, timeout=0.001)
        return ACCEPTED if result.train_metrics_clientapp else "skipped"


def _app(node: int, folder: Path) -> ClientApp:
    client = ClientApp(mods=[LightMod(folder=folder)])
    step = np.random.default_rng(node).standard_normal(DIM).astype(np.float32)
    found = MetricRecord({"num-examples": 10 + node, "loss": 0.5, "hits": [1, 2]})

    @client.train()
    def train(message: Message, context: Context) -> Message:
        record = ArrayRecord({"w": Array(step)})
        return Message(RecordDict({"arrays": record, "metrics": found}), reply_to=message)

    @client.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": found}), reply_to=message)

    return client
