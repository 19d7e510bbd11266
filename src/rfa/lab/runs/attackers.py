"""Who attacks in a run, in words: corrupted devices at a level, and sybils."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def attackers_text(row: Mapping[str, Any]) -> str:
    """Who attacks in a run, in words: "0.25", "by 4 sybils", "0.25 and 4 sybils"; "" for nobody."""
    level = f"{row['rho']:g}" if row["rho"] else ""
    sybils = sybils_text(json.loads(row["settings"])["attack"].get("sybils", 0))
    if not sybils:
        return level
    return f"{level} and {sybils}" if level else f"by {sybils}"


def sybils_text(count: int) -> str:
    """A number of sybils in words; "" for none."""
    return f"{count} sybil{'s' * (count != 1)}" if count else ""
