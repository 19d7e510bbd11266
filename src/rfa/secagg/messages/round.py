"""The messages of a secure sum, in the order of a round.

server              device
OpenRound      ->
               <-   AdvertiseKeys      its public keys for all masked sums (or Abstain)
Roster         ->
               <-   ShareKeys          sealed shares of its secrets for all masked sums
then, for each masked sum (one a query; two if there is a limit on shares):
SumRequest     ->
               <-   MaskedInput        what it adds at v, masked
SurvivorList   ->                      only if the server is malicious
               <-   SurvivorSignature  its signature under the survivors
Unmask         ->
               <-   UnmaskShares       its shares of the secrets that open the sum
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from rfa._types import Floats32
from rfa.secagg.crypto.shares import SHARE_SIZE
from rfa.secagg.errors import NotCanonicalError, UnknownKindError
from rfa.secagg.messages.codec import (
    KEY,
    LARGEST,
    MANY,
    REAL,
    U8,
    U32,
    U64,
    U128,
    Field,
    ReservedMessage,
    array,
    blob,
    fixed,
    group,
    many,
    read_message,
    record,
    rows,
    write_message,
)
from rfa.secagg.messages.values import Bitmap
from rfa.secagg.security.parameters import LARGEST_DEGREE, MAX_MASKED_SUMS
from rfa.secagg.words import Words

MAX_METRICS = 256
TAG = 16
SEALED_SIZE = 2 * SHARE_SIZE + TAG
SIGNATURE_SIZE = 64
_SESSION = fixed(16)
NO_BASIS = bytes(32)
"""The basis of a round whose devices were told nothing to start from."""


@dataclass(frozen=True)
class Message:
    """A message: the session it belongs to, and the fields of its kind."""

    KIND: ClassVar[int]
    LAYOUT: ClassVar[tuple[Field, ...]]

    session: bytes

    def encode(self) -> bytes:
        """Its bytes."""
        values = tuple(getattr(self, item.name) for item in dataclasses.fields(self))
        return write_message(self.KIND, (_SESSION, *self.LAYOUT), values)


@dataclass(frozen=True)
class OpenRound(Message):
    """The server begins a round: a number that grows, what is to be summed, and how often.

    `statistics` has a bit for each row of the table of statistics, the first in the lowest one:
    which totals travel. With `equal_weights` every device must have been told to weigh 1.
    `basis` is the digest of what devices trained or evaluated from. `noise` is the least noise of a
    sum over what one device can add to its push; 0 for none.
    """

    KIND = 1
    LAYOUT = (U64, U32, U32, U32, REAL, U8, U8, U8, KEY, REAL)

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

    @property
    def masked_sums(self) -> int:
        """How many masked sums there may be: two a query if there is a limit."""
        return self.queries * (2 if self.max_share else 1)

    def is_second(self, masked_sum: int) -> bool:
        """Whether a masked sum asks for the vectors of a query whose scalars are known."""
        return bool(self.max_share) and masked_sum % 2 == 1


@dataclass(frozen=True)
class DeviceKeys:
    """The public keys of a device in a round.

    Attributes:
        device: its number.
        sealing_key: its key for sealing shares.
        mask_keys: its keys for masks, one a masked sum.
        signature: its signature under them where the server is malicious; else empty.
    """

    device: int
    sealing_key: bytes
    mask_keys: tuple[bytes, ...]
    signature: bytes = b""

    @property
    def all_keys(self) -> tuple[bytes, ...]:
        """All of its keys, which are different ones."""
        return self.sealing_key, *self.mask_keys


DEVICE_KEYS = record(DeviceKeys, U64, KEY, rows(32, MAX_MASKED_SUMS), blob(SIGNATURE_SIZE))


@dataclass(frozen=True)
class AdvertiseKeys(Message):
    """A device joins: its keys for the roster."""

    KIND = 2
    LAYOUT = (DEVICE_KEYS,)

    keys: DeviceKeys


@dataclass(frozen=True)
class Roster(Message):
    """The cohort: parameters, the digests of all devices' keys in order, and keys themselves.

    The order is that of a nonce, drawn when all keys are there, so that nobody chooses a position.
    A semi-honest server sends each device the keys of its neighbors; one that is not
    trusted must send all.
    """

    KIND = 3
    LAYOUT = (group(U32, U32, U32, U32, U32, U32, U8, U8), fixed(16), rows(32), many(DEVICE_KEYS))

    parameters: tuple[int, int, int, int, int, int, int, int]
    nonce: bytes
    leaves: tuple[bytes, ...]
    keys: tuple[DeviceKeys, ...]


@dataclass(frozen=True)
class ShareKeys(Message):
    """Commitments to the self-masks of all masked sums, and sealed shares.

    For each neighbor there is one sealed pair of shares a masked sum, all those of a neighbor
    together.
    """

    KIND = 4
    LAYOUT = (rows(32, MAX_MASKED_SUMS), rows(SEALED_SIZE, LARGEST_DEGREE * MAX_MASKED_SUMS))

    commitments: tuple[bytes, ...]
    sealed: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class SumRequest(Message):
    """A masked sum: the point, the radius, who takes part, and their sealed shares for this device.

    `vector` is 0 in the phase of the scalars, and `mass` is the total mass that it found, in units
    of 2^-96; `sealed` holds what the device's neighbors in `alive` dealt, in the order of its
    neighbors.
    """

    KIND = 5
    LAYOUT = (
        U32,
        U8,
        REAL,
        U128,
        blob(MANY // 8),
        rows(SEALED_SIZE, LARGEST_DEGREE),
        array("<f4"),
    )

    masked_sum: int
    vector: int
    nu: float
    mass: int
    alive: Bitmap
    sealed: tuple[bytes, ...] = field(repr=False)
    v: Floats32 = field(repr=False)


@dataclass(frozen=True)
class MaskedInput(Message):
    """What a device adds, masked; and whose shares, sealed for it, it could not unseal.

    `complaints` is empty if there are none.
    """

    KIND = 6
    LAYOUT = (U32, many(U128, MAX_METRICS + 8), array("<u4"), blob(MANY // 8))

    masked_sum: int
    tail: tuple[int, ...] = field(repr=False)
    words: Words = field(repr=False)
    complaints: Bitmap = b""


class MaskedInputBuffer:
    """The bytes of a `MaskedInput` whose words are written in place, so that nothing is copied."""

    def __init__(
        self, session: bytes, masked_sum: int, tail: int, count: int, complaints: Bitmap = b""
    ) -> None:
        """Make room for a tail of some numbers, and for a count of words, before complaints."""
        self._head = (session, masked_sum)
        *before, _, last = MaskedInput.LAYOUT
        values, rest = (*self._head, (0,) * tail), last.write(complaints)
        fields = (_SESSION, *before)
        self._message = ReservedMessage(MaskedInput.KIND, fields, values, count, rest=rest)

    def words(self) -> Words:
        """The words; whoever holds them lets go of them before `finish`."""
        return self._message.words()

    def finish(self, tail: Sequence[int]) -> bytes:
        """The bytes of the message, with its tail."""
        return self._message.finish((*self._head, tuple(tail)))


@dataclass(frozen=True)
class SurvivorList(Message):
    """Whose masked vectors came."""

    KIND = 7
    LAYOUT = (U32, blob(MANY // 8))

    masked_sum: int
    survivors: Bitmap


@dataclass(frozen=True)
class SurvivorSignature(Message):
    """A device's signature under the masked sum and its survivors."""

    KIND = 8
    LAYOUT = (U32, fixed(SIGNATURE_SIZE))

    masked_sum: int
    signature: bytes


