"""The records that the server of the lab and its nodes exchange."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from rfa._types import Floats32
from rfa.aggregators.base import SumAggregator, pack_state, unpack_state
from rfa.lab.datasets.cache import data_dir
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices
from rfa.secagg.crypto.keys import identity_of

LAB, ARRAYS, MODEL, EXAMPLES = "lab", "arrays", "w", "num-examples"
TALLY = "query.tally"


@dataclass(frozen=True)
class Order:
    """A request to a node.

    Attributes:
        device: for which of its devices.
        round: in which round, from 0.
        others: the cohort of the round, or the devices to evaluate.
        state: the state of the aggregator, packed, for attackers who know the defense.
    """

    device: int
    round: int
    others: tuple[int, ...]
    state: bytes = b""

    def record(self) -> ConfigRecord:
        """As it travels."""
        others = list(self.others)
        return ConfigRecord(
            {"device": self.device, "round": self.round, "others": others, "state": self.state}
        )

    def content(self, arrays: ArrayRecord) -> RecordDict:
        """As it travels with a model."""
        return RecordDict({ARRAYS: arrays, LAB: self.record()})


def order_of(message: Message) -> Order:
    """The order in a message."""
    record: Any = message.content.config_records[LAB]
    others = tuple(record["others"])
    return Order(int(record["device"]), int(record["round"]), others, bytes(record["state"]))


def pack(state: Any) -> bytes:
    """Return the state of an aggregator as bytes; empty if it has none."""
    arrays: dict[str, Any] = pack_state(state)
    if not arrays:
        return b""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack(data: bytes, settings: Settings) -> Any:
    """Return the state of the aggregator of the settings from its bytes."""
    if not data or not isinstance(settings.aggregation, SumAggregator):
        return None
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return unpack_state(settings.aggregation, dict(arrays))


def told(content: RecordDict) -> RecordDict:
    """Return what all devices are told: the request without its device."""
    record: Any = content.config_records[LAB]
    return RecordDict({**content, LAB: ConfigRecord({**record, "device": 0})})


def arrays_of(model: Floats32) -> ArrayRecord:
    """A model as it travels."""
    return ArrayRecord({MODEL: Array(model)})


def model_of(message: Message) -> Floats32:
    """The model in a message."""
    return message.content.array_records[ARRAYS][MODEL].numpy()


def settings_of(context: Context) -> Settings:
    """The settings of the run."""
    return Settings.from_dict(json.loads(str(context.run_config["settings"])))


def data_dir_of(context: Context) -> Path | None:
    """The folder of data sets; by default what RFA_DATA says on the node."""
    named = str(context.run_config.get("data-dir", ""))
    return Path(named) if named else None


def name_of(context: Context) -> str:
    """The name of the run, the same after a restart."""
    return settings_of(context).run_name


def load_devices(settings: Settings, directory: Path | None) -> Devices:
    """The devices of a run, with their data."""
    task = find_task(settings.task)
    training = settings.training
    population = task.load(
        data_dir(directory), partition=training.partition, devices=training.devices
    )
    return Devices(settings, task, population)


def secret_of(seed: int, device: int) -> bytes:
    """The identity of a device, which follows from the seed: a lab has no secrets."""
    return stream(seed, "identity", device).bytes(32)


def identities(seed: int, devices: Iterable[int]) -> dict[int, bytes]:
    """The public identities of devices."""
    return {device: identity_of(secret_of(seed, device)) for device in devices}
