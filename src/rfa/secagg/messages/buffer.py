"""Masked inputs as bytes that are made in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rfa.secagg.messages.codec import ReservedMessage
from rfa.secagg.messages.opening import SESSION
from rfa.secagg.messages.round import FirstInput, MaskedInput
from rfa.secagg.messages.values import Bitmap
from rfa.secagg.words import Words


class InputBuffer:
    """The bytes of a masked input whose words are written in place, so that nothing is copied."""

    def __init__(
        self,
        kind: type[MaskedInput | FirstInput],
        head: tuple[Any, ...],
        sizes: tuple[int, int],
        complaints: Bitmap = b"",
    ) -> None:
        """Make room.

        Args:
            kind: which message.
            head: the session, and the fields before the tail.
            sizes: how many scalars the tail has, and how many words there are.
            complaints: the complaints that end a `MaskedInput`.
        """
        tail, count = sizes
        self._head, fields = head, (SESSION, *kind.LAYOUT)
        before, after = fields[: len(head) + 1], fields[len(head) + 2 :]
        rest = b"".join(field.write(complaints) for field in after)
        values = (*head, (0,) * tail)
        self._message = ReservedMessage(kind.KIND, before, values, count, rest=rest)

    def words(self) -> Words:
        """The words; whoever holds them lets go of them before `finish`."""
        return self._message.words()

    def finish(self, tail: Sequence[int]) -> bytes:
        """The bytes of the message, with its tail."""
        return self._message.finish((*self._head, tuple(tail)))
