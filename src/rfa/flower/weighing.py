"""How much a device counts for its number of examples: its weight, and what it keeps for it.

What each way to weigh tells is in `rfa.secagg.weights`. A bucket is kept while the share stays
between its two powers, so that a count that grows tells nothing on its way; the threshold is drawn
once for all rounds, runs and tasks of the device.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from collections.abc import Generator
from pathlib import Path

from rfa.secagg.device.vault import create_private
from rfa.secagg.errors import VaultError
from rfa.secagg.weights import BUCKETS, DIGITS, EQUAL, LEAST, bucket, lower

_WAIT = 30.0
"""Seconds to wait for another process of the same device."""


def weigh(examples: float, cap: float, mode: str, *, kept: Path, task: str) -> float:
    """The weight of a device, above 0 and at most 1; 0 if it has no examples.

    Args:
        examples: how many examples it has.
        cap: the most that count.
        mode: how it is weighed.
        kept: the file in which it keeps its buckets.
        task: what the examples are for: a device has a bucket for each task.

    Raises:
        VaultError: if the file cannot be used.
    """
    if not 0 < examples < math.inf:
        return 0.0
    if mode == EQUAL:
        return 1.0
    share = float(min(examples, cap) / cap)
    return keep_bucket(kept, task, share) if mode == BUCKETS else share


def keep_bucket(path: Path, task: str, share: float) -> float:
    """The bucket of a device, drawn once, and kept while the share is between its two powers.

    Raises:
        VaultError: if the file cannot be used.
    """
    share = max(LEAST, share)
    with _open(path) as store:
        known: dict[str, float] = dict(store.execute("SELECT name, value FROM kept").fetchall())
        threshold = known.get("threshold", int.from_bytes(os.urandom(DIGITS // 8), "big"))
        below, chosen = known.get(f"{task} below", 0.0), known.get(f"{task} bucket", 0.0)
        if not _can_be_kept(threshold, below, chosen):
            msg = f"the buckets at {path} are damaged: remove the file, and new ones are drawn"
            raise VaultError(msg)
        if not below <= share <= 2 * below:
            below, chosen = lower(share), bucket(share, int(threshold))
        after = {"threshold": threshold, f"{task} below": below, f"{task} bucket": chosen}
        store.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", after.items())
    return chosen


def _can_be_kept(threshold: object, below: object, chosen: object) -> bool:
    """Whether these can have been kept: no bucket yet, or one of two powers."""
    if not isinstance(threshold, int) or not 0 <= threshold < 1 << DIGITS:
        return False
    if not isinstance(below, float) or not isinstance(chosen, float):
        return False
    if not below:
        return not chosen
    return LEAST <= below == lower(below) and chosen in (below, 2 * below)


@contextlib.contextmanager
def _open(path: Path) -> Generator[sqlite3.Connection]:
    """The file of the buckets, which only its owner may read, and no other process meanwhile."""
    try:
        create_private(path)
        opened = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
        with contextlib.closing(opened) as store:
            store.execute("BEGIN EXCLUSIVE")
            store.execute("CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value)")
            yield store
            store.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        msg = f"the buckets at {path} cannot be used: {error}"
        raise VaultError(msg) from None
