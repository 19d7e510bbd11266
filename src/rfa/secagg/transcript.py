"""All digests and derived keys of the protocol, each under its own label.

No digest can stand for another: the labels differ, and each part is prefixed with its length, so
two different lists of parts never have the same input. Labels are used in this module only.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from rfa._types import Floats32
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import DeviceKeys, SumRequest
from rfa.secagg.messages.values import Bitmap
from rfa.secagg.security.parameters import Parameters

PROTOCOL = b"rfa secure sum 5"
"""The name and version of the protocol: part of every digest and every key."""
SIZE = 32
"""The length of digests, secrets and sealing keys, in bytes."""
STREAM_KEY_SIZE = 16
"""The length of the keys of streams (masks, rounding and noise), in bytes."""


def digest(label: bytes, *parts: bytes | memoryview) -> bytes:
    """Return the SHA-256 digest of parts under a label."""
    state = hashlib.sha256()
    for part in (PROTOCOL, label, *parts):
        state.update(_number(len(part)))
        state.update(part)
    return state.digest()


def derive_key(secret: bytes, label: bytes, *parts: bytes, size: int = SIZE) -> bytes:
    """Return a key from a secret by HKDF-SHA256, for the use that the label and the parts name."""
    framed = b"".join(_number(len(part)) + part for part in (PROTOCOL, label, *parts))
    return HKDF(hashes.SHA256(), size, None, framed).derive(secret)


def _number(value: int) -> bytes:
    """Return a whole number as a part."""
    return value.to_bytes(8, "big")


def leaf_of(opening: OpenRound, keys: DeviceKeys) -> bytes:
    """Return the digest of a device's keys. The device signs it, and it decides its position."""
    parts = (_number(keys.device), *keys.all_keys)
    return digest(b"keys", opening.encode(), *parts)


def cohort_digest(opening: OpenRound, parameters: Parameters, nonce: bytes, leaves: bytes) -> bytes:
    """Return the digest of a cohort, to which all later messages of a round are bound."""
    numbers = b"".join(map(_number, parameters.numbers))
    return digest(b"cohort", opening.encode(), numbers, nonce, leaves)


def point_of(v: Floats32, nu: float, levels: bytes = b"") -> bytes:
    """Return the digest of a query: the point, the radius, and the radii of blocks if any."""
    parts = struct.pack("<d", nu), v.data.cast("B"), *([levels] if levels else [])
    return digest(b"point", *parts)


def context_of(cohort: bytes, sum_request: SumRequest, point: bytes) -> bytes:
    """Return the digest of a masked sum; masks of different masked sums do not cancel."""
    return digest(
        b"turn",
        cohort,
        _number(sum_request.masked_sum),
        _number(sum_request.vector),
        sum_request.mass.to_bytes(16, "little"),
        sum_request.alive,
        point,
    )


def commitment_to(seed: bytes, cohort: bytes, position: int, masked_sum: int) -> bytes:
    """Return a device's commitment to the seed of its self-mask."""
    return digest(b"commitment", cohort, _number(position), _number(masked_sum), seed)


def share_binding(cohort: bytes, source: int, target: int, masked_sum: int) -> bytes:
    """Return the associated data of a sealed share."""
    return digest(b"share", cohort, _number(source), _number(target), _number(masked_sum))


def survivors_statement(context: bytes, survivors: Bitmap) -> bytes:
    """Return the statement that devices sign before a sum is opened."""
    return digest(b"survivors", context, survivors)


def request_digest(request: bytes) -> bytes:
    """Return the digest by which a device recognizes a request that it has answered."""
    return digest(b"request", request)


def own_round_digest(advert: bytes) -> bytes:
    """Return the digest by which a device recognizes its own round.

    It covers the device's fresh keys, because servers choose sessions.
    """
    return digest(b"own round", advert)


def input_digest(message: bytes) -> bytes:
    """Return the digest by which receipts, and the device itself, name a masked input."""
    return digest(b"masked input", message)


