"""How much a device counts for its number of examples: its weight, and what it keeps for it.

What each way to weigh tells is in `rfa.secagg.weights`. A surrogate is kept while the count stays
between its two powers, so that a count that grows tells nothing on its way. Neither it nor the
threshold, which is drawn once for all rounds and runs of a task, depends on the cap: the server
chooses that. Tasks share nothing, or the surrogates of two would tell the ratio of their counts.
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
from rfa.secagg.weights import BUCKETS, DIGITS, EQUAL, bucket, lower, surrogate

_WAIT = 30.0
"""Seconds to wait for another process of the same device."""


def weigh(examples: float, cap: float, mode: str, *, kept: Path, task: str) -> float:
    """The weight of a device, above 0 and at most 1; 0 if it has no examples.

    Args:
        examples: how many examples it has.
        cap: the most that count; with buckets a power of two.
        mode: how it is weighed.
        kept: the file in which it keeps its surrogates.
        task: what the examples are for: a device has a surrogate for each task.

    Raises:
        VaultError: if the file cannot be used.
    """
    if not 0 < examples < math.inf:
        return 0.0
    if mode == EQUAL:
        return 1.0
    if mode == BUCKETS:
        return bucket(keep_surrogate(kept, task, examples), cap)
    return float(min(examples, cap) / cap)


def keep_surrogate(path: Path, task: str, examples: float) -> float:
    """The power of two for which a device's examples pass, kept while they are beside it.

    Raises:
        VaultError: if the file cannot be used.
    """
    names = (f"{task} threshold", f"{task} below", f"{task} surrogate")
    with _open(path) as store:
        known: dict[str, float] = dict(store.execute("SELECT name, value FROM kept").fetchall())
        drawn = int.from_bytes(os.urandom(DIGITS // 8), "big")
        threshold, below, chosen = map(known.get, names, (drawn, 0.0, 0.0))
        if not _can_be_kept(threshold, below, chosen):
            msg = f"the surrogates at {path} are damaged: remove the file, and new ones are drawn"
            raise VaultError(msg)
        if not below <= examples <= 2 * below:
            below, chosen = lower(examples), surrogate(examples, int(threshold))
        after = zip(names, (threshold, below, chosen), strict=True)
        store.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", after)
    return chosen


def _can_be_kept(threshold: object, below: object, chosen: object) -> bool:
    """Whether these can have been kept: no surrogate yet, or one of two powers."""
    if not isinstance(threshold, int) or not 0 <= threshold < 1 << DIGITS:
        return False
    if not isinstance(below, float) or not isinstance(chosen, float):
        return False
    if not below:
        return not chosen
    return below == lower(below) and chosen in (below, 2 * below)


@contextlib.contextmanager
def _open(path: Path) -> Generator[sqlite3.Connection]:
    """The file of the surrogates, which only its owner may read, and no other process meanwhile."""
    try:
        create_private(path)
        opened = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
        with contextlib.closing(opened) as store:
            store.execute("BEGIN EXCLUSIVE")
            store.execute("CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value)")
            yield store
            store.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        msg = f"the surrogates at {path} cannot be used: {error}"
        raise VaultError(msg) from None
