"""Decoding of messages."""

from __future__ import annotations

from typing import TypeVar

from rfa.secagg.errors import NotCanonicalError, UnknownKindError
from rfa.secagg.messages.codec import LARGEST, read_message, write_message
from rfa.secagg.messages.opening import SESSION, Message
from rfa.secagg.messages.round import Abstain

_KINDS: dict[int, type[Message]] = {kind.KIND: kind for kind in Message.__subclasses__()}
_LAYOUTS = {kind: (SESSION, *message.LAYOUT) for kind, message in _KINDS.items()}
M = TypeVar("M", bound=Message)


def decode(data: bytes, most: int = LARGEST) -> Message:
    """Decode a message.

    Raises:
        MessageError: if the bytes are not a valid message.
    """
    if type(data) is not bytes:
        msg = f"a message is bytes, not {type(data).__name__}"
        raise NotCanonicalError(msg)
    kind, values = read_message(data, _LAYOUTS, most)
    return _KINDS[kind](*values)


def decode_as(wanted: type[M], data: bytes, most: int = LARGEST) -> M:
    """Decode a message of this kind.

    Raises:
        MessageError: if the bytes are not one.
    """
    message = decode(data, most)
    if not isinstance(message, wanted):
        msg = f"a message {wanted.__name__} is wanted, not {type(message).__name__}"
        raise UnknownKindError(msg)
    return message


def is_abstention(reply: bytes) -> bool:
    """Return whether a reply says that the device abstains from the round."""
    header = write_message(Abstain.KIND, (SESSION, *Abstain.LAYOUT), (bytes(16), 0))
    return len(reply) == len(header) and reply[:5] == header[:5]
