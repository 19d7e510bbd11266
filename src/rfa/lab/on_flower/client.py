"""The ClientApp of the lab: trains devices of the lab on a node of a federation.

With `secure=off` an update leaves the node in the clear; otherwise only the secure sum uses it. A
corrupted device that knows all updates computes the updates of the others itself: all nodes have
all data. It finds the state of others, their u_i or momentum, in the folder that all nodes of a
machine share.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa._files import as_path
from rfa._types import Floats32
from rfa.flower import records
from rfa.flower.mod import Next, RobustMod
from rfa.flower.personal import as_parameters
from rfa.flower.simulation import is_simulated
from rfa.flower.storage import DeviceStorage, read_private, storage_of, write_private
from rfa.lab.on_flower import records as lab_records
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.noise import noise_key
from rfa.lab.simulation.rounds import State, corrupt
from rfa.lab.simulation.secure import device_policy, rounding_key
from rfa.lab.training.devices import Devices
from rfa.lab.training.pool import one_blas_thread
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.security.parameters import ServerModel


@dataclass(frozen=True)
class LabMod(RobustMod):
    """The mod for the devices of the lab, of which a node may have several.

    Attributes:
        settings: the settings, from whose seed the identities of devices, their rounding and their
            noise come: a lab has no secrets.
    """

    settings: Settings = field(kw_only=True)

    def storage(self, message: Message, context: Context) -> DeviceStorage:
        """Where the files of the device are."""
        folder = as_path("folder", self.folder, "a folder")
        storage, device = storage_of(context, folder), lab_records.order_of(message).device
        return DeviceStorage(storage.root, storage.run, device, str(device), named=True)

    def check_work(self, work: records.Work) -> None:
        """The lab's devices weigh as its settings say."""

    def told(self, message: Message) -> RecordDict:
        """All but the device that the message is for."""
        return lab_records.told(message.content)

    def vault(self, task: str, message: Message, storage: DeviceStorage) -> DurableDevice:
        """The device, which rounds, and adds noise, as in the lab."""
        settings, order = self.settings, lab_records.order_of(message)
        identity = None
        if self.policy.server_model == ServerModel.MALICIOUS:
            known = lab_records.identities(settings.seed, order.others)
            identity = Identity(lab_records.secret_of(settings.seed, storage.node), known)
        row = order.others.index(storage.node)
        return DurableDevice(
            _round_vault(storage, task, order.round),
            Profile(storage.node, self.policy, identity),
            rounding=rounding_key(settings, order.round, row),
            noise=noise_key(settings, order.round, row),
            durable=not is_simulated(),
        )


def _round_vault(storage: DeviceStorage, task: str, t: int) -> Path:
    """Return the file of the secure sum of a round, and remove those of earlier rounds.

    As in the lab, a device keeps nothing from other rounds: corrupted devices may send the same
    update again, which a device that remembers would refuse.
    """
    path = storage.vault(f"{task}.{t}")
    for other in path.parent.glob(f"{storage.node}.{task}.*[0-9]"):
        if int(other.suffix[1:]) < t:
            other.unlink(missing_ok=True)
    return path


def lab_mod(message: Message, context: Context, call_next: Next) -> Message:
    """Keep updates on the device, unless the settings say that they leave in the clear."""
    settings = lab_records.settings_of(context)
    if settings.secure.mode == "off" or lab_records.LAB not in message.content.config_records:
        return call_next(message, context)
    return LabMod(device_policy(settings), settings=settings)(message, context, call_next)


app = ClientApp(mods=[lab_mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train a device from the model: the arrays after it, and how much it counts.

    The arrays have digits enough that the update comes out of them as it went in, but for the last
    ones of coordinates that are below 2^-29 of the model's.
    """
    devices = _devices(context)
    order, w = lab_records.order_of(message), lab_records.model_of(message)
    with one_blas_thread():
        update = _update(devices, w, order, _Kept.of(context))
    arrays = ArrayRecord({lab_records.MODEL: Array(w.astype(np.float64) + update)})
    weight = float(devices.weights[order.device])  # by the lab's own draws, where it has such
    metrics = MetricRecord({lab_records.EXAMPLES: weight})
    return Message(RecordDict({lab_records.ARRAYS: arrays, "metrics": metrics}), reply_to=message)


@app.query("tally")
def tally(message: Message, context: Context) -> Message:
    """How well a model, with the u_i of each, serves some devices: the numbers of each."""
    devices, kept = _devices(context), _Kept.of(context)
    order, w = lab_records.order_of(message), lab_records.model_of(message)
    numbers: list[float] = []
    with one_blas_thread():
        for device in order.others:
            u = kept.read(device, order.round, len(w))
            tally = devices.evaluate(w if u is None else w + u, device)
            numbers.extend(map(float, tally))
    record = MetricRecord({"numbers": numbers})
    return Message(RecordDict({"tallies": record}), reply_to=message)


@dataclass(frozen=True)
class _Kept:
    """The state of the devices on a node, their u_i or momentum, by round.

    A round that is repeated after a restart finds the state before it.
    """

    folder: Path

    @classmethod
    def of(cls, context: Context) -> _Kept:
        name = lab_records.name_of(context)
        return cls(storage_of(context).root / "flower" / "lab" / name)

    def read(self, device: int, t: int, dim: int) -> Floats32 | None:
        """Return the state of a device before round t; None if there is none yet."""
        known = [number for number in self._rounds(device) if number <= t]
        if not known:
            return None
        path = self._path(device, max(known))
        return as_parameters(read_private(path), dim, f"parameters at {path}")

    def write(self, device: int, t: int, vector: Floats32) -> None:
        """Keep a vector after round t, and the one before it."""
        older = sorted(number for number in self._rounds(device) if number <= t)
        for number in older[:-1]:
            with contextlib.suppress(FileNotFoundError):
                self._path(device, number).unlink()
        write_private(self._path(device, t + 1), vector.tobytes())

    def _path(self, device: int, after: int) -> Path:
        return self.folder / f"{device}.{after}"

    def _rounds(self, device: int) -> Iterable[int]:
        return [int(path.suffix[1:]) for path in self.folder.glob(f"{device}.*[0-9]")]


def _update(devices: Devices, w: Floats32, order: lab_records.Order, kept: _Kept) -> Floats32:
    """Return what a device sends: its update, or that of its attack if it is corrupted."""
    lies = devices.corruption is not None and devices.corruption.forge is not None
    if not (lies and devices.corrupted_in(order.round)[order.device]):
        return _honest(devices, w, order, order.device, kept)
    chosen = list(order.others)
    updates = np.stack([_honest(devices, w, order, device, kept) for device in chosen])
    state = State(order.round, w, aggregator=lab_records.unpack(order.state, devices.settings))
    corrupt(updates, chosen, state, devices)
    return updates[chosen.index(order.device)]


def _honest(
    devices: Devices, w: Floats32, order: lab_records.Order, device: int, kept: _Kept
) -> Floats32:
    t, keeps = order.round, devices.settings.training.keeps
    before = kept.read(device, t, len(w)) if keeps else None
    update, after = devices.take_part(w, before, t, device)
    if device == order.device and after is not None:
        kept.write(device, t, after)
    return update


def _devices(context: Context) -> Devices:
    return _load(str(context.run_config["settings"]), lab_records.data_dir_of(context))


@functools.lru_cache(maxsize=1)
def _load(settings: str, directory: Path | None) -> Devices:
    return lab_records.load_devices(Settings.from_dict(json.loads(settings)), directory)
