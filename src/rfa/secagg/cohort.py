"""The cohort of a round as its members see it, and the digests that bind masks and shares to it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from rfa._types import Floats32
from rfa.secagg.crypto.graph import neighbors
from rfa.secagg.crypto.keys import check_point, is_signed
from rfa.secagg.errors import (
    CohortError,
    DuplicateKeyError,
    OwnKeyError,
    ParameterError,
    SignatureError,
    WeakTermsError,
)
from rfa.secagg.messages.round import Bitmap, Entry, Open, Question, Roster
from rfa.secagg.security.parameters import Parameters, Trust
from rfa.secagg.transcript import SIZE, derive_key, digest, number

Identities = Mapping[int, bytes]
"""The public Ed25519 identities of devices, known before."""


@dataclass(frozen=True)
class Cohort:
    """Who is in a round, under which parameters.

    Attributes:
        opening: how the server began the round.
        parameters: the parameters.
        nonce: what the order of the entries comes from.
        leaves: the digests of the entries, in order; a position is an index into them.
        digest: the digest of all of it.
    """

    opening: Open
    parameters: Parameters
    nonce: bytes
    leaves: tuple[bytes, ...]
    digest: bytes

    def neighbors(self, position: int) -> list[int]:
        """The positions of a device's neighbors."""
        return neighbors(position, self.parameters.cohort, self.parameters.degree)

    def context(self, question: Question, point: bytes) -> bytes:
        """The digest of a turn: masks that are not made for the same turn do not cancel."""
        return digest(
            b"turn",
            self.digest,
            number(question.turn),
            number(question.vector),
            question.mass.to_bytes(16, "little"),
            question.alive,
            point,
        )

    def commitment(self, position: int, turn: int, seed: bytes) -> bytes:
        """What a device commits to of its self-mask."""
        return digest(b"commitment", self.digest, number(position), number(turn), seed)

    def binding(self, source: int, target: int, turn: int) -> bytes:
        """What a sealed share is bound to."""
        return digest(b"share", self.digest, number(source), number(target), number(turn))

    def seal_key(self, agreed: bytes, source: int, target: int) -> bytes:
        """The key that seals shares from one device to another."""
        return derive_key(agreed, b"seal", self.digest, number(source), number(target))


def in_order(nonce: bytes, leaves: Sequence[bytes]) -> tuple[bytes, ...]:
    """Leaves in the order of their first halves, encrypted under the nonce."""
    keys = _order_keys(nonce, b"".join(leaves))
    order: list[int] = np.lexsort((keys[:, 1], keys[:, 0])).tolist()
    return tuple(leaves[place] for place in order)


