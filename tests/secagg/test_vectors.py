"""The library against fixed vectors, which another implementation can be checked against too."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import numpy as np
import pytest

from rfa.secagg import errors
from rfa.secagg.crypto.keys import check_point, is_signed, unseal
from rfa.secagg.crypto.shares import PRIME, combine
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Profile
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.values import read_share
from rfa.secagg.transcript import PROTOCOL
from tests.secagg.samples import SAMPLES
from tests.secagg.vectors import RUNS, VECTORS, Vector, fields_of, raw, raws


def cases(*names: str) -> list[Any]:
    return [
        pytest.param(name, case, id=f"{name} {index}")
        for name in names
        for index, case in enumerate(VECTORS.get(name, []))
    ]


@pytest.mark.parametrize(("name", "case"), cases(*RUNS))
def test_the_library_gives_what_is_expected(name: str, case: Vector) -> None:
    assert RUNS[name](case["given"]) == case["expected"]


def test_there_are_vectors_of_everything() -> None:
    assert VECTORS["protocol"] == PROTOCOL.decode()
    assert all(VECTORS[name] for name in RUNS)
    assert [case["kind"] for case in VECTORS["messages"]] == [type(one).__name__ for one in SAMPLES]
    named = {case["error"] for case in VECTORS["refused"]}
    assert named == {one.__name__ for one in errors.MessageError.__subclasses__()}
    assert len(VECTORS["refused_openings"]) == 11
    assert len(VECTORS["low_order"]) == 14
    assert len(VECTORS["not_canonical"]) == 36


@pytest.mark.parametrize(("name", "case"), cases("messages"))
def test_messages_are_their_bytes(name: str, case: Vector) -> None:
    found = decode(raw(case["bytes"]))
    assert type(found).__name__ == case["kind"]
    assert fields_of(found) == case["fields"]
    assert found.encode() == raw(case["bytes"])


@pytest.mark.parametrize(("name", "case"), cases("refused"))
def test_bytes_that_are_no_message_are_refused(name: str, case: Vector) -> None:
    with pytest.raises(errors.MessageError) as caught:
        decode(raw(case["bytes"]))
    assert type(caught.value).__name__ == case["error"]


@pytest.mark.parametrize(("name", "case"), cases("refused_openings"))
def test_openings_whose_parts_do_not_go_together_are_refused(name: str, case: Vector) -> None:
    update, equal = np.ones(4, np.float32), "by examples" not in case["why"]
    brought = Contribution(update, metrics=(0.5,), equal_weights=equal)
    with pytest.raises(errors.SecAggError) as caught:
        Device(brought, Profile(1)).receive(raw(case["bytes"]))
    assert type(caught.value).__name__ == case["error"]
    named = next((word for word in ("fast", "block") if word in case["why"]), "noise")
    assert named in str(caught.value)


@pytest.mark.parametrize("point", VECTORS.get("low_order", []))
def test_points_of_low_order_are_refused(point: str) -> None:
    with pytest.raises(errors.LowOrderPointError):
        check_point(raw(point))


@pytest.mark.parametrize("point", VECTORS.get("not_canonical", []))
def test_points_in_other_bytes_are_refused(point: str) -> None:
    with pytest.raises(errors.NotCanonicalError):
        check_point(raw(point))


@pytest.mark.parametrize(("name", "case"), cases("shares"))
def test_the_shares_make_the_secret(name: str, case: Vector) -> None:
    """By the library, and by the polynomial that the entropy stands for."""
    given, shares = case["given"], raws(case["expected"]["shares"])
    places = {x: read_share(share) or 0 for x, share in enumerate(shares, 1)}
    assert combine(places, threshold=given["threshold"]) == raw(given["secret"])
    chunks = [given["entropy"][at : at + 96] for at in range(0, len(given["entropy"]), 96)]
    factors = [int(text, 16) for text in (given["secret"], *chunks)]
    for x, share in places.items():
        assert sum(factor * x**i for i, factor in enumerate(factors)) % PRIME == share


@pytest.mark.parametrize(("name", "case"), cases("sealed", "signature"))
def test_seals_and_signatures_are_accepted(name: str, case: Vector) -> None:
    given, expected = case["given"], case["expected"]
    if name == "sealed":
        opened = unseal(
            raw(given["key"]), given["masked_sum"], raw(expected["sealed"]), raw(given["bound"])
        )
        assert opened == raw(given["plain"])
    else:
        signature = raw(expected["signature"])
        assert is_signed(raw(expected["public"]), raw(given["statement"]), signature)


def framed(given: Vector) -> bytes:
    parts = [PROTOCOL, raw(given["label"]), *raws(given["parts"])]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


@pytest.mark.parametrize(("name", "case"), cases("derive_key", "digest"))
def test_keys_and_digests_follow_from_their_standards(name: str, case: Vector) -> None:
    """RFC 5869 with an empty salt for one block, and FIPS 180-4, of the parts with lengths."""
    info = framed(case["given"])
    if name == "digest":
        assert hashlib.sha256(info).hexdigest() == case["expected"]["digest"]
        return
    extracted = hmac.digest(bytes(32), raw(case["given"]["secret"]), "sha256")
    assert hmac.digest(extracted, info + b"\1", "sha256").hex() == case["expected"]["key"]
