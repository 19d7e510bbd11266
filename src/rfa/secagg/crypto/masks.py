"""Masks: AES-128 streams in counter mode, added to vectors in blocks that stay in the cache.

A key serves one mask in one masked sum, so counters start at 0. The stream masks the tail first,
and then the words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from rfa.secagg.words import TAIL, TAIL_BYTES, WORD, Words

Mask: TypeAlias = tuple[bytes, bool]
"""A key, and whether its stream is added (True) or subtracted (False)."""
Stream: TypeAlias = tuple[CipherContext, bool]
"""The open stream of a mask, and whether it is added."""

BLOCK = 1 << 15
"""The words that are masked at a time: 128 kB, and the same size of keystream, stay in the
cache."""
GROUP = 256
"""The number of streams that are open at a time."""
_ZEROS = bytes(BLOCK * WORD.itemsize)


def keystream(key: bytes, start: int = 0) -> CipherContext:
    """Return the stream of a key, from a block counter on."""
    return Cipher(algorithms.AES128(key), modes.CTR(start.to_bytes(16, "big"))).encryptor()


def stream_words(stream: CipherContext, count: int) -> Words:
    """Return the next words of a stream."""
    return np.frombuffer(stream.update(_zeros(count * WORD.itemsize)), WORD)


def add_masks(words: Words, tail: list[int], masks: Sequence[Mask]) -> None:
    """Add or subtract the streams of many keys, in place, modulo 2^32 and 2^128.

    The memory needed beside the vector does not depend on its length or on the number of masks.
    """
    for first in range(0, len(masks), GROUP):
        streams = open_streams(masks[first : first + GROUP])
        mask_tail(tail, streams)
        mask_words(words, streams)


def open_streams(masks: Sequence[Mask]) -> list[Stream]:
    """Return the streams of masks, for `mask_tail` and then `mask_words`."""
    return [(keystream(key), plus) for key, plus in masks]


def mask_tail(tail: list[int], streams: Sequence[Stream]) -> None:
    """Add the streams to a tail, in place."""
    for stream, plus in streams:
        drawn = stream.update(bytes(len(tail) * TAIL_BYTES))
        for index in range(len(tail)):
            shift = int.from_bytes(drawn[TAIL_BYTES * index : TAIL_BYTES * (index + 1)], "little")
            tail[index] = (tail[index] + (shift if plus else -shift)) % TAIL


def mask_words(words: Words, streams: Sequence[Stream]) -> None:
    """Add the streams to words, in place."""
    buffer = bytearray(min(BLOCK, max(len(words), 1)) * WORD.itemsize)
    mask = np.frombuffer(buffer, WORD)
    calls: list[tuple[Callable[..., Any], Any]] = [
        (stream.update_into, np.add if plus else np.subtract) for stream, plus in streams
    ]
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        drawn, size = mask[: len(block)], block.nbytes
        zeros, target = memoryview(_ZEROS)[:size], memoryview(buffer)[:size]
        for draw_into, combine in calls:
            draw_into(zeros, target)
            combine(block, drawn, out=block)


def _zeros(size: int) -> Any:
    return memoryview(_ZEROS)[:size] if size <= len(_ZEROS) else bytes(size)
