"""The requests of a stage, and how many answers it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.transcript import devices_digest

Outbox = Iterator[tuple[int, bytes]]
"""The requests, each with its device, made when they are sent."""


class Requests(Outbox):
    """The requests of a stage, and how many good answers let the round continue without the others.

    Attributes:
        enough: the number of good answers that are enough.
        spoilt: the number of bad answers so far; the code that takes them counts them.
        whom: if a sum is to be opened, or can be opened over one set of devices only, the digest of
            these; devices that trust the server recognize the same sum by it.
    """

    def __init__(self, requests: Outbox, enough: int, whom: bytes = b"") -> None:
        """Set the requests, the number of answers, and the digest of the devices."""
        self._requests, self.enough, self.whom, self.spoilt = requests, enough, whom, 0

    def __next__(self) -> tuple[int, bytes]:
        """Return the next request."""
        return next(self._requests)


def whom_of(opening: OpenRound, devices: Iterable[int]) -> bytes:
    """Return the digest by which devices recognize a sum; empty for a malicious server."""
    trusted = opening.server_model == ServerModel.SEMI_HONEST
    return devices_digest(devices) if trusted else b""
