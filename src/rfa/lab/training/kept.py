"""The vectors that devices keep between their rounds: personal parameters, or momentum.

They are in one memory-mapped file with two slots for each device. Between two checkpoints a new
vector goes to the slot that the last checkpoint does not use, so a killed run finds the vectors of
its checkpoint unchanged. The file is sparse: devices that never took part cost nothing.
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
        """Return the size of the file in bytes."""
        return 2 * devices * dim * 4

    @classmethod
    def is_complete(cls, path: Path, devices: int, dim: int) -> bool:
        """Return whether there is such a file, of the right size."""
        return path.exists() and path.stat().st_size == cls.size(devices, dim)

    @classmethod
    def read_from(
        cls, path: Path, slots: NDArray[np.int8], dim: int, device: int
    ) -> Floats32 | None:
        """Return the vector of a device in a complete file, without changing the file."""
        if slots[device] == NEVER:
            return None
        rows: Any = np.memmap(path, np.float32, "r", shape=(2 * len(slots), dim))
        return np.array(rows[device + int(slots[device]) * len(slots)])

    def read(self, device: int, slot: int) -> Floats32 | None:
        """Return the vector of a device in a slot; None if there is none yet."""
        if slot == NEVER:
            return None
        kept: Floats32 = self._rows[device + slot * self._devices]
        return np.array(kept)

    def write(self, device: int, slot: int, vector: Floats32) -> None:
        """Write a vector to a slot."""
        self._rows[device + slot * self._devices] = vector

    def flush(self) -> None:
        """Make sure that all written vectors are on disk."""
        self._rows.flush()


class Slots:
    """The slot of the current vector of each device, and of the next one."""

    def __init__(self, saved: NDArray[np.int8]) -> None:
        """Take the slots that the last checkpoint uses."""
        self._saved = saved.copy()
        self.current = saved.copy()

    @classmethod
    def none(cls, devices: int) -> Slots:
        """Return the slots of devices that keep nothing yet."""
        return cls(np.full(devices, NEVER, np.int8))

    def move(self, device: int) -> int:
        """Return the slot for the new vector of a device, which becomes the current one."""
        self.current[device] = 0 if self._saved[device] != 0 else 1
        return int(self.current[device])

    def save(self) -> NDArray[np.int8]:
        """Return the slots for a checkpoint, which are not written to from now on."""
        self._saved = self.current.copy()
        return self._saved
