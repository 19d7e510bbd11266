"""Keys: agreement by X25519, sealing by ChaCha20-Poly1305, signatures by Ed25519.

Keys are bytes, so a device can keep them in its store. A function that uses a key many times makes
the key's object once.
"""

from __future__ import annotations

from collections.abc import Iterable

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from rfa.secagg.errors import LowOrderPointError, NotCanonicalError

_FIELD = 2**255 - 19
_ORDER_8 = (
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
)
LOW_ORDER = frozenset(
    [number.to_bytes(32, "little") for number in (0, 1, _FIELD - 1, _FIELD, _FIELD + 1)]
    + [bytes.fromhex(text) for text in _ORDER_8]
)
"""The points whose agreed secret everybody knows, without the top bit, which X25519 ignores."""


def public_of(secret: bytes) -> bytes:
    """Return the public key of an X25519 secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes, publics: Iterable[bytes]) -> list[bytes]:
    """Return the secrets that X25519 agrees with each of many public keys.

    Raises:
        LowOrderPointError, NotCanonicalError: if one of the public keys is not valid.
    """
    private = X25519PrivateKey.from_private_bytes(secret)
    agreed: list[bytes] = []
    for public in publics:
        check_point(public)
        try:
            agreed.append(private.exchange(X25519PublicKey.from_public_bytes(public)))
        except ValueError:  # the library's own check of the agreed secret
            msg = f"no secret can be agreed with the public key {public.hex()}"
            raise LowOrderPointError(msg) from None
    return agreed


def check_point(public: bytes) -> None:
    """Check that a public key is canonical and not of low order.

    Raises:
        LowOrderPointError, NotCanonicalError: if it is not; the message names the key.
    """
    if public[:31] + bytes([public[31] & 0x7F]) in LOW_ORDER:
        msg = f"the public key {public.hex()} is of low order: secrets agreed with it are known"
        raise LowOrderPointError(msg)
    if int.from_bytes(public, "little") >= _FIELD:
        msg = f"{public.hex()} is not the canonical form of a public key, which is below 2^255 - 19"
        raise NotCanonicalError(msg)


def seal(key: bytes, masked_sum: int, plain: bytes, bound: bytes) -> bytes:
    """Encrypt and authenticate with associated data. A key seals once per masked sum."""
    return ChaCha20Poly1305(key).encrypt(_nonce(masked_sum), plain, bound)


def unseal(key: bytes, masked_sum: int, sealed: bytes, bound: bytes) -> bytes | None:
    """Return the sealed bytes; None if they do not authenticate."""
    try:
        return ChaCha20Poly1305(key).decrypt(_nonce(masked_sum), sealed, bound)
    except InvalidTag:
        return None


def sign(identity: bytes, statement: bytes) -> bytes:
    """Return the Ed25519 signature of a statement by an identity."""
    return Ed25519PrivateKey.from_private_bytes(identity).sign(statement)


def identity_of(identity: bytes) -> bytes:
    """Return the public half of an Ed25519 identity.

    Args:
        identity: the secret half, 32 bytes.
    """
    return Ed25519PrivateKey.from_private_bytes(identity).public_key().public_bytes_raw()


def is_signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    """Return whether a signature of a statement is by this public identity."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def _nonce(masked_sum: int) -> bytes:
    return masked_sum.to_bytes(12, "little")
