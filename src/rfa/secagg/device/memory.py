"""The state of a device in a round: as little as it needs to continue after a restart.

A memory is one frozen value. A device with a store writes it before its reply leaves, so a restart
never takes the device back to before an answer. A repeated request gets the same bytes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from rfa.errors import InvalidValueError
from rfa.secagg.crypto.shares import SHARE_SIZE
from rfa.secagg.messages.codec import (
    KEY,
    LARGEST,
    REAL,
    U64,
    blob,
    many,
    read_message,
    rows,
    write_message,
)
from rfa.secagg.messages.stages import LEFT, MOMENT, START, Moment
from rfa.secagg.security.parameters import LARGEST_DEGREE, MAX_MASKED_SUMS
from rfa.secagg.transcript import memory_digest

GONE = bytes(32)
"""The placeholder for a secret that is no longer needed."""
KIND = 200


@dataclass(frozen=True)
class Memory:
    """A device's state between two messages. Its repr contains no secret.

    Attributes:
        round: the number of the last round that it joined; 0 for none.
        due: the moment of the request that it expects next.
        opening, advert, roster: the messages that it accepted, and its own keys between them.
        sealing: its secret for sealing shares.
        masks, seeds: its secrets for masks and the seeds of its self-masks, one per masked sum.
        rounding: the key of the random choices in rounding.
        noise: the secret of its noise, in a round with noise.
        incoming: the keys that open what its neighbors sealed for it.
        shares: what they dealt to it for the current masked sum: two shares each, or nothing.
        context: the digest of the current masked sum.
        asked: the digest of the point and radius of the current masked sum.
        alive, survivors: the devices in the current masked sum, and in the last one opened.
        signed: the survivors that it signed in the current masked sum.
        request, reply: the digest of the last request, and the answer to it.
        charged: the charge of masked sum 0 of a fast round, if that sum was not opened.
        nu: the radius of the last sum that it was in, over all rounds; 0 for none.
        rho: the charges of all sums with noise that it was in, over all rounds.
        ahead: its secrets for the next round, whose public halves it has sent; empty for none.
    """

    round: int = 0
    due: Moment = START
    opening: bytes = b""
    advert: bytes = b""
    roster: bytes = b""
    sealing: bytes = field(default=GONE, repr=False)
    masks: tuple[bytes, ...] = field(default=(), repr=False)
    seeds: tuple[bytes, ...] = field(default=(), repr=False)
    rounding: bytes = field(default=GONE, repr=False)
    noise: bytes = field(default=GONE, repr=False)
    incoming: tuple[bytes, ...] = field(default=(), repr=False)
    shares: tuple[bytes, ...] = field(default=(), repr=False)
    context: bytes = GONE
    asked: bytes = GONE
    alive: bytes = b""
    survivors: bytes = b""
    signed: bytes = b""
    request: bytes = GONE
    reply: bytes = field(default=b"", repr=False)
    charged: float = 0.0
    nu: float = 0.0
    rho: float = 0.0
    ahead: tuple[bytes, ...] = field(default=(), repr=False)

    def between_rounds(self) -> Memory:
        """Return the memory that remains when the round is over."""
        return Memory(round=self.round, nu=self.nu, rho=self.rho)

    def before_next(self) -> Memory:
        """Return the same with the secrets that only the next round may begin with."""
        return dataclasses.replace(self.between_rounds(), ahead=self.ahead)

    def left(self) -> Memory:
        """Return the memory that remains when the device leaves the round before its end."""
        return dataclasses.replace(self.between_rounds(), due=LEFT, opening=self.opening)

    def only_for(self, masked_sums: range) -> Memory:
        """Return the memory with the secrets of these masked sums only.

        No roster will get shares of the others.
        """
        masks, seeds = (
            tuple(secret if at in masked_sums else GONE for at, secret in enumerate(secrets))
            for secrets in (self.masks, self.seeds)
        )
        return dataclasses.replace(self, sealing=GONE, masks=masks, seeds=seeds)

    def encode(self) -> bytes:
        """Return its bytes, with a digest of them."""
        return guard(write_message(KIND, _LAYOUT, tuple(getattr(self, name) for name in _NAMES)))


def read_memory(data: bytes) -> Memory:
    """Return the memory from its bytes.

    Raises:
        MessageError: if they are not a memory.
        ValueError: if they are damaged.
    """
    _, values = read_message(unguard(data), {KIND: _LAYOUT})
    return Memory(**dict(zip(_NAMES, values, strict=True)))


def guard(body: bytes) -> bytes:
    """Return bytes with their digest before them, so that damage is noticed."""
    return memory_digest(body) + body


def unguard(data: bytes) -> bytes:
    """Return the bytes that were guarded.

    Raises:
        ValueError: if they are damaged.
    """
    body = data[32:]
    if memory_digest(body) != data[:32]:
        msg = "the stored state of a round is damaged"
        raise InvalidValueError(msg)
    return body


def forget(secrets: tuple[bytes, ...], masked_sum: int) -> tuple[bytes, ...]:
    """Return secrets without that of a masked sum."""
    return (*secrets[:masked_sum], GONE, *secrets[masked_sum + 1 :])


_NAMES = [item.name for item in dataclasses.fields(Memory)]
_blob = blob(LARGEST)
_FIELDS: dict[str, Any] = {
    "round": U64,
    "due": MOMENT,
    "sealing": KEY,
    "masks": rows(32, MAX_MASKED_SUMS),
    "seeds": rows(32, MAX_MASKED_SUMS),
    "rounding": KEY,
    "noise": KEY,
    "incoming": rows(32, LARGEST_DEGREE),
    "shares": many(blob(2 * SHARE_SIZE), LARGEST_DEGREE),
    "context": KEY,
    "asked": KEY,
    "request": KEY,
    "charged": REAL,
    "nu": REAL,
    "rho": REAL,
    "ahead": rows(32, 1 + 2 * MAX_MASKED_SUMS),
}
_LAYOUT = tuple(_FIELDS.get(name, _blob) for name in _NAMES)
