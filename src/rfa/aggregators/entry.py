"""The entry of a named aggregator: how it is made, and with which parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from rfa._specs import signature_of
from rfa.aggregators.base import SumAggregator
from rfa.aggregators.clear import ClearAggregator

Aggregator: TypeAlias = "SumAggregator[Any] | ClearAggregator"
CONTEXT, GROUPS = "context", "groups"


@dataclass(frozen=True)
class Entry:
    """An aggregator with a name.

    Attributes:
        name: its name.
        summary: what it does, in one line.
        make: makes it from its parameters, all of them optional, and from `context` if it takes
            one.
        kind: its class.
        local_steps: the number of local steps that devices take, if it requires one.
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
        """Whether it needs only sums over devices."""
        return issubclass(self.kind, SumAggregator)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters."""
        taken = dict.fromkeys(signature_of(self.make).parameters)
        if self.is_private:
            taken[GROUPS] = None
        hidden = (CONTEXT, *getattr(self.kind, "set_in_rounds", ()))
        return tuple(name for name in taken if name not in hidden)
