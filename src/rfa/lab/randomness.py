"""Random choices: each from a stream of its own, named by what it decides.

A stream depends on the run's seed and its names alone, not on what was drawn before or by whom.
That is why a run ends the same with any number of workers, and after any number of interruptions.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The generator for one choice, named by words and numbers ("batches", round, device)."""
    words = [zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))
