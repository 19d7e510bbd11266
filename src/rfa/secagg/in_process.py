"""An exchange with devices in the same process, some of which may be lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rfa.secagg.device.machine import Device
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import SecAggError
from rfa.secagg.messages.stages import Moment
from rfa.secagg.server.requests import Outbox

Losses = Mapping[int, Moment]
"""A fault plan: the moment of the first request that each lost device does not answer."""


def answers(device: int, moment: Moment, lost: Losses) -> bool:
    """Return whether a device still answers at a moment of a round."""
    return device not in lost or moment < lost[device]


@dataclass
class InProcess:
    """An exchange with devices in the same process, some of which may be lost.

    Attributes:
        devices: the devices, by number.
        lost: the devices that stop answering, and when.
        refused: the errors with which devices refused requests.
    """

    devices: Mapping[int, Device] | Mapping[int, DurableDevice]
    lost: Losses = field(default_factory=dict[int, Moment])
    refused: dict[int, SecAggError] = field(default_factory=dict[int, SecAggError])

    def __call__(self, outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        """Deliver each request to its device, and yield its answer."""
        for device, request in outbox:
            self.refused.pop(device, None)
            try:
                if not answers(device, self.devices[device].due, self.lost):
                    continue
                reply = self.devices[device].receive(request)
            except SecAggError as error:
                self.refused[device] = error
            else:
                yield device, reply