@dataclass(frozen=True)
class Unmask(Message):
    """Whose sum is to be opened, with the signatures under it where the server is malicious."""

    KIND = 9
    LAYOUT = (U32, blob(MANY // 8), many(group(U32, fixed(SIGNATURE_SIZE))))

    masked_sum: int
    survivors: Bitmap
    signatures: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class UnmaskShares(Message):
    """For each neighbor in the sum a share of its self-mask if it survived, else of its key."""

    KIND = 10
    LAYOUT = (U32, rows(SHARE_SIZE, LARGEST_DEGREE))

    masked_sum: int
    shares: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class Abstain(Message):
    """A device stays out of the round; why is its own business."""

    KIND = 11
    LAYOUT = (U64,)

    device: int


_KINDS: dict[int, type[Message]] = {kind.KIND: kind for kind in Message.__subclasses__()}
_LAYOUTS = {kind: (_SESSION, *message.LAYOUT) for kind, message in _KINDS.items()}
M = TypeVar("M", bound=Message)


def decode(data: bytes, most: int = LARGEST) -> Message:
    """The message that bytes are.

    Raises:
        MessageError: if they are none.
    """
    if type(data) is not bytes:
        msg = f"a message is bytes, not {type(data).__name__}"
        raise NotCanonicalError(msg)
    kind, values = read_message(data, _LAYOUTS, most)
    return _KINDS[kind](*values)


def decode_as(wanted: type[M], data: bytes, most: int = LARGEST) -> M:
    """The message of a kind that bytes are.

    Raises:
        MessageError: if they are none.
    """
    message = decode(data, most)
    if not isinstance(message, wanted):
        msg = f"a message {wanted.__name__} is wanted, not {type(message).__name__}"
        raise UnknownKindError(msg)
    return message


def is_abstention(reply: bytes) -> bool:
    """Whether bytes are the word of a device that it stays out of a round."""
    header = write_message(Abstain.KIND, (_SESSION, *Abstain.LAYOUT), (bytes(16), 0))
    return len(reply) == len(header) and reply[:5] == header[:5]
