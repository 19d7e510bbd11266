"""The weight of a device for its number of examples, and the values that it keeps for it.

`rfa.secagg.weights` says what each mode reveals. A device keeps a surrogate while its count stays
between the two powers of two, so a growing count reveals nothing on its way. Neither the surrogate
nor the threshold, which is drawn once for all rounds and runs of a task, depends on the cap, which
the server chooses. Tasks share nothing: the surrogates of two tasks with one threshold would reveal
the ratio of their counts.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from collections.abc import Generator, MutableMapping
from pathlib import Path

from rfa.secagg.device.store import WAIT, create_private
from rfa.secagg.errors import VaultError
from rfa.secagg.weights import BUCKETS, DIGITS, EQUAL, bucket, lower, surrogate

Surrogates = MutableMapping[str, float]
"""The stored values of a device by name, in memory."""


def weigh(examples: float, cap: float, mode: str, *, kept: Path | Surrogates, task: str) -> float:
    """Return the weight of a device, above 0 and at most 1; 0 if it has no examples.

    Args:
        examples: its number of examples.
        cap: the most that count; with buckets a power of two.
        mode: the mode: examples, buckets or equal.
        kept: where it keeps its surrogates: a file, or memory.
        task: the task of the examples: a device has a surrogate for each task.

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


def is_capped(
    examples: float, cap: float, mode: str, *, kept: Path | Surrogates, task: str
) -> bool:
    """Return whether a device, or with buckets its surrogate, has more examples than count.

    The arguments are those of `weigh`, which was called with them before.
    """
    if mode == EQUAL:
        return False
    counted = keep_surrogate(kept, task, examples) if mode == BUCKETS else examples
    return counted > cap


def keep_surrogate(kept: Path | Surrogates, task: str, examples: float) -> float:
    """Return the power of two for a device's examples, the same while they stay near it.

    Raises:
        VaultError: if the file cannot be used.
    """
    names = (f"{task} threshold", f"{task} below", f"{task} surrogate")
    with _opened(kept) as known:
        drawn = int.from_bytes(os.urandom(DIGITS // 8), "big")
        threshold, below, chosen = map(known.get, names, (drawn, 0.0, 0.0))
        if not _can_be_kept(threshold, below, chosen):
            msg = f"the surrogates at {kept} are damaged: remove the file, and new ones are drawn"
            raise VaultError(msg)
        if not below <= examples <= 2 * below:
            below, chosen = lower(examples), surrogate(examples, int(threshold))
        known.update(zip(names, (threshold, below, chosen), strict=True))
    return chosen


def _can_be_kept(threshold: object, below: object, chosen: object) -> bool:
    """Return whether these are valid stored values: no surrogate yet, or one of two powers."""
    if not isinstance(threshold, int) or not 0 <= threshold < 1 << DIGITS:
        return False
    if not isinstance(below, float) or not isinstance(chosen, float):
        return False
    if not below:
        return not chosen
    return below == lower(below) and chosen in (below, 2 * below)


@contextlib.contextmanager
def _opened(kept: Path | Surrogates) -> Generator[Surrogates]:
    """Yield the stored values by name; a file is private and locked meanwhile.

    Values that did not change are not written again.
    """
    if not isinstance(kept, Path):
        yield kept
        return
    try:
        create_private(kept)
        opened = sqlite3.connect(kept, timeout=WAIT, isolation_level=None)
        with contextlib.closing(opened) as store:
            store.execute("BEGIN EXCLUSIVE")
            store.execute("CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value)")
            before = dict(store.execute("SELECT name, value FROM kept").fetchall())
            known = dict(before)
            yield known
            changed = [item for item in known.items() if before.get(item[0]) != item[1]]
            store.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", changed)
            store.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        msg = f"the surrogates at {kept} cannot be used: {error}"
        raise VaultError(msg) from None
