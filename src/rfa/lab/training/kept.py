"""The vectors that devices keep between their rounds: personal parameters, or momentum.

They lie in one memory-mapped file with two slots for each device. Between two checkpoints a new
vector goes to the slot that the last checkpoint does not use, so a run that is killed finds the
vectors of its checkpoint untouched. The file is sparse: devices that never took part cost nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats32

NEVER = -1


class KeptFile:
    """The file itself: 2 n rows of d numbers."""

    def __init__(self, path: Path, devices: int, dim: int) -> None:
        size = self.size(devices, dim)
        with path.open("ab") as file:
            if file.tell() != size:
                file.truncate(0)
                file.truncate(size)
        self._rows: Any = np.memmap(path, np.float32, "r+", shape=(2 * devices, dim))
        self._devices = devices

    @staticmethod
    def size(devices: int, dim: int) -> int:
        """How many bytes the file has."""
        return 2 * devices * dim * 4

    @classmethod
    def is_complete(cls, path: Path, devices: int, dim: int) -> bool:
        """Whether there is such a file, of the right size."""
        return path.exists() and path.stat().st_size == cls.size(devices, dim)

    @classmethod
    def read_from(
        cls, path: Path, slots: NDArray[np.int8], dim: int, device: int
    ) -> Floats32 | None:
        """What a device keeps in a file that is complete, which is left as it is."""
        if slots[device] == NEVER:
            return None
        rows: Any = np.memmap(path, np.float32, "r", shape=(2 * len(slots), dim))
        return np.array(rows[device + int(slots[device]) * len(slots)])

    def read(self, device: int, slot: int) -> Floats32 | None:
        """What a device keeps in a slot; None if it keeps nothing yet."""
        if slot == NEVER:
            return None
        kept: Floats32 = self._rows[device + slot * self._devices]
        return np.array(kept)

    def write(self, device: int, slot: int, vector: Floats32) -> None:
        """Keep a vector in a slot."""
        self._rows[device + slot * self._devices] = vector

    def flush(self) -> None:
        """Make sure that what was written is on disk."""
        self._rows.flush()


class Slots:
    """In which slot the current vector of each device is, and where the next one goes."""

    def __init__(self, saved: NDArray[np.int8]) -> None:
        """Take the slots that the last checkpoint uses."""
        self._saved = saved.copy()
        self.current = saved.copy()

    @classmethod
    def none(cls, devices: int) -> Slots:
        """No device keeps anything yet."""
        return cls(np.full(devices, NEVER, np.int8))

    def move(self, device: int) -> int:
        """Where to write the new vector of a device, which is the current one from now on."""
        self.current[device] = 0 if self._saved[device] != 0 else 1
        return int(self.current[device])

    def save(self) -> NDArray[np.int8]:
        """The slots for a checkpoint, which are not written to from now on."""
        self._saved = self.current.copy()
        return self._saved
