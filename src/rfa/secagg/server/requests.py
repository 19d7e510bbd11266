"""What a server sends in a stage, and how many answers it needs."""

from __future__ import annotations

from collections.abc import Iterator

Outbox = Iterator[tuple[int, bytes]]
"""What to send to which device, made as it is sent."""


class Requests(Outbox):
    """Requests of a stage, and how many good answers let the round go on without the others.

    Attributes:
        enough: how many are enough.
        spoilt: how many answers so far were not good; whoever takes them counts these.
        whom: where a sum is to be opened, or can be opened over one set of devices alone, the
            digest of these; by it devices that trust the server know the same sum again.
    """

    def __init__(self, requests: Outbox, enough: int, whom: bytes = b"") -> None:
        """Take requests, a number, and whom a sum is over."""
        self._requests, self.enough, self.whom, self.spoilt = requests, enough, whom, 0

    def __next__(self) -> tuple[int, bytes]:
        """The next request."""
        return next(self._requests)
