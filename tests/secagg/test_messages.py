"""Messages: one encoding each, and bytes that are none are refused by a named error."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.secagg.crypto.shares import PRIME
from rfa.secagg.device.memory import GONE, Memory, forget, read_memory
from rfa.secagg.errors import (
    MessageError,
    NotCanonicalError,
    OversizedError,
    TruncatedError,
    UnknownKindError,
    UnknownVersionError,
)
from rfa.secagg.messages import round as m
from rfa.secagg.messages.buffer import InputBuffer
from rfa.secagg.messages.decoding import decode, decode_as
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.messages.values import NO_SHARE, read_bitmap, read_share, write_bitmap
from tests.secagg.samples import KINDS, SAMPLES, SESSION, same

HEAD = b"rfa\x05"
any_message = st.one_of(*KINDS.values())
names = [type(sample).__name__ for sample in SAMPLES]


def test_the_samples_are_of_every_kind() -> None:
    kinds = Message.__subclasses__()
    assert [type(sample) for sample in SAMPLES] == kinds == list(KINDS)
    assert [kind.KIND for kind in kinds] == list(range(1, 15))


@given(any_message)
def test_what_is_encoded_is_decoded(message: Message) -> None:
    data = message.encode()
    found = decode(data)
    assert same(found, message)
    assert found.encode() == data
    assert same(decode_as(type(message), data, len(data)), message)


@pytest.mark.parametrize("sample", SAMPLES, ids=names)
def test_a_message_of_another_kind_is_refused(sample: Message) -> None:
    for kind in KINDS:
        if kind is not type(sample):
            with pytest.raises(UnknownKindError, match=f"{kind.__name__} is wanted, not"):
                decode_as(kind, sample.encode())


def check_canonical(data: bytes) -> None:
    """Bytes are either the one encoding of a message, or refused by a named error."""
    try:
        found = decode(data)
    except MessageError as error:
        assert type(error) is not MessageError  # noqa: PT017
    else:
        assert found.encode() == data


@pytest.mark.parametrize("sample", SAMPLES, ids=names)
def test_a_message_that_ends_too_soon_is_refused(sample: Message) -> None:
    data = sample.encode()
    for size in range(len(data)):
        with pytest.raises(TruncatedError, match="ends too soon"):
            decode(data[:size])


@pytest.mark.parametrize("sample", SAMPLES, ids=names)
def test_a_message_with_more_behind_it_is_refused(sample: Message) -> None:
    data = sample.encode()
    for extra in (b"\0", b"\xff" * 7, data):
        with pytest.raises(OversizedError, match="bytes too many"):
            decode(data + extra)
    with pytest.raises(OversizedError, match=f"is longer than {len(data) - 1}"):
        decode(data, len(data) - 1)
    assert same(decode(data, len(data)), sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=names)
def test_every_flipped_bit_gives_another_message_or_none(sample: Message) -> None:
    data = sample.encode()
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        check_canonical(bytes(changed))


@pytest.mark.parametrize("sample", SAMPLES, ids=names)
def test_every_count_may_be_changed(sample: Message) -> None:
    """Four bytes anywhere become a count that is too large, or a little wrong."""
    data = sample.encode()
    for at in range(5, len(data) - 3):
        for count in (0, 1, 2, 3, 1 << 20, (1 << 20) + 1, 2**31, 2**32 - 1):
            check_canonical(data[:at] + count.to_bytes(4, "little") + data[at + 4 :])


@settings(max_examples=300)
@given(any_message, st.data())
def test_no_bytes_raise_anything_else(message: Message, data: st.DataObject) -> None:
    """Valid messages with a part cut out, replaced, doubled or swapped."""
    valid = message.encode()
    start = data.draw(st.integers(0, len(valid)))
    end = data.draw(st.integers(start, len(valid)))
    again = data.draw(st.integers(0, 2))
    middle = data.draw(st.one_of(st.binary(max_size=40), st.just(valid[start:end] * again)))
    check_canonical(valid[:start] + middle + valid[end:])


@given(st.integers(0, 13), st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(kind: int, body: bytes) -> None:
    check_canonical(body)
    check_canonical(HEAD + bytes([kind]) + body)
    check_canonical(HEAD + bytes([kind, 0, 0, 0]) + SESSION + body)


@pytest.mark.parametrize("start", [b"RFA\x05", b"rfb\x05", b"rfa\x04", b"rfa\x06", b"rfa\xff"])
def test_other_versions_are_refused(start: bytes) -> None:
    with pytest.raises(UnknownVersionError):
        decode(start + SAMPLES[0].encode()[4:])


@pytest.mark.parametrize("kind", [0, 15, 100, 200, 255])
def test_other_kinds_are_refused(kind: int) -> None:
    """That of a device's memory among them."""
    with pytest.raises(UnknownKindError, match=f"there is no message of kind {kind}"):
        decode(HEAD + bytes([kind]) + SAMPLES[0].encode()[5:])


