"""The message that begins a fast round among devices whose keys came in the round before."""

from __future__ import annotations

from dataclasses import dataclass, field

from rfa.secagg.messages.codec import LARGEST, blob
from rfa.secagg.messages.round import Message

_LONGEST_OPENING = 1 << 12


@dataclass(frozen=True)
class OpenFirstSum(Message):
    """An `OpenRound` and the `FirstSum` of its round, as they would travel one after the other.

    A device joins with the keys that it has sent ahead, and answers with its `FirstInput`.
    """

    KIND = 14
    LAYOUT = (blob(_LONGEST_OPENING), blob(LARGEST))

    opening: bytes
    first: bytes = field(repr=False)
