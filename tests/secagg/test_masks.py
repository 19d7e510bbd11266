"""Masks: the stream is AES-128 in counter mode, cancels exactly, and leaves nothing to see."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rfa.secagg.crypto.masks import (
    BLOCK,
    GROUP,
    Mask,
    add_masks,
    keystream,
    stream_words,
)
from rfa.secagg.transcript import pair_mask_key, self_mask_key
from rfa.secagg.words import TAIL, WORD

Words = NDArray[np.uint32]
LENGTHS = [0, 1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5]


def key_of(index: int) -> bytes:
    return index.to_bytes(16, "big")


def stream_of(key: bytes, size: int) -> bytes:
    """The whole stream of a key at once."""
    encryptor = Cipher(algorithms.AES128(key), modes.CTR(bytes(16))).encryptor()
    return encryptor.update(bytes(size)) + encryptor.finalize()


def reference(words: Words, tail: list[int], masks: list[Mask]) -> tuple[Words, list[int]]:
    """What masking gives, a whole stream at a time: the tail comes first, then the words."""
    size, found, numbers = 16 * len(tail), words.astype(np.int64), list(tail)
    for key, plus in masks:
        stream, sign = stream_of(key, size + 4 * len(words)), 1 if plus else -1
        found += sign * np.frombuffer(stream[size:], "<u4").astype(np.int64)
        for index in range(len(tail)):
            shift = stream[16 * index : 16 * (index + 1)]
            numbers[index] += sign * int.from_bytes(shift, "little")
    return (found % 2**32).astype(WORD), [value % TAIL for value in numbers]


def some_words(length: int, seed: int = 0) -> Words:
    return np.random.default_rng(seed).integers(0, 2**32, length, WORD)


def test_the_stream_is_that_of_the_standard() -> None:
    """FIPS 197, C.1: the block of zeros is the first counter; and the counter grows by one."""
    key = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
    blocks = [number.to_bytes(16, "big") for number in range(4)]
    encryptor = Cipher(algorithms.AES128(key), modes.ECB()).encryptor()  # noqa: S305
    assert keystream(key).update(bytes(64)) == encryptor.update(b"".join(blocks))
    plain, cipher = "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"
    assert encryptor.update(bytes.fromhex(plain)).hex() == cipher


def test_a_mask_is_the_stream_from_its_start_on_the_tail_first() -> None:
    """The first block is AES-128 of zeros under the key of zeros; numbers are little-endian."""
    first = bytes.fromhex("66e94bd4ef8a2c3b884cfa59ca342b2e")
    words, tail = np.zeros(2, WORD), [0]
    add_masks(words, tail, [(bytes(16), True)])
    assert tail[0].to_bytes(16, "little") == first
    assert words.tobytes() == stream_of(bytes(16), 24)[16:]
    add_masks(words := np.zeros(2, WORD), [], [(bytes(16), True)])
    assert words.tobytes() == first[:8]


@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_are_as_one_stream(length: int) -> None:
    masks = [(key_of(index), index % 2 == 0) for index in range(3)]
    words, tail = some_words(length), [0, 1, TAIL - 1, 2**64]
    expected = reference(words, tail, masks)
    add_masks(words, tail, masks)
    assert (words == expected[0]).all()
    assert tail == expected[1]
    alone, _ = reference(np.zeros(length, WORD), [], [(key_of(7), True)])
    assert (stream_words(keystream(key_of(7)), length) == alone).all()


def test_there_may_be_more_masks_than_streams_at_a_time() -> None:
    masks = [(key_of(index), index % 3 != 0) for index in range(2 * GROUP + 1)]
    words, tail = some_words(9), [3, 4]
    expected = reference(words, tail, masks)
    add_masks(words, tail, masks)
    assert (words == expected[0]).all()
    assert tail == expected[1]


keys = st.binary(min_size=16, max_size=16)
ring = st.integers(0, TAIL - 1)


@settings(max_examples=100)
@given(
    st.lists(st.integers(0, 2**32 - 1), max_size=40),
    st.lists(ring, max_size=8),
    st.lists(st.tuples(keys, st.booleans()), max_size=6),
)
def test_what_is_added_and_subtracted_cancels(
    values: list[int], numbers: list[int], masks: list[Mask]
) -> None:
    words, tail = np.array(values, WORD), list(numbers)
    add_masks(words, tail, masks)
    assert all(0 <= value < TAIL for value in tail)
    add_masks(words, tail, [(key, not plus) for key, plus in reversed(masks)])
    assert words.tolist() == values
    assert tail == numbers


def test_every_bit_of_a_key_changes_the_stream() -> None:
    key = bytes(range(16))
    flipped = [(int.from_bytes(key, "big") ^ (1 << bit)).to_bytes(16, "big") for bit in range(128)]
    streams = {keystream(one).update(bytes(16)) for one in [key, *flipped]}
    assert len(streams) == 129


def test_every_bit_of_a_seed_changes_the_mask() -> None:
    seed, context = bytes(range(32)), bytes(32)
    flipped = [(int.from_bytes(seed, "big") ^ (1 << bit)).to_bytes(32, "big") for bit in range(256)]
    assert len({self_mask_key(one, context) for one in [seed, *flipped]}) == 257
    assert len({pair_mask_key(one, context, 0, 1) for one in [seed, *flipped]}) == 257


def test_streams_do_not_depend_on_the_other_streams() -> None:
    alone, along = np.zeros(5, WORD), np.zeros(5, WORD)
    add_masks(alone, [], [(key_of(1), True)])
    add_masks(along, [], [(key_of(2), True), (key_of(1), True), (key_of(2), False)])
    assert alone.tolist() == along.tolist()
    assert alone.any()


def chi_square(data: bytes) -> float:
    """How far the bytes are from uniform, in standard deviations of chi-square."""
    seen = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    expected = len(data) / 256
    return (float(((seen - expected) ** 2).sum()) / expected - 255) / math.sqrt(510)


INPUTS = {
    "zero": (0, 0),
    "ones": (1, 1),
    "largest": (2**31 - 1, TAIL // 2 - 1),
    "smallest": (2**31, TAIL // 2),
    "all bits": (2**32 - 1, TAIL - 1),
}


@pytest.mark.parametrize("name", INPUTS)
def test_masked_vectors_are_uniform(name: str) -> None:
    """Each byte of a word, and each of a number of the tail, whatever was masked."""
    word, number = INPUTS[name]
    words, tail = np.full(1 << 16, word, WORD), [number] * 4096
    assert chi_square(words.tobytes()) > 100
    add_masks(words, tail, [(key_of(len(name)), True), (key_of(99), False)])
    packed = b"".join(value.to_bytes(16, "little") for value in tail)
    for place in range(4):
        assert abs(chi_square(words.tobytes()[place::4])) < 5
    assert abs(chi_square(packed)) < 5
    for place in range(16):
        assert abs(chi_square(packed[place::16])) < 5


def test_masked_vectors_of_different_inputs_cannot_be_told_apart() -> None:
    """Chi-square of two samples: the bytes of masked zeros against those of masked extremes."""
    seen: list[NDArray[np.intp]] = []
    for index, word in enumerate((0, 2**31 - 1)):
        words = np.full(1 << 16, word, WORD)
        add_masks(words, [], [(key_of(1000 + index), True)])
        seen.append(np.bincount(np.frombuffer(words.tobytes(), np.uint8), minlength=256))
    statistic = float(((seen[0] - seen[1]) ** 2 / (seen[0] + seen[1])).sum())
    assert abs(statistic - 255) < 5 * math.sqrt(510)


def peak(count: int) -> int:
    words, tail = np.zeros(4 * BLOCK, WORD), [0] * 8
    masks: list[Mask] = [(key_of(index), True) for index in range(count)]
    tracemalloc.start()
    add_masks(words, tail, masks)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_memory_does_not_grow_with_the_masks_or_the_vector() -> None:
    few, many = peak(5), peak(200)
    assert few < 2 * BLOCK * 4
    assert many - few < BLOCK * 4
