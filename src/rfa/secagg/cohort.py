"""The cohort of a round as its members see it, and the digests that bind masks and shares to it."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from rfa.secagg.encoding import Vector32
from rfa.secagg.errors import (
    CohortError,
    DuplicateKeyError,
    OwnKeyError,
    ParameterError,
    SignatureError,
    WeakTermsError,
)
from rfa.secagg.graph import neighbours
from rfa.secagg.hashing import derive_key, digest, number
from rfa.secagg.keys import check_point, is_signed
from rfa.secagg.messages import Bitmap, Entry, Open, Question, Roster
from rfa.secagg.parameters import Parameters, Trust

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

    def neighbours(self, position: int) -> list[int]:
        """The positions of a device's neighbours."""
        return neighbours(position, self.parameters.cohort, self.parameters.degree)

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


def in_order(nonce: bytes, leaves: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Leaves with what they are ordered by: their first half, encrypted under the nonce."""
    listed = list(leaves)
    cipher = Cipher(algorithms.AES128(nonce), modes.ECB()).encryptor()  # noqa: S305
    drawn = cipher.update(b"".join(leaf[:16] for leaf in listed))
    return [(drawn[16 * place : 16 * place + 16], leaf) for place, leaf in enumerate(listed)]


def form(opening: Open, parameters: Parameters, nonce: bytes, leaves: tuple[bytes, ...]) -> Cohort:
    """The cohort of these leaves.

    Raises:
        CohortError: if they are not one leaf for each device, in order, none twice.
    """
    if len(leaves) != parameters.cohort:
        msg = f"the cohort is of {parameters.cohort} devices, and {len(leaves)} are listed"
        raise CohortError(msg)
    keys = [key for key, _ in in_order(nonce, leaves)]
    if any(first >= second for first, second in itertools.pairwise(keys)):
        msg = "the cohort is not in order, or a device is in it twice"
        raise DuplicateKeyError(msg)
    numbers = b"".join(map(number, as_numbers(parameters)))
    whole = digest(b"cohort", opening.encode(), numbers, nonce, b"".join(leaves))
    return Cohort(opening, parameters, nonce, leaves, whole)


def leaf_of(opening: Open, entry: Entry) -> bytes:
    """The digest of a device's keys, which it signs, and which gives it its place."""
    device, sealing, masks, _ = entry
    return digest(b"keys", opening.encode(), number(device), sealing, *masks)


def point_of(v: Vector32, nu: float) -> bytes:
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
    places = {leaf: position for position, leaf in enumerate(roster.leaves)}
    entries: dict[int, Entry] = {}
    for entry in roster.entries:
        place = places.get(leaf_of(opening, entry))
        if place is None:
            msg = f"the keys of device {entry[0]} are not those that the cohort lists"
            raise CohortError(msg)
        entries[place] = entry
    position = places[mine]
    everyone = opening.trust == Trust.LYING
    wanted = range(cohort.parameters.cohort) if everyone else cohort.neighbours(position)
    entries.pop(position, None)
    if set(entries) != set(wanted) - {position}:
        msg = f"keys of {len(entries)} other devices were sent, and {len(wanted)} are wanted"
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
