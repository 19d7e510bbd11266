"""Digests and derived keys, each under a label of its own so that none stands for another.

Parts are framed by their lengths, so that no two different lists of parts have the same digest.
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PROTOCOL = b"rfa secure sum 1"
"""The name and version of the protocol: part of every digest and every key."""
SIZE = 32
"""The length of digests and keys."""


def digest(label: bytes, *parts: bytes | memoryview) -> bytes:
    """SHA-256 of the parts, which are bytes, under a label."""
    found = hashlib.sha256()
    for part in (PROTOCOL, label, *parts):
        found.update(number(len(part)))
        found.update(part)
    return found.digest()


def derive_key(secret: bytes, label: bytes, *parts: bytes) -> bytes:
    """HKDF-SHA256: a key from a secret, for the use that the label and the parts name."""
    framed = b"".join(number(len(part)) + part for part in (PROTOCOL, label, *parts))
    return HKDF(hashes.SHA256(), SIZE, None, framed).derive(secret)


def number(value: int) -> bytes:
    """A whole number as a part."""
    return value.to_bytes(8, "big")