def _order_keys(nonce: bytes, leaves: bytes) -> NDArray[np.uint64]:
    """What leaves are ordered by, two numbers each: one call of the cipher for all of them."""
    halves = np.frombuffer(leaves, np.uint8).reshape(-1, SIZE)[:, : SIZE // 2].tobytes()
    cipher = Cipher(algorithms.AES128(nonce), modes.ECB()).encryptor()  # noqa: S305
    return np.frombuffer(cipher.update(halves), ">u8").astype(np.uint64).reshape(-1, 2)


def form(opening: Open, parameters: Parameters, nonce: bytes, leaves: tuple[bytes, ...]) -> Cohort:
    """The cohort of these leaves.

    Raises:
        CohortError: if they are not one leaf for each device, in order, none twice.
    """
    if len(leaves) != parameters.cohort:
        msg = f"the cohort is of {parameters.cohort} devices, and {len(leaves)} are listed"
        raise CohortError(msg)
    joined = b"".join(leaves)
    (high, low), after = _order_keys(nonce, joined).T, slice(1, None)
    tie = (high[after] == high[:-1]) & (low[after] > low[:-1])
    if not ((high[after] > high[:-1]) | tie).all():
        msg = "the cohort is not in order, or a device is in it twice"
        raise DuplicateKeyError(msg)
    numbers = b"".join(map(number, as_numbers(parameters)))
    whole = digest(b"cohort", opening.encode(), numbers, nonce, joined)
    return Cohort(opening, parameters, nonce, leaves, whole)


def leaf_of(opening: Open, entry: Entry) -> bytes:
    """The digest of a device's keys, which it signs, and which gives it its place."""
    device, sealing, masks, _ = entry
    return digest(b"keys", opening.encode(), number(device), sealing, *masks)


def point_of(v: Floats32, nu: float) -> bytes:
    """The digest of what is asked: the point and the radius."""
    return digest(b"point", struct.pack("<d", nu), v.data.cast("B"))


def agreed_survivors(context: bytes, survivors: Bitmap) -> bytes:
    """The statement under which devices put their signatures before a sum is opened."""
    return digest(b"survivors", context, survivors)


def pair_mask(agreed: bytes, context: bytes, one: int, other: int) -> bytes:
    """The key of the mask that two devices share in a turn."""
    low, high = sorted((one, other))
    return derive_key(agreed, b"pair mask", context, number(low), number(high))


def self_mask(seed: bytes, context: bytes) -> bytes:
    """The key of a device's own mask in a turn."""
    return derive_key(seed, b"self mask", context)


def as_numbers(parameters: Parameters) -> tuple[int, int, int, int, int, int, int, int]:
    """Parameters as they travel."""
    return (
        parameters.cohort,
        parameters.colluders,
        parameters.dropouts,
        parameters.honest,
        parameters.degree,
        parameters.threshold,
        int(parameters.trust),
        int(parameters.statistical),
    )


def accept(
    roster: Roster, opening: Open, own: Entry, identities: Identities | None
) -> tuple[Cohort, int, dict[int, Entry]]:
    """A roster as a device accepts it: the cohort, its own position, and the entries it was sent.

    Raises:
        CohortError, WeakTermsError: saying what the device does not accept.
    """
    cohort = form(opening, _parameters(roster, opening), roster.nonce, roster.leaves)
    mine = leaf_of(opening, own)
    if mine not in roster.leaves:
        msg = f"the keys of device {own[0]} are not in the cohort, or were changed"
        raise OwnKeyError(msg)
    position = roster.leaves.index(mine)
    everyone = opening.trust == Trust.LYING
    wanted = range(len(roster.leaves)) if everyone else cohort.neighbors(position)
    sent = {leaf_of(opening, entry): entry for entry in roster.entries}
    sent.pop(mine, None)
    entries = {
        place: sent[roster.leaves[place]] for place in wanted if roster.leaves[place] in sent
    }
    if len(entries) != len(wanted) - everyone or len(entries) != len(sent):
        msg = (
            f"keys of {len(sent)} other devices were sent, {len(entries)} of which the cohort "
            f"lists where they belong, and {len(wanted) - everyone} are wanted"
        )
        raise CohortError(msg)
    check_entries([own, *entries.values()], opening, identities)
    return cohort, position, entries


def check_entries(entries: list[Entry], opening: Open, identities: Identities | None) -> None:
    """Refuse entries that no cohort may have.

    Raises:
        CohortError: naming the device.
    """
    _unique("device", (entry[0] for entry in entries), str)
    keys = [key for _, sealing, masks, _ in entries for key in (sealing, *masks)]
    _unique("key", keys, bytes.hex)
    for entry in entries:
        check_entry(entry, opening, identities)


def check_entry(entry: Entry, opening: Open, identities: Identities | None) -> None:
    """Refuse an entry of the wrong size, with keys of low order, or not signed.

    Raises:
        CohortError: naming the device.
    """
    device, sealing, masks, signature = entry
    if len(masks) != opening.turns:
        msg = f"device {device} has keys for {len(masks)} turns, and there are {opening.turns}"
        raise CohortError(msg)
    for key in (sealing, *masks):
        check_point(key)
    if opening.trust != Trust.LYING:
        return
    known = (identities or {}).get(device)
    if known is None:
        msg = f"device {device} has no identity that is known"
        raise SignatureError(msg)
    if not is_signed(known, leaf_of(opening, entry), signature):
        msg = f"device {device} did not sign the keys that are listed for it"
        raise SignatureError(msg)


def _unique(what: str, values: Iterable[object], show: Callable[..., str]) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            msg = f"the {what} {show(value)} is in the cohort twice"
            raise DuplicateKeyError(msg)
        seen.add(value)


def _parameters(roster: Roster, opening: Open) -> Parameters:
    n, c, f, h, k, t, trust, statistical = roster.parameters
    try:
        parameters = Parameters(n, c, f, h, k, t, Trust(trust), bool(statistical))
    except (ParameterError, ValueError) as error:
        msg = f"the parameters are not safe: {error}"
        raise WeakTermsError(msg) from None
    if as_numbers(parameters) != roster.parameters or parameters.trust != opening.trust:
        msg = f"the parameters are not those of the opening: {parameters}"
        raise WeakTermsError(msg)
    return parameters
