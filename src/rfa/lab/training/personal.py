"""The personal parameters u_i of Algorithm 4, which stay on their devices.

They lie in one memory-mapped file with two places for each device. Between two checkpoints a new
u_i goes to the place that the last checkpoint does not use, so a run that is killed finds the u_i
of its checkpoint untouched. The file is sparse: devices that never took part cost nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats32

NEVER = -1


class PersonalFile:
    """The file itself: 2 n rows of d numbers."""

    def __init__(self, path: Path, devices: int, dim: int) -> None:
        size = self.size(devices, dim)
        with path.open("ab") as file:
            if file.tell() != size:
                file.truncate(0)
                file.truncate(size)
        self._rows: Any = np.memmap(path, np.float32, "r+", shape=(2 * devices, dim))
        self._devices, self._dim = devices, dim

    @staticmethod
    def size(devices: int, dim: int) -> int:
        """How many bytes the file has."""
        return 2 * devices * dim * 4

    @classmethod
    def is_complete(cls, path: Path, devices: int, dim: int) -> bool:
        """Whether there is such a file, of the right size."""
        return path.exists() and path.stat().st_size == cls.size(devices, dim)

    @classmethod
    def read_from(cls, path: Path, places: NDArray[np.int8], dim: int, device: int) -> Floats32:
        """The u_i of a device in a file that is complete, which is left as it is."""
        if places[device] == NEVER:
            return np.zeros(dim, np.float32)
        rows: Any = np.memmap(path, np.float32, "r", shape=(2 * len(places), dim))
        return np.array(rows[device + int(places[device]) * len(places)])

    def read(self, device: int, place: int) -> Floats32:
        """The u_i at a place; zero if the device never took part."""
        if place == NEVER:
            return np.zeros(self._dim, np.float32)
        kept: Floats32 = self._rows[device + place * self._devices]
        return np.array(kept)

    def write(self, device: int, place: int, u: Floats32) -> None:
        """Keep a u_i at a place."""
        self._rows[device + place * self._devices] = u

    def flush(self) -> None:
        """Make sure that what was written is on disk."""
        self._rows.flush()


class Places:
    """Where the current u_i of each device is, and where the next one goes."""

    def __init__(self, saved: NDArray[np.int8]) -> None:
        """Take the places that the last checkpoint uses."""
        self._saved = saved.copy()
        self.current = saved.copy()

    @classmethod
    def none(cls, devices: int) -> Places:
        """No device has taken part yet."""
        return cls(np.full(devices, NEVER, np.int8))

    def move(self, device: int) -> int:
        """Where to write the new u_i of a device, which is the current one from now on."""
        self.current[device] = 0 if self._saved[device] != 0 else 1
        return int(self.current[device])

    def save(self) -> NDArray[np.int8]:
        """The places for a checkpoint, which are not written to from now on."""
        self._saved = self.current.copy()
        return self._saved
