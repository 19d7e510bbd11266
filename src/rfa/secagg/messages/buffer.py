"""Masked inputs as bytes that are written in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rfa.secagg.messages.codec import ReservedMessage
from rfa.secagg.messages.opening import SESSION
from rfa.secagg.messages.round import FirstInput, MaskedInput
from rfa.secagg.messages.values import Bitmap
from rfa.secagg.words import Words


class InputBuffer:
    """The bytes of a masked input whose words are written in place, without a copy."""

    def __init__(
        self,
        kind: type[MaskedInput | FirstInput],
        head: tuple[Any, ...],
        sizes: tuple[int, int],
        complaints: Bitmap = b"",
    ) -> None:
        """Allocate the bytes.

        Args:
            kind: the class of the message.
            head: the session, and the fields before the tail.
            sizes: the number of scalars in the tail, and the number of words.
            complaints: the complaints that end a `MaskedInput`.
        """
        tail, count = sizes
        self._head, fields = head, (SESSION, *kind.LAYOUT)
        before, after = fields[: len(head) + 1], fields[len(head) + 2 :]
        rest = b"".join(field.write(complaints) for field in after)
        values = (*head, (0,) * tail)
        self._message = ReservedMessage(kind.KIND, before, values, count, rest=rest)

    def words(self) -> Words:
        """Return the words; release the array before `finish`."""
        return self._message.words()

    def finish(self, tail: Sequence[int]) -> bytes:
        """Return the bytes of the message, with its tail."""
        return self._message.finish((*self._head, tuple(tail)))
