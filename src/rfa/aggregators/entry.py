"""What is known of an aggregator by its name: how it is made, and what decides about the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from rfa.aggregators.base import SumAggregator
from rfa.aggregators.clear import ClearAggregator

Aggregator: TypeAlias = "SumAggregator[Any] | ClearAggregator"
CONTEXT, GROUPS = "context", "groups"


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


@dataclass(frozen=True)
class Entry:
    """An aggregator that has a name.

    Attributes:
        name: its name.
        summary: what it does, in one line.
        make: makes it from its parameters, all of them optional, and from `context` if it takes it.
        kind: its class.
        local_steps: the local steps that devices take, where it needs a certain number of them.
        defends: whether it is meant to withstand corrupted devices.
    """

    name: str
    summary: str
    make: Callable[..., Aggregator]
    kind: type[Any]
    local_steps: int | None = None
    defends: bool = True

    @property
    def is_private(self) -> bool:
        """Whether sums over devices are all that it needs."""
        return issubclass(self.kind, SumAggregator)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters."""
        taken = dict.fromkeys(inspect.signature(self.make).parameters)
        if self.is_private:
            taken[GROUPS] = None
        hidden = (CONTEXT, *getattr(self.kind, "set_in_rounds", ()))
        return tuple(name for name in taken if name not in hidden)
