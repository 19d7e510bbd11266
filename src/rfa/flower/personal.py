"""Personal parameters u_i of a device (Algorithm 4), which never leave it.

A round that begins with its first sum trains before anyone knows whether that sum will be opened.
If it is not, the nodes train once more. So the device keeps the parameters from before the
training, with the number of the round of the secure sum. It returns to them when the server names
that round as unopened, and when the message of that round comes once more, as after a crash in the
training: u_i takes one step per round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rfa._types import Floats32
from rfa.flower.arrays import ArraysError
from rfa.flower.storage import DeviceStorage

NUMBER_SIZE = 8


@dataclass(frozen=True)
class Personal:
    """The personal parameters of a device under a name.

    Attributes:
        storage: where the device keeps them.
        name: the name.
        begins: the number of the round of the secure sum that begins with the training; 0 if none
            does.
        unopened: the number of the round that began with the last training and was not opened; 0 if
            there is none.
    """

    storage: DeviceStorage
    name: str
    begins: int = 0
    unopened: int = 0

    def read(self, dim: int) -> Floats32:
        """Return the parameters from which to train or evaluate; zeros if there are none yet.

        Raises:
            ArraysError: if they belong to another model.
        """
        content = self._before()
        if content is None:
            content = self.storage.read_kept("personal", self.name)
        return as_parameters(content, dim, f"personal parameters {self.name!r}")

    def write(self, u: Floats32, before: Floats32) -> None:
        """Keep the parameters after a training, and those before it if it may be repeated."""
        if self.begins:
            number = self.begins.to_bytes(NUMBER_SIZE, "little")
            self.storage.write_kept("before", self.name, number + before.tobytes())
        self.storage.write_kept("personal", self.name, u.tobytes())

    def _before(self) -> bytes | None:
        """The parameters before the same round; None if the device did not train in it."""
        rounds = {self.begins, self.unopened} - {0}
        found = self.storage.read_kept("before", self.name) if rounds else None
        if not found or int.from_bytes(found[:NUMBER_SIZE], "little") not in rounds:
            return None
        return found[NUMBER_SIZE:]


def as_parameters(content: bytes | None, dim: int, what: str) -> Floats32:
    """Return the parameters in some bytes; zeros if there are none, or one is not finite.

    Raises:
        ArraysError: if they belong to another model.
    """
    if content is None:
        return np.zeros(dim, np.float32)
    if len(content) != dim * np.dtype(np.float32).itemsize:
        msg = f"the {what} have {len(content)} bytes, and the model has {dim} numbers of 4 bytes: "
        msg += "give the strategy another personal name, or remove them"
        raise ArraysError(msg)
    u = np.frombuffer(content, np.float32)
    return u if np.isfinite(u).all() else np.zeros(dim, np.float32)
