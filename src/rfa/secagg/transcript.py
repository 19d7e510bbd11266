"""All digests and derived keys of the protocol, each under a label of its own.

No digest stands for another: the labels differ, and parts are framed by their lengths, so that no
two different lists of parts have the same digest. Labels are used here and nowhere else.
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
"""The length of digests, secrets and the keys that seal."""
STREAM_KEY_SIZE = 16
"""The length of the keys of streams: masks, rounding and noise."""


def digest(label: bytes, *parts: bytes | memoryview) -> bytes:
    """SHA-256 of the parts, which are bytes, under a label."""
    state = hashlib.sha256()
    for part in (PROTOCOL, label, *parts):
        state.update(_number(len(part)))
        state.update(part)
    return state.digest()


def derive_key(secret: bytes, label: bytes, *parts: bytes, size: int = SIZE) -> bytes:
    """HKDF-SHA256: a key from a secret, for the use that the label and the parts name."""
    framed = b"".join(_number(len(part)) + part for part in (PROTOCOL, label, *parts))
    return HKDF(hashes.SHA256(), size, None, framed).derive(secret)


def _number(value: int) -> bytes:
    """A whole number as a part."""
    return value.to_bytes(8, "big")


def leaf_of(opening: OpenRound, keys: DeviceKeys) -> bytes:
    """The digest of a device's keys, which it signs, and which gives it its position."""
    parts = (_number(keys.device), *keys.all_keys)
    return digest(b"keys", opening.encode(), *parts)


def cohort_digest(opening: OpenRound, parameters: Parameters, nonce: bytes, leaves: bytes) -> bytes:
    """The digest of a cohort: what all that follows in a round is bound to."""
    numbers = b"".join(map(_number, parameters.numbers))
    return digest(b"cohort", opening.encode(), numbers, nonce, leaves)


def point_of(v: Floats32, nu: float, levels: bytes = b"") -> bytes:
    """The digest of what is asked: the point, the radius, and the radii of blocks if any."""
    parts = struct.pack("<d", nu), v.data.cast("B"), *([levels] if levels else [])
    return digest(b"point", *parts)


def context_of(cohort: bytes, sum_request: SumRequest, point: bytes) -> bytes:
    """The digest of a masked sum: masks that are not made for the same masked sum do not cancel."""
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
    """What a device commits to of the seed of its self-mask."""
    return digest(b"commitment", cohort, _number(position), _number(masked_sum), seed)


def share_binding(cohort: bytes, source: int, target: int, masked_sum: int) -> bytes:
    """What a sealed share is bound to."""
    return digest(b"share", cohort, _number(source), _number(target), _number(masked_sum))


def survivors_statement(context: bytes, survivors: Bitmap) -> bytes:
    """The statement under which devices put their signatures before a sum is opened."""
    return digest(b"survivors", context, survivors)


def request_digest(request: bytes) -> bytes:
    """By what a device knows a request that it has answered."""
    return digest(b"request", request)


def own_round_digest(advert: bytes) -> bytes:
    """By what a device knows its own round: by its fresh keys, since servers choose sessions."""
    return digest(b"own round", advert)


def input_digest(message: bytes) -> bytes:
    """By what a receipt, and the device itself, names a masked input."""
    return digest(b"masked input", message)


def section_digest(name: str, body: bytes | memoryview) -> bytes:
    """The digest of a section of a receipt."""
    return digest(b"section", name.encode(), body)


def receipt_statement(signer: bytes, table: bytes) -> bytes:
    """What the server signs under a receipt, and what the receipt after it follows."""
    return digest(b"receipt", signer, table)


def memory_digest(body: bytes) -> bytes:
    """By what a device notices that its memory was damaged."""
    return digest(b"memory", body)


def update_digest(salt: bytes, update: Floats32) -> bytes:
    """By what a device knows an update that was in a sum; the salt keeps it from guesses."""
    return digest(b"update", salt, update.tobytes())


def mark_digest(salt: bytes, mark: bytes) -> bytes:
    """By what a device knows something else that was in a sum, by its mark."""
    return digest(b"mark", salt, mark)


def content_digest(salt: bytes, numbers: bytes, equal: bytes, update: Floats32) -> bytes:
    """By what a device knows all that it brought into a sum; the salt keeps it from guesses."""
    return digest(b"content", salt, numbers, equal, update.tobytes())


def question_digest(opening: bytes, joined: int, masked_sum: int, point: bytes) -> bytes:
    """What a device was asked in a masked sum, in whatever session."""
    return digest(b"question", opening, _number(joined), _number(masked_sum), point)


def devices_digest(devices: Iterable[int]) -> bytes:
    """Who is in a sum, by the numbers of the devices."""
    return digest(b"devices", *map(_number, sorted(devices)))


def repeated_basis(basis: bytes, token: bytes) -> bytes:
    """The basis of a round that repeats a sum: nobody who was not in it has the same."""
    return digest(b"repeat", basis, token)


def repeated_rounding(salt: bytes, content: bytes) -> bytes:
    """The secret of the random choices in rounding, the same whenever the same is brought."""
    return derive_key(salt, b"repeated rounding", content)


def model_digest(*parts: bytes | memoryview) -> bytes:
    """The digest of a model that devices train or evaluate, from the parts that it consists of."""
    return digest(b"model", *parts)


def meaning_digest(*parts: bytes | memoryview) -> bytes:
    """What the metrics of a device mean: two rows of one meaning can be compared."""
    return digest(b"meaning", *parts)


def run_digest(*parts: bytes | memoryview) -> bytes:
    """The digest of the configuration of a run, as a device sees it."""
    return digest(b"run", *parts)


def basis_digest(*parts: bytes | memoryview) -> bytes:
    """The digest of all that devices train or evaluate from."""
    return digest(b"basis", *parts)


def sealing_key(agreed: bytes, cohort: bytes, source: int, target: int) -> bytes:
    """The key that seals shares from one device to another."""
    return derive_key(agreed, b"seal", cohort, _number(source), _number(target))


def pair_mask_key(agreed: bytes, context: bytes, position: int, other: int) -> bytes:
    """The key of the mask that two devices share in a masked sum."""
    low, high = sorted((position, other))
    parts = (context, _number(low), _number(high))
    return derive_key(agreed, b"pair mask", *parts, size=STREAM_KEY_SIZE)


def self_mask_key(seed: bytes, context: bytes) -> bytes:
    """The key of a device's own mask in a masked sum."""
    return derive_key(seed, b"self mask", context, size=STREAM_KEY_SIZE)


def rounding_key(secret: bytes, masked_sum: int) -> bytes:
    """The key of a device's random choices in rounding, in a masked sum."""
    return derive_key(secret, b"rounding", _number(masked_sum), size=STREAM_KEY_SIZE)


def noise_key(secret: bytes, masked_sum: int) -> bytes:
    """The key of a device's noise, in a masked sum; the secret is not that of the rounding."""
    return derive_key(secret, b"noise", _number(masked_sum), size=STREAM_KEY_SIZE)
