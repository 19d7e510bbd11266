"""What the lab's server and its nodes tell each other, and both know."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from rfa._types import Floats32
from rfa.lab.datasets.cache import data_dir, load
from rfa.lab.randomness import stream
from rfa.lab.settings.config import resolve, run_name
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices, Tally
from rfa.secagg.crypto.keys import identity_of

LAB, ARRAYS, MODEL, EXAMPLES = "lab", "arrays", "w", "num-examples"
TALLY = "query.tally"


@dataclass(frozen=True)
class Order:
    """What a node is asked.

    Attributes:
        device: for which of its devices.
        round: in which round, from 0.
        others: the cohort of the round, or the devices to evaluate.
    """

    device: int
    round: int
    others: tuple[int, ...]

    def record(self) -> ConfigRecord:
        """As it travels."""
        return ConfigRecord(
            {"device": self.device, "round": self.round, "others": list(self.others)}
        )

    def content(self, model: Floats32) -> RecordDict:
        """As it travels with a model."""
        return RecordDict({ARRAYS: ArrayRecord({MODEL: Array(model)}), LAB: self.record()})


def order_of(message: Message) -> Order:
    """The order in a message."""
    record: Any = message.content.config_records[LAB]
    return Order(int(record["device"]), int(record["round"]), tuple(record["others"]))


def model_of(message: Message) -> Floats32:
    """The model in a message."""
    return message.content.array_records[ARRAYS][MODEL].numpy()


def settings_of(context: Context) -> Settings:
    """The settings of the run."""
    return resolve(json.loads(str(context.run_config["settings"])))


def data_dir_of(context: Context) -> Path | None:
    """The folder of data sets; by default what RFA_DATA says on the node."""
    named = str(context.run_config.get("data-dir", ""))
    return Path(named) if named else None


def name_of(context: Context) -> str:
    """The name of the run, the same after a restart."""
    return run_name(settings_of(context))


def load_devices(settings: Settings, directory: Path | None) -> Devices:
    """The devices of a run, with their data."""
    task = find_task(settings.task)
    population = load(task.reader, data_dir(directory), iid=settings.iid)
    return Devices(settings, task, population)


def numbers_of(tally: Tally) -> tuple[float, ...]:
    """A tally as numbers."""
    return dataclasses.astuple(tally)


def secret_of(seed: int, device: int) -> bytes:
    """The identity of a device, which follows from the seed: a lab has no secrets."""
    return stream(seed, "identity", device).bytes(32)


def identities(seed: int, devices: Iterable[int]) -> dict[int, bytes]:
    """The public identities of devices."""
    return {device: identity_of(secret_of(seed, device)) for device in devices}
