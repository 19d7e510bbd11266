"""The opening of a round, to which all other messages belong."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import ClassVar

from rfa.secagg.messages.codec import (
    KEY,
    REAL,
    U8,
    U32,
    U64,
    Field,
    fixed,
    write_message,
)

MAX_METRICS = 256
SESSION = fixed(16)
NO_BASIS = bytes(32)
"""The basis of a round for whose devices none was set."""


@dataclass(frozen=True)
class Message:
    """A message: the session it belongs to, and the fields of its kind."""

    KIND: ClassVar[int]
    LAYOUT: ClassVar[tuple[Field, ...]]

    session: bytes

    def encode(self) -> bytes:
        """Return its bytes."""
        values = tuple(getattr(self, item.name) for item in dataclasses.fields(self))
        return write_message(self.KIND, (SESSION, *self.LAYOUT), values)


@dataclass(frozen=True)
class OpenRound(Message):
    """The server begins a round: its number, which grows, the values to sum, and how often.

    `statistics` has a bit for each row of the table of statistics, the first in the lowest one: the
    totals that are sent. With `equal_weights`, every device must have been told to weigh 1. `basis`
    is the digest of what devices trained or evaluated from. `noise` is the least noise of a sum,
    divided by the most that one device can add to the push; 0 for none. In a `fast` round, masked
    sum 0 is taken with the roster, over all of it or not at all. `block` is the number of
    coordinates that share a radius, one radius for each block; 0 for one radius.
    """

    KIND = 1
    LAYOUT = (U64, U32, U32, U32, REAL, U8, U8, U8, KEY, REAL, U8, U32)

    round: int
    queries: int
    dim: int
    metrics: int
    max_share: float
    server_model: int
    statistics: int
    equal_weights: int
    basis: bytes
    noise: float = 0.0
    fast: int = 0
    block: int = 0

    def encode(self) -> bytes:
        """Return its bytes, which are in the digests of the keys of all devices of a round."""
        return self._encoded

    @functools.cached_property
    def _encoded(self) -> bytes:
        return super().encode()

    @property
    def masked_sums(self) -> int:
        """The number of masked sums for which devices have keys, twice those of a roster if fast.

        Those of a second roster are about the same queries, with their own keys, so a device loses
        nothing in one roster by the sums of the other.
        """
        return self.each_roster * (1 + self.fast)

    @property
    def each_roster(self) -> int:
        """The most masked sums over one roster: two per query if there is a limit on shares."""
        return self.queries * (2 if self.max_share else 1)

    @property
    def fast_fault(self) -> str:
        """The fault of the option `fast`; empty if it is valid."""
        if self.fast in (0, 1) and not (self.fast and self.max_share):
            return ""
        return f"fast={self.fast} must be 0 or 1, and 0 with max_share={self.max_share:g}"

    def sums_from(self, first: int) -> range:
        """Return the masked sums of the roster that begins with this one."""
        return range(first, first + self.each_roster)

    def place_of(self, masked_sum: int) -> int:
        """Return the index of a masked sum in its roster, from 0.

        It decides the random choices in rounding. They are the same in both rosters, of which one
        is opened, so a sum can be repeated whatever was lost on the way.
        """
        return masked_sum % self.each_roster

    def query_of(self, masked_sum: int) -> int:
        """Return the index of the query of a masked sum, from 0."""
        return self.place_of(masked_sum) // (2 if self.max_share else 1)

    def is_last(self, masked_sum: int) -> bool:
        """Return whether a masked sum is the last one of its roster."""
        return (masked_sum + 1) % self.each_roster == 0

    def is_first(self, masked_sum: int) -> bool:
        """Return whether a masked sum is the one that a fast round takes with the roster."""
        return bool(self.fast) and not masked_sum

    def is_second(self, masked_sum: int) -> bool:
        """Return whether a masked sum asks for the vectors of a query whose scalars are known."""
        return bool(self.max_share) and masked_sum % 2 == 1
