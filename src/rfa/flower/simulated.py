"""A device of Flower's simulation: its data is in its context, and is gone after the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from flwr.app import ConfigRecord, Context, RecordDict

from rfa.flower.simulation import is_simulated
from rfa.flower.storage import DeviceStorage, storage_of
from rfa.flower.weighing import Surrogates
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.store import MemoryStore
from rfa.secagg.device.vault import DurableDevice

KEPT, WEIGHTS = "rfa", "rfa-weights"
"""The records of the context's state that hold the data of a simulated device."""


@dataclass(frozen=True)
class SimulatedStorage(DeviceStorage):
    """The storage of a device in a simulation, which no other run sees.

    Attributes:
        state: the state of its context, which Flower carries between the messages of a run.
    """

    state: RecordDict

    def device(self, task: str, profile: Profile) -> DurableDevice:
        """Return the device in the secure sum over a task."""
        return DurableDevice(MemoryStore(self._record(KEPT), f"{task} "), profile)

    def weights(self) -> Path | Surrogates:
        """Return the surrogates of its examples."""
        return self._record(WEIGHTS)

    def read_kept(self, kind: str, name: str) -> bytes | None:
        """Return what the device keeps of a kind under a name in this run; None for nothing."""
        return self._record(KEPT).get(f"{kind} {name}")

    def write_kept(self, kind: str, name: str, content: bytes) -> None:
        """Keep something of a kind under a name in place of the content before."""
        self._record(KEPT)[f"{kind} {name}"] = content

    def tidy(self) -> None:
        """Do nothing: there are no files."""

    def _record(self, name: str) -> Any:
        if name not in self.state.config_records:
            self.state[name] = ConfigRecord()
        return cast("Any", self.state.config_records[name])


def storage_for(context: Context, given: Path | None = None) -> DeviceStorage:
    """Return the storage of a device: files on a SuperNode, its context in a simulation."""
    files = storage_of(context, given)
    if not is_simulated():
        return files
    return SimulatedStorage(
        files.root, files.run, files.node, files.who, files.named, context.state
    )
