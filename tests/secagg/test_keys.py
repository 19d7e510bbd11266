"""Keys, seals, signatures, digests and derived keys."""

from __future__ import annotations

import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.secagg import transcript as hashing
from rfa.secagg.crypto import keys
from rfa.secagg.crypto.keys import (
    agree,
    check_point,
    identity_of,
    is_signed,
    public_of,
    seal,
    sign,
    unseal,
)
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Profile
from rfa.secagg.errors import LowOrderPointError, NotCanonicalError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.transcript import derive_key, digest

FIELD = 2**255 - 19
LOW = [
    *(value.to_bytes(32, "little") for value in (0, 1, FIELD - 1, FIELD, FIELD + 1)),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]
"""0, 1, -1 and the two points of order 8, and the second encodings of 0 and 1."""
TOP = [point[:31] + bytes([point[31] | 0x80]) for point in LOW]
secrets = st.binary(min_size=32, max_size=32)


def flips(data: bytes) -> list[bytes]:
    value = int.from_bytes(data, "big")
    return [(value ^ (1 << bit)).to_bytes(len(data), "big") for bit in range(8 * len(data))]


@pytest.mark.parametrize("point", LOW + TOP, ids=bytes.hex)
def test_points_of_low_order_are_refused(point: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their list, and by the agreed secret alone if the list did not hold them."""
    with pytest.raises(LowOrderPointError, match=point.hex()):
        check_point(point)
    with pytest.raises(LowOrderPointError, match=point.hex()):
        agree(bytes(range(32)), [public_of(b"\1" * 32), point])
    monkeypatch.setattr(keys, "LOW_ORDER", frozenset[bytes]())
    wanted = LowOrderPointError if int.from_bytes(point, "little") < FIELD else NotCanonicalError
    with pytest.raises(wanted, match=point.hex()):
        agree(bytes(range(32)), [point])


def is_low(point: bytes) -> bool:
    """Whether X25519 itself agrees on zero with a point."""
    try:
        X25519PrivateKey.from_private_bytes(b"\7" * 32).exchange(
            X25519PublicKey.from_public_bytes(point)
        )
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("top", [0, 1])
def test_of_the_encodings_of_a_point_one_is_accepted(top: int) -> None:
    """X25519 ignores the top bit and reduces the rest: of what it takes for one point, one stays.

    All 19 encodings beyond the field, and numbers near 0 and the edge.
    """
    for value in [*range(20), *range(FIELD - 20, 2**255)]:
        point = (value + (top << 255)).to_bytes(32, "little")
        if is_low(point):
            with pytest.raises(LowOrderPointError):
                check_point(point)
        elif top or value >= FIELD:
            with pytest.raises(NotCanonicalError, match=point.hex()):
                check_point(point)
            with pytest.raises(NotCanonicalError, match=point.hex()):
                agree(bytes(range(32)), [point])
        else:
            check_point(point)
    assert [value for value in range(20) if is_low(value.to_bytes(32, "little"))] == [0, 1]


@given(secrets, secrets)
def test_public_keys_that_are_made_are_canonical_and_their_twins_are_not(
    secret: bytes, other: bytes
) -> None:
    public = public_of(secret)
    check_point(public)
    twin = public[:31] + bytes([public[31] | 0x80])
    private = X25519PrivateKey.from_private_bytes(other)
    assert agree(other, [public]) == [private.exchange(X25519PublicKey.from_public_bytes(twin))]
    with pytest.raises(NotCanonicalError, match=twin.hex()):
        check_point(twin)


def test_agreement_is_that_of_the_standard() -> None:
    """RFC 7748, section 6.1."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    agreed = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert public_of(alice).hex() == (
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    )
    assert public_of(bob).hex() == (
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    )
    assert agree(alice, [public_of(bob)])[0].hex() == agreed
    assert agree(bob, [public_of(alice)])[0].hex() == agreed


@given(secrets, secrets)
def test_agreement_is_symmetric(one: bytes, other: bytes) -> None:
    (contribution,) = agree(one, [public_of(other)])
    assert agree(other, [public_of(one), public_of(b"\5" * 32)])[0] == contribution
    assert len(contribution) == 32


KEY, BOUND, PLAIN = bytes(range(32)), b"bound to", bytes(range(66))
SEALED = seal(KEY, 3, PLAIN, BOUND)


def test_a_seal_opens_for_whom_it_was_made() -> None:
    assert unseal(KEY, 3, SEALED, BOUND) == PLAIN
    assert len(SEALED) == len(PLAIN) + 16
    assert PLAIN[:8] not in SEALED


def test_a_seal_with_any_bit_flipped_does_not_open() -> None:
    assert all(unseal(KEY, 3, sealed, BOUND) is None for sealed in flips(SEALED))