@pytest.mark.parametrize("place", [5, 6, 7])
def test_the_bytes_after_the_kind_are_zero(place: int) -> None:
    data = bytearray(SAMPLES[0].encode())
    data[place] = 1
    with pytest.raises(NotCanonicalError, match="three bytes after the kind"):
        decode(bytes(data))


def test_words_written_in_place_are_a_masked_input() -> None:
    message = SAMPLES[5]
    assert isinstance(message, m.MaskedInput)
    sizes = len(message.tail), len(message.words)
    head = (SESSION, message.masked_sum)
    room = InputBuffer(m.MaskedInput, head, sizes, message.complaints)
    room.words()[:] = message.words
    assert room.words().flags.aligned
    assert room.finish(message.tail) == dataclasses.replace(message, session=SESSION).encode()
    empty = InputBuffer(m.MaskedInput, (SESSION, 1), (2, 0))
    assert not len(empty.words())
    assert empty.finish((3, 4)) == m.MaskedInput(SESSION, 1, (3, 4), message.words[:0]).encode()


def test_words_written_in_place_are_a_first_input() -> None:
    message = SAMPLES[12]
    assert isinstance(message, m.FirstInput)
    head = (SESSION, message.commitments, message.sealed)
    room = InputBuffer(m.FirstInput, head, (len(message.tail), len(message.words)))
    room.words()[:] = message.words
    assert room.finish(message.tail) == message.encode()


NOT_REAL = ["000000000000f07f", "000000000000f0ff", "000000000000f87f", "0000000000000080"]


@pytest.mark.parametrize("real", NOT_REAL)
def test_numbers_are_finite_and_zero_is_positive(real: str) -> None:
    data = SAMPLES[0].encode()
    with pytest.raises(NotCanonicalError, match="a number must be finite"):
        decode(data[:44] + bytes.fromhex(real) + data[52:])
    with pytest.raises(NotCanonicalError, match="a number must be finite"):
        decode(data[:-13] + bytes.fromhex(real) + data[-5:])
    assert (
        OpenRound(SESSION, 1, 1, 1, 0, -0.0, 1, 31, 0, bytes(32)).encode()
        == OpenRound(SESSION, 1, 1, 1, 0, 0, 1, 31, 0, bytes(32)).encode()
    )


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_message_is_of_a_session(size: int) -> None:
    with pytest.raises(NotCanonicalError, match=f"16 bytes are wanted, not {size}"):
        m.Abstain(bytes(size), 1).encode()


COUNTED = {
    "AdvertiseKeys": bytes(8 + 32),
    "Roster": bytes(26 + 16),
    "ShareKeys": b"",
    "SumRequest": bytes(4 + 1 + 8 + 16),
    "MaskedInput": bytes(4),
    "SurvivorList": bytes(4),
    "Unmask": bytes(4),
    "UnmaskShares": bytes(4),
}
"""What comes before the first count of a message."""


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("count", [2**32 - 1, 1 << 20])
def test_a_count_beyond_the_message_is_refused_before_anything_is_allocated(
    name: str, count: int
) -> None:
    kind = getattr(m, name).KIND
    data = (
        HEAD
        + bytes([kind, 0, 0, 0])
        + SESSION
        + COUNTED[name]
        + count.to_bytes(4, "little")
        + bytes(500)
    )
    tracemalloc.start()
    try:
        with pytest.raises((OversizedError, TruncatedError), match=r"longer than|do not fit"):
            decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50_000


