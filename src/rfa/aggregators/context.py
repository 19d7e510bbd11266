"""The defaults of an aggregator's parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Context:
    """Values that decide parameters that are not given.

    Attributes:
        corrupted: the fraction of the devices that clear aggregators assume to be corrupted.
        clip_norm: the length to which means clip updates.
        early_stop: the improvement at which plain Weiszfeld steps end; None for never.
        max_groups: returns the most groups into which a cohort can be split.
        noise: whether sums hold noise, which is proportional to the clip norm of a mean.
    """

    corrupted: float = 0.0
    clip_norm: float = 100.0
    early_stop: float | None = None
    max_groups: Callable[[], int] = lambda: 1
    noise: bool = False