def test_a_seal_does_not_open_with_another_key_binding_or_masked_sum() -> None:
    assert all(unseal(key, 3, SEALED, BOUND) is None for key in flips(KEY))
    assert all(
        unseal(KEY, 3, SEALED, bound) is None for bound in [*flips(BOUND), b"", BOUND + b"!"]
    )
    assert all(
        unseal(KEY, masked_sum, SEALED, BOUND) is None
        for masked_sum in (0, 1, 2, 4, 259, 2**32 + 3)
    )


def test_a_seal_of_another_length_does_not_open() -> None:
    assert all(unseal(KEY, 3, SEALED[:size], BOUND) is None for size in range(len(SEALED)))
    assert unseal(KEY, 3, SEALED + b"\0", BOUND) is None


def test_masked_sums_are_sealed_differently() -> None:
    assert len({seal(KEY, masked_sum, PLAIN, BOUND)[:66] for masked_sum in range(300)}) == 300


IDENTITY = b"\x0b" * 32


def test_a_signature_is_of_one_identity_under_one_statement() -> None:
    public, statement = identity_of(IDENTITY), b"a statement"
    signature = sign(IDENTITY, statement)
    assert is_signed(public, statement, signature)
    assert not any(is_signed(public, other, signature) for other in [*flips(statement), b""])
    assert not any(is_signed(public, statement, other) for other in flips(signature))
    assert not any(is_signed(other, statement, signature) for other in flips(public))
    assert not is_signed(identity_of(b"\x0c" * 32), statement, signature)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 63, 65, 128])
def test_garbage_is_no_signature_and_no_identity(size: int) -> None:
    public = identity_of(IDENTITY)
    assert not is_signed(public, b"a statement", b"\xa5" * size)
    assert not is_signed(b"\xa5" * size, b"a statement", sign(IDENTITY, b"a statement"))


def framed(size: int) -> bytes:
    """How the length of a part is written before it."""
    return size.to_bytes(8, "big")


PARTS = [
    (),
    (b"",),
    (b"", b""),
    (b"a",),
    (b"a", b""),
    (b"", b"a"),
    (b"ab",),
    (b"a", b"b"),
    (b"b", b"a"),
    (b"a\0",),
    (b"\0a",),
    (framed(1) + b"a",),
    (framed(0),),
]
LABELS = [b"", b"a", b"b", b"ab", framed(1) + b"a"]


def test_digests_differ_by_label_part_and_boundary() -> None:
    found = {digest(label, *parts) for label in LABELS for parts in PARTS}
    assert len(found) == len(LABELS) * len(PARTS)
    assert {len(one) for one in found} == {32}


def test_derived_keys_differ_by_secret_label_part_and_boundary() -> None:
    made = [
        derive_key(secret, label, *parts)
        for secret in (KEY, bytes(32), KEY[:31] + b"\0")
        for label in LABELS
        for parts in PARTS
    ]
    assert len(set(made)) == 3 * len(LABELS) * len(PARTS)
    assert {len(one) for one in made} == {32}


def test_every_bit_of_a_secret_changes_the_derived_key() -> None:
    assert len({derive_key(key, b"use") for key in [KEY, *flips(KEY)]}) == 257


@given(st.lists(st.binary(max_size=9), max_size=4), st.lists(st.binary(max_size=9), max_size=4))
def test_different_parts_have_different_digests(one: list[bytes], other: list[bytes]) -> None:
    assert (digest(b"x", *one) == digest(b"x", *other)) == (one == other)
    assert (derive_key(KEY, b"x", *one) == derive_key(KEY, b"x", *other)) == (one == other)


def test_the_version_is_part_of_digests_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(b"x", b"part"), derive_key(KEY, b"x", b"part")
    monkeypatch.setattr(hashing, "PROTOCOL", b"rfa secure sum 1")
    assert digest(b"x", b"part") != before[0]
    assert derive_key(KEY, b"x", b"part") != before[1]


@settings(max_examples=20)
@given(st.binary(max_size=100))
def test_a_view_has_the_digest_of_its_bytes(data: bytes) -> None:
    assert digest(b"x", memoryview(data)) == digest(b"x", data)


def test_no_key_comes_twice_in_1000_sessions() -> None:
    """Sealing keys, mask keys and seeds, of every masked sum, and those of rounding and noise."""
    contribution = Contribution(np.ones(1, np.float32), equal_weights=True)
    seen = list[bytes]()
    for session in range(1000):
        device = Device(contribution, Profile(1))
        device.receive(
            OpenRound(os.urandom(16), session + 1, 2, 1, 0, 0.0, 1, 25, 1, bytes(32), 2.0).encode()
        )
        memory = device.memory
        seen += [memory.sealing, *memory.masks, *memory.seeds, memory.rounding, memory.noise]
    assert len(seen) == 7 * 1000
    assert len(set(seen)) == len(seen)