@pytest.mark.parametrize(
    ("kind", "size"), [("SumRequest", 4 + 1 + 8 + 16 + 4 + 4), ("MaskedInput", 8)]
)
def test_a_vector_beyond_the_message_is_refused(kind: str, size: int) -> None:
    data = (
        HEAD
        + bytes([getattr(m, kind).KIND, 0, 0, 0])
        + SESSION
        + bytes(size)
        + b"\xff" * 4
        + bytes(96)
    )
    with pytest.raises(TruncatedError, match="4294967295 entries of 4 bytes do not fit"):
        decode(data)


def test_lists_have_their_caps() -> None:
    """More masked sums, metrics or neighbors than there may be, though the bytes are all there."""
    masked_sums, around, tail = (bytes(32),) * 257, (bytes(33),) * ((1 << 14) + 1), (0,) * 265
    for message in (
        m.AdvertiseKeys(SESSION, m.DeviceKeys(1, bytes(32), masked_sums)),
        m.AdvertiseKeys(SESSION, m.DeviceKeys(1, bytes(32), (), bytes(65))),
        m.ShareKeys(SESSION, masked_sums, ()),
        m.MaskedInput(SESSION, 1, tail, np.zeros(0, "<u4")),
        m.UnmaskShares(SESSION, 1, around),
        m.SurvivorList(SESSION, 1, bytes((1 << 17) + 1)),
    ):
        with pytest.raises(OversizedError, match="is longer than"):
            decode(message.encode())


@given(st.integers(1, 70), st.data())
def test_bitmaps_are_sets(cohort: int, data: st.DataObject) -> None:
    members = data.draw(st.frozensets(st.integers(0, cohort - 1)))
    bitmap = write_bitmap(members, cohort)
    assert read_bitmap(bitmap, cohort) == members
    assert int.from_bytes(bitmap, "little") == sum(1 << one for one in members)
    for wrong in (bitmap + b"\0", bitmap[:-1]):
        with pytest.raises(NotCanonicalError, match=f"a set of {cohort} devices"):
            read_bitmap(wrong, cohort)
    for bit in range(cohort, 8 * len(bitmap)):
        wrong = (int.from_bytes(bitmap, "little") | 1 << bit).to_bytes(len(bitmap), "little")
        with pytest.raises(NotCanonicalError):
            read_bitmap(wrong, cohort)


@given(st.integers(0, PRIME - 1))
def test_shares_are_numbers_below_the_prime(value: int) -> None:
    assert read_share(value.to_bytes(33, "big")) == value


@pytest.mark.parametrize("value", [PRIME, PRIME + 1, 2**264 - 2])
def test_larger_shares_are_refused(value: int) -> None:
    with pytest.raises(NotCanonicalError, match="below the prime"):
        read_share(value.to_bytes(33, "big"))


def test_a_share_that_never_came_is_none() -> None:
    assert read_share(NO_SHARE) is None


key = st.binary(min_size=32, max_size=32)
several = st.lists(key, max_size=3).map(tuple)
some = st.binary(max_size=20)
memories = st.builds(
    Memory,
    round=st.integers(0, 2**64 - 1),
    due=st.integers(0, 2**32 - 1).map(Moment.numbered),
    opening=some,
    advert=some,
    roster=some,
    sealing=key,
    masks=several,
    seeds=several,
    rounding=key,
    incoming=several,
    shares=st.lists(st.binary(max_size=66), max_size=3).map(tuple),
    context=key,
    asked=key,
    alive=some,
    survivors=some,
    signed=some,
    request=key,
    reply=some,
)


@given(memories)
def test_a_memory_is_read_as_it_was_written(memory: Memory) -> None:
    data = memory.encode()
    assert read_memory(data) == memory
    assert read_memory(data).encode() == data


def test_a_damaged_memory_is_refused() -> None:
    data = Memory(
        round=3, due=Moment(0, Stage.UNMASK), opening=b"opening", masks=(bytes(range(32)),)
    ).encode()
    damaged = [data[:size] for size in range(len(data))] + [data + b"\0", b"\0" + data]
    for bit in range(8 * len(data)):
        value = int.from_bytes(data, "big") ^ (1 << bit)
        damaged.append(value.to_bytes(len(data), "big"))
    for wrong in damaged:
        with pytest.raises(ValueError, match="damaged"):
            read_memory(wrong)


def test_a_secret_is_forgotten_in_its_place() -> None:
    secrets = (b"\1" * 32, b"\2" * 32, b"\3" * 32)
    assert forget(secrets, 1) == (secrets[0], GONE, secrets[2])
