"""The values of fields: a set of devices as a bitmap, and a share as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from rfa.secagg.crypto.shares import PRIME, SHARE_SIZE
from rfa.secagg.errors import NotCanonicalError

NO_SHARE = b"\xff" * SHARE_SIZE
"""The placeholder for a share that the holder never got."""

Bitmap: TypeAlias = bytes
"""A set of positions in the cohort, one bit each, the first in the lowest bit."""


def write_bitmap(members: Iterable[int], cohort: int) -> Bitmap:
    """Return a set of positions as a bitmap."""
    bits = np.zeros(cohort, np.uint8)
    bits[list(members)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def read_bitmap(bitmap: Bitmap, cohort: int) -> frozenset[int]:
    """Return the positions in a bitmap.

    Raises:
        NotCanonicalError: if it does not fit a cohort of this size.
    """
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    if len(bitmap) != (cohort + 7) // 8 or bits[cohort:].any():
        msg = f"a set of {cohort} devices takes {(cohort + 7) // 8} bytes, not {len(bitmap)}"
        raise NotCanonicalError(msg)
    return frozenset(np.flatnonzero(bits).tolist())


def read_share(share: bytes) -> int | None:
    """Return the number in a share; None if its holder never got it.

    Raises:
        NotCanonicalError: if it is not a share.
    """
    if share == NO_SHARE:
        return None
    value = int.from_bytes(share, "big")
    if value >= PRIME:
        msg = "a share is a number below the prime"
        raise NotCanonicalError(msg)
    return value
