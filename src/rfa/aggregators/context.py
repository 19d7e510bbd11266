"""What decides parameters of aggregators that are not given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Context:
    """What decides parameters that are not given.

    Attributes:
        corrupted: the fraction of the devices that clear aggregators assume to be corrupted.
        clip_norm: the length to which means clip updates.
        early_stop: the improvement at which plain Weiszfeld steps end; None for never.
        max_groups: tells the most groups that a cohort can be split into.
        noise: whether sums hold noise, which is as large as what means clip updates to.
    """

    corrupted: float = 0.0
    clip_norm: float = 100.0
    early_stop: float | None = None
    max_groups: Callable[[], int] = lambda: 1
    noise: bool = False
