"""Masks: streams of AES-256 in counter mode, added to vectors in blocks that stay in the cache.

A mask is a keystream: its
bytes from the start on mask the words, and those from the block 2^64 on the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from rfa.secagg.words import TAIL, TAIL_BYTES, WORD, Words

Mask: TypeAlias = tuple[bytes, bool]
"""A key, and whether its stream is added (or else subtracted)."""

BLOCK = 1 << 15
"""Words that are masked at a time: 128 kB, and as many of keystream, stay in the cache."""
TAIL_START = 1 << 64
"""The block of a keystream from which on it masks the tail."""
GROUP = 256
"""Streams that are open at a time."""
_ZEROS = bytes(BLOCK * WORD.itemsize)


def keystream(key: bytes, *, start: int = 0) -> CipherContext:
    """The stream of a key from a block of 16 bytes on: what it makes of zeros."""
    counter = start.to_bytes(16, "big")
    return Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()


def stream_words(stream: CipherContext, count: int) -> Words:
    """The next words of a stream."""
    return np.frombuffer(stream.update(_zeros(count * WORD.itemsize)), WORD)


def add_masks(words: Words, tail: list[int], masks: Sequence[Mask]) -> None:
    """Add or subtract the streams of many keys, in place, modulo 2^32 and 2^128.

    The memory needed beside the vector does not depend on its length or on the number of masks.
    """
    _add_to_words(words, masks)
    _add_to_tail(tail, masks)


def _add_to_words(words: Words, masks: Sequence[Mask]) -> None:
    """Add the streams to words."""
    for first in range(0, len(masks), GROUP):
        streams = [
            (keystream(key), np.add if plus else np.subtract)
            for key, plus in masks[first : first + GROUP]
        ]
        _add_streams(words, streams)


def _add_streams(words: Words, streams: list[tuple[CipherContext, Any]]) -> None:
    buffer = bytearray(min(BLOCK, max(len(words), 1)) * WORD.itemsize)
    mask = np.frombuffer(buffer, WORD)
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        size = block.nbytes
        zeros, target = memoryview(_ZEROS)[:size], memoryview(buffer)[:size]
        for stream, combine in streams:
            stream.update_into(zeros, target)
            combine(block, mask[: len(block)], out=block)


def _add_to_tail(tail: list[int], masks: Sequence[Mask]) -> None:
    """Add the streams to a tail."""
    for key, plus in masks:
        drawn = keystream(key, start=TAIL_START).update(bytes(len(tail) * TAIL_BYTES))
        for index in range(len(tail)):
            shift = int.from_bytes(drawn[TAIL_BYTES * index : TAIL_BYTES * (index + 1)], "little")
            tail[index] = (tail[index] + (shift if plus else -shift)) % TAIL


def _zeros(size: int) -> Any:
    return memoryview(_ZEROS)[:size] if size <= len(_ZEROS) else bytes(size)
