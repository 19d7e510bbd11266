"""The values of fields: a set of devices as a bitmap, a share as bytes, and a point of float32."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from rfa._types import Floats32
from rfa.errors import InvalidValueError
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


def as_sent(v: Any, dim: int) -> Floats32:
    """Return a point as it is sent: rounded to float32, and empty if it is zero.

    Raises:
        ValueError: if it is not a vector of numbers that float32 can hold.
    """
    with np.errstate(over="ignore"):
        sent = np.asarray(v).astype("<f4")
    if sent.shape != (dim,) or not np.isfinite(sent).all():
        msg = f"v must be {dim} finite numbers that float32 can hold, and has shape {sent.shape}"
        raise InvalidValueError(msg)
    return sent if sent.any() else sent[:0]