def section_digest(name: str, body: bytes | memoryview) -> bytes:
    """Return the digest of a section of a receipt."""
    return digest(b"section", name.encode(), body)


def receipt_statement(signer: bytes, table: bytes) -> bytes:
    """Return the statement that the server signs in a receipt; the next receipt refers to it."""
    return digest(b"receipt", signer, table)


def memory_digest(body: bytes) -> bytes:
    """Return the digest by which a device notices that its memory is damaged."""
    return digest(b"memory", body)


def update_digest(salt: bytes, update: Floats32) -> bytes:
    """Return the digest of an update that was in a sum; the salt protects it from guesses."""
    return digest(b"update", salt, update.tobytes())


def mark_digest(salt: bytes, mark: bytes) -> bytes:
    """Return the digest of the mark of an input that was in a sum."""
    return digest(b"mark", salt, mark)


def content_digest(salt: bytes, numbers: bytes, equal: bytes, update: Floats32) -> bytes:
    """Return the digest of a whole input to a sum; the salt protects it from guesses."""
    return digest(b"content", salt, numbers, equal, update.tobytes())


def question_digest(opening: bytes, joined: int, masked_sum: int, point: bytes) -> bytes:
    """Return the digest of what a device was asked in a masked sum, in any session."""
    return digest(b"question", opening, _number(joined), _number(masked_sum), point)


def devices_digest(devices: Iterable[int]) -> bytes:
    """Return the digest of the devices in a sum, by their numbers."""
    return digest(b"devices", *map(_number, sorted(devices)))


def repeated_basis(basis: bytes, token: bytes) -> bytes:
    """Return the basis of a round that repeats a sum; only devices in that sum can compute it."""
    return digest(b"repeat", basis, token)


def repeated_rounding(salt: bytes, content: bytes) -> bytes:
    """Return the secret of the random choices in rounding, the same for the same input."""
    return derive_key(salt, b"repeated rounding", content)


def model_digest(*parts: bytes | memoryview) -> bytes:
    """Return the digest of a model that devices train or evaluate, from its parts."""
    return digest(b"model", *parts)


def meaning_digest(*parts: bytes | memoryview) -> bytes:
    """Return the digest of what the metrics of a device mean; equal ones can be compared."""
    return digest(b"meaning", *parts)


def run_digest(*parts: bytes | memoryview) -> bytes:
    """Return the digest of the configuration of a run, as a device sees it."""
    return digest(b"run", *parts)


def basis_digest(*parts: bytes | memoryview) -> bytes:
    """Return the digest of everything that devices train or evaluate from."""
    return digest(b"basis", *parts)


def sealing_key(agreed: bytes, cohort: bytes, source: int, target: int) -> bytes:
    """Return the key that seals shares from one device to another."""
    return derive_key(agreed, b"seal", cohort, _number(source), _number(target))


def pair_mask_key(agreed: bytes, context: bytes, position: int, other: int) -> bytes:
    """Return the key of the mask that two devices share in a masked sum."""
    low, high = sorted((position, other))
    parts = (context, _number(low), _number(high))
    return derive_key(agreed, b"pair mask", *parts, size=STREAM_KEY_SIZE)


def self_mask_key(seed: bytes, context: bytes) -> bytes:
    """Return the key of a device's own mask in a masked sum."""
    return derive_key(seed, b"self mask", context, size=STREAM_KEY_SIZE)


def rounding_key(secret: bytes, masked_sum: int) -> bytes:
    """Return the key of a device's random choices in rounding, in a masked sum."""
    return derive_key(secret, b"rounding", _number(masked_sum), size=STREAM_KEY_SIZE)


def noise_key(secret: bytes, masked_sum: int) -> bytes:
    """Return the key of a device's noise in a masked sum; rounding has another secret."""
    return derive_key(secret, b"noise", _number(masked_sum), size=STREAM_KEY_SIZE)
