"""The messages of a secure sum, in the order of a round.

server              device
OpenRound      ->
               <-   AdvertiseKeys      its public keys for all masked sums (or Abstain)
Roster         ->
               <-   ShareKeys          sealed shares of its secrets for all masked sums
then, for each masked sum (one per query; two if there is a limit on shares):
SumRequest     ->
               <-   MaskedInput        its input at v, masked
SurvivorList   ->                      only if the server is malicious
               <-   SurvivorSignature  its signature of the survivors
Unmask         ->
               <-   UnmaskShares       its shares of the secrets that open the sum

A fast round takes the roster and the first masked sum in one exchange:
FirstSum       ->                      the roster, v and nu, or the radii of blocks
               <-   FirstInput         sealed shares, and its input at v, masked
Unmask         ->                      with the shares that were sealed for the device
               <-   UnmaskShares
If a device does not answer FirstSum, its sum is never opened. The server sends a second Roster
without that device, for masked sums with their own keys, and continues as in other rounds.

Where the keys of all devices came with the last UnmaskShares of the round before, a fast round
begins with its first sum:
OpenFirstSum   ->                      the opening, the roster, v and nu
               <-   FirstInput
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rfa._types import Floats32
from rfa.secagg.crypto.shares import SHARE_SIZE
from rfa.secagg.messages.codec import (
    KEY,
    LARGEST,
    MANY,
    REAL,
    U8,
    U32,
    U64,
    U128,
    array,
    blob,
    fixed,
    group,
    many,
    record,
    rows,
)
from rfa.secagg.messages.opening import MAX_METRICS, Message
from rfa.secagg.messages.values import Bitmap, write_bitmap
from rfa.secagg.security.parameters import LARGEST_DEGREE, MAX_MASKED_SUMS
from rfa.secagg.words import Words

TAG = 16
SEALED_SIZE = 2 * SHARE_SIZE + TAG
SIGNATURE_SIZE = 64
LEVELS = blob((1 << 32) - 1)


@dataclass(frozen=True)
class DeviceKeys:
    """The public keys of a device in a round.

    Attributes:
        device: its number.
        sealing_key: its key for sealing shares.
        mask_keys: its keys for masks, one per masked sum.
        signature: its signature of them if the server is malicious; else empty.
    """

    device: int
    sealing_key: bytes
    mask_keys: tuple[bytes, ...]
    signature: bytes = b""

    @property
    def all_keys(self) -> tuple[bytes, ...]:
        """All of its keys, which must differ."""
        return self.sealing_key, *self.mask_keys


DEVICE_KEYS = record(DeviceKeys, U64, KEY, rows(32, MAX_MASKED_SUMS), blob(SIGNATURE_SIZE))


@dataclass(frozen=True)
class AdvertiseKeys(Message):
    """A device joins with its keys for the roster."""

    KIND = 2
    LAYOUT = (DEVICE_KEYS,)

    keys: DeviceKeys


_ROSTER = (group(U32, U32, U32, U32, U32, U32, U8, U8), fixed(16), rows(32), many(DEVICE_KEYS))


@dataclass(frozen=True)
class Roster(Message):
    """The cohort: parameters, the digests of all devices' keys in order, and the keys themselves.

    A nonce, drawn after all keys have arrived, decides the order, so nobody chooses a position. A
    semi-honest server sends each device the keys of its neighbors; a malicious one must send all.
    `masked_sum` is the first that the roster is for. It is 0, or the first of the second half in a
    fast round whose masked sum 0 was not opened.
    """

    KIND = 3
    LAYOUT = (*_ROSTER, U32)

    parameters: tuple[int, int, int, int, int, int, int, int]
    nonce: bytes
    leaves: tuple[bytes, ...]
    keys: tuple[DeviceKeys, ...]
    masked_sum: int = 0


@dataclass(frozen=True)
class ShareKeys(Message):
    """Commitments to the self-masks of all masked sums, and sealed shares.

    Each neighbor gets one sealed pair of shares per masked sum; those of a neighbor are adjacent.
    """

    KIND = 4
    LAYOUT = (rows(32, MAX_MASKED_SUMS), rows(SEALED_SIZE, LARGEST_DEGREE * MAX_MASKED_SUMS))

    commitments: tuple[bytes, ...]
    sealed: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class SumRequest(Message):
    """A masked sum: the point, the radius, its devices, and their sealed shares for this device.

    `vector` is 0 in the phase of the scalars, and `mass` is the total mass that this phase found,
    in units of 2^-96. `sealed` holds the shares that the device's neighbors in `alive` dealt, in
    the order of its neighbors. `levels` are the radii of blocks, if there are any, and `nu` is the
    smallest of them.
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
        LEVELS,
    )

    masked_sum: int
    vector: int
    nu: float
    mass: int
    alive: Bitmap
    sealed: tuple[bytes, ...] = field(repr=False)
    v: Floats32 = field(repr=False)
    levels: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class MaskedInput(Message):
    """The masked input of a device, and the dealers of shares that it could not unseal.

    `complaints` is empty if there are none.
    """

    KIND = 6
    LAYOUT = (U32, many(U128, MAX_METRICS + 8), array("<u4"), blob(MANY // 8))

    masked_sum: int
    tail: tuple[int, ...] = field(repr=False)
    words: Words = field(repr=False)
    complaints: Bitmap = b""


@dataclass(frozen=True)
class SurvivorList(Message):
    """The devices whose masked inputs arrived."""

    KIND = 7
    LAYOUT = (U32, blob(MANY // 8))

    masked_sum: int
    survivors: Bitmap


@dataclass(frozen=True)
class SurvivorSignature(Message):
    """A device's signature of the masked sum and its survivors."""

    KIND = 8
    LAYOUT = (U32, fixed(SIGNATURE_SIZE))

    masked_sum: int
    signature: bytes


@dataclass(frozen=True)
class Unmask(Message):
    """The survivors over which to open the sum, with their signatures if the server is malicious.

    Masked sum 0 of a fast round is opened over the whole roster, so there is nothing to sign, and
    `sealed` holds the shares that the device's neighbors dealt, in the order of its neighbors. In
    the last request of a round, `ahead` = 1 asks for the device's keys of the next round.
    """

    KIND = 9
    LAYOUT = (
        U32,
        blob(MANY // 8),
        many(group(U32, fixed(SIGNATURE_SIZE))),
        rows(SEALED_SIZE, LARGEST_DEGREE),
        U8,
    )

    masked_sum: int
    survivors: Bitmap
    signatures: tuple[tuple[int, bytes], ...]
    sealed: tuple[bytes, ...] = field(default=(), repr=False)
    ahead: int = 0


@dataclass(frozen=True)
class UnmaskShares(Message):
    """For each neighbor in the sum, a share of its self-mask if it survived, else of its key.

    With the first sum of a fast round comes a signature of it, for receipts, if the server is
    malicious. `keys` are those of the next round, if the server asked for them.
    """

    KIND = 10
    LAYOUT = (
        U32,
        rows(SHARE_SIZE, LARGEST_DEGREE),
        blob(SIGNATURE_SIZE),
        many(DEVICE_KEYS, 1),
    )

    masked_sum: int
    shares: tuple[bytes, ...] = field(repr=False)
    signature: bytes = b""
    keys: tuple[DeviceKeys, ...] = ()


@dataclass(frozen=True)
class Abstain(Message):
    """A device stays out of the round, without a reason."""

    KIND = 11
    LAYOUT = (U64,)

    device: int


@dataclass(frozen=True)
class FirstSum(Message):
    """The roster of a fast round together with its first masked sum, over all of the roster."""

    KIND = 12
    LAYOUT = (*_ROSTER, REAL, array("<f4"), LEVELS)

    parameters: tuple[int, int, int, int, int, int, int, int]
    nonce: bytes
    leaves: tuple[bytes, ...]
    keys: tuple[DeviceKeys, ...]
    nu: float
    v: Floats32 = field(repr=False)
    levels: bytes = field(default=b"", repr=False)

    @property
    def roster(self) -> Roster:
        """The roster alone."""
        return Roster(self.session, self.parameters, self.nonce, self.leaves, self.keys)

    @property
    def sum_request(self) -> SumRequest:
        """The request to all devices; the shares come with the request to open the sum."""
        everyone = write_bitmap(range(len(self.leaves)), len(self.leaves))
        return SumRequest(self.session, 0, 1, self.nu, 0, everyone, (), self.v, self.levels)


@dataclass(frozen=True)
class FirstInput(Message):
    """The shares that a device deals, as in `ShareKeys`, and its masked input."""

    KIND = 13
    LAYOUT = (*ShareKeys.LAYOUT, many(U128, MAX_METRICS + 8), array("<u4"))

    commitments: tuple[bytes, ...]
    sealed: tuple[bytes, ...] = field(repr=False)
    tail: tuple[int, ...] = field(repr=False)
    words: Words = field(repr=False)

    @property
    def deal(self) -> ShareKeys:
        """The shares that it deals."""
        return ShareKeys(self.session, self.commitments, self.sealed)

    @property
    def masked(self) -> MaskedInput:
        """The masked input."""
        return MaskedInput(self.session, 0, self.tail, self.words)


@dataclass(frozen=True)
class OpenFirstSum(Message):
    """An `OpenRound` and the `FirstSum` of its round, in one message.

    A device joins with the keys that it has sent ahead, and answers with its `FirstInput`.
    """

    KIND = 14
    LAYOUT = (blob(1 << 12), blob(LARGEST))

    opening: bytes
    first: bytes = field(repr=False)
