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
    """

    def __init__(self, requests: Outbox, enough: int) -> None:
        """Take requests, and a number."""
        self._requests, self.enough, self.spoilt = requests, enough, 0

    def __next__(self) -> tuple[int, bytes]:
        """The next request."""
        return next(self._requests)
