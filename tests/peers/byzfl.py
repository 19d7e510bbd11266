"""byzfl's aggregators, which live in the environment of the benchmarks."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.peers import load_byzfl


def load(part: str) -> Any:
    """The part "aggregators" or "preaggregators" of byzfl; skips the tests where there is none."""
    try:
        return load_byzfl(part)
    except ImportError as error:
        pytest.skip(f"needs byzfl ({error}): make peers", allow_module_level=True)
