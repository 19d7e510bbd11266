"""The replies that a stage waits for: of which kind, how large, and from whom."""

from __future__ import annotations

from collections.abc import Iterable

from rfa.secagg.errors import OtherSessionError, OutOfStageError, RefusalError
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.opening import Message
from rfa.secagg.messages.round import Abstain

SLACK = 1 << 9
"""The bytes of a reply beside its lists."""


class Expected:
    """The replies that the server waits for in a stage.

    Attributes:
        kind: the kind of message.
        devices: the devices that were asked and have not answered.
    """

    def __init__(
        self,
        kind: type[Message],
        size: int,
        devices: Iterable[int],
        *,
        may_abstain: bool = False,
    ) -> None:
        """Wait for one reply of each device.

        Args:
            kind: the kind of message.
            size: the bytes of its lists.
            devices: the devices that are asked.
            may_abstain: whether they join with this reply, or abstain.
        """
        self.kind, self.devices = kind, set(devices)
        self._largest, self._may_abstain = SLACK + size, may_abstain

    def read(self, device: int, reply: bytes, session: bytes) -> Message:
        """Return the message in a reply; the device has answered then, even if it is a bad one.

        Args:
            device: the device.
            reply: its reply.
            session: the session of the round.

        Raises:
            MessageError: if it is not a message, or too large.
            OtherSessionError: if it is of another session.
            RefusalError: if the device abstains, where it may.
            OutOfStageError: if it is of another kind.
        """
        self.devices.discard(device)
        message = decode(reply, self._largest)
        if message.session != session:
            msg = f"the reply of device {device} is of another session"
            raise OtherSessionError(msg)
        if isinstance(message, Abstain) and self._may_abstain:
            msg = f"device {device} abstains: its update is not finite, of no examples, or not new"
            raise RefusalError(msg)
        if not isinstance(message, self.kind):
            msg = f"device {device} sent {type(message).__name__} for {self.kind.__name__}"
            raise OutOfStageError(msg)
        return message
