"""The record of a secure sum for a receipt: its cohort, queries, answers and totals.

The server knows all of it, and none of it reveals more about a device than the totals do. It
consists of digests of masked inputs, public keys, and the secrets that opened the sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rfa.secagg.messages.codec import (
    KEY,
    MANY,
    REAL,
    U8,
    U32,
    U128,
    array,
    blob,
    fixed,
    group,
    many,
    record,
    rows,
)
from rfa.secagg.messages.opening import MAX_METRICS
from rfa.secagg.messages.round import DEVICE_KEYS, SIGNATURE_SIZE, DeviceKeys
from rfa.secagg.messages.values import Bitmap
from rfa.secagg.words import Words

LONGEST_OPENING = 1 << 12
LONGEST_NAME = 1 << 6


@dataclass(frozen=True)
class CohortRecord:
    """A part of a cohort.

    Attributes:
        opening: the message that opened its round.
        parameters: its parameters as they are sent; empty if it never formed.
        nonce: the random value that decides the order of the devices.
        keys: the keys of the devices, in order.
        identities: their public identities, in order, if the server is malicious; else empty.
        stopped: the error that ended its sums early; empty if none did.
        rho: the charge of each of its sums to each device in it, in zCDP; 0 without noise.
    """

    opening: bytes
    parameters: tuple[int, ...]
    nonce: bytes
    keys: tuple[DeviceKeys, ...]
    identities: tuple[bytes, ...]
    stopped: bytes
    rho: float = 0.0


@dataclass(frozen=True)
class SumRecord:
    """A masked sum that was opened, without its total.

    Attributes:
        masked_sum: its number in the round.
        vector: whether it asked for the vectors.
        nu: the radius.
        mass: the total mass in the request, in units of 2^-96.
        alive: the devices that were asked.
        point: the digest of the point and the radius.
        survivors: the devices that answered.
        inputs: the digests of the survivors' masked inputs, by position.
        secrets: the secret of each device that opened the sum, by position: the seed of the
            self-mask of a survivor, the secret mask key of a drop-out.
        signatures: the signatures of the survivors, by position, if the server is malicious.
    """

    masked_sum: int
    vector: int
    nu: float
    mass: int
    alive: Bitmap
    point: bytes
    survivors: Bitmap
    inputs: tuple[bytes, ...]
    secrets: tuple[bytes, ...] = field(repr=False)
    signatures: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class TotalRecord:
    """The total of a masked sum: its tail and its words, without masks."""

    tail: tuple[int, ...]
    words: Words = field(repr=False)


@dataclass(frozen=True)
class PartRecord:
    """A part of a cohort with its masked sums and their totals."""

    cohort: CohortRecord
    sums: tuple[SumRecord, ...] = ()
    totals: tuple[TotalRecord, ...] = ()


COHORT_RECORD = record(
    CohortRecord,
    blob(LONGEST_OPENING),
    many(U32, 8),
    fixed(16),
    many(DEVICE_KEYS),
    rows(32),
    blob(LONGEST_NAME),
    REAL,
)
SUM_RECORD = record(
    SumRecord,
    U32,
    U8,
    REAL,
    U128,
    blob(MANY // 8),
    KEY,
    blob(MANY // 8),
    rows(32),
    rows(32),
    many(group(U32, fixed(SIGNATURE_SIZE))),
)
TOTAL_RECORD = record(TotalRecord, many(U128, MAX_METRICS + 8), array("<u4"))
