"""Masks: streams of AES-256 in counter mode, added to vectors in blocks that stay in the cache.

A vector is d words of 32 bits and a tail of whole numbers of 128 bits. A mask is a keystream of
4 d bytes for the words and 16 bytes for each number of the tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]
Mask: TypeAlias = tuple[bytes, bool]
"""A key, and whether its stream is added (or else subtracted)."""

WORD = np.dtype("<u4")
BLOCK = 1 << 15
"""Words that are masked at a time: 128 kB, and as many of keystream, stay in the cache."""
TAIL = 1 << 128
TAIL_BYTES = 16
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


def add_masks(words: Words, tail: list[int], masks: Iterable[Mask]) -> None:
    """Add or subtract the streams of many keys, in place, modulo 2^32 and 2^128.

    The memory needed beside the vector does not depend on its length or on the number of masks.
    """
    waiting = list(masks)
    for first in range(0, len(waiting), GROUP):
        _add_group(words, tail, waiting[first : first + GROUP])


def _add_group(words: Words, tail: list[int], masks: Sequence[Mask]) -> None:
    streams = [(keystream(key), np.add if plus else np.subtract) for key, plus in masks]
    buffer = bytearray(min(BLOCK, max(len(words), 1)) * WORD.itemsize)
    mask = np.frombuffer(buffer, WORD)
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        size = block.nbytes
        zeros, place = memoryview(_ZEROS)[:size], memoryview(buffer)[:size]
        for stream, combine in streams:
            stream.update_into(zeros, place)
            combine(block, mask[: len(block)], out=block)
    for (stream, _), (_, plus) in zip(streams, masks, strict=True):
        _shift_tail(tail, stream.update(_zeros(len(tail) * TAIL_BYTES)), plus)


def _shift_tail(tail: list[int], stream: bytes, plus: bool) -> None:
    for index in range(len(tail)):
        shift = int.from_bytes(stream[TAIL_BYTES * index : TAIL_BYTES * (index + 1)], "little")
        tail[index] = (tail[index] + (shift if plus else -shift)) % TAIL


def _zeros(size: int) -> Any:
    return memoryview(_ZEROS)[:size] if size <= len(_ZEROS) else bytes(size)
