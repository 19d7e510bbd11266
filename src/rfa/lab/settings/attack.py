"""The settings of the attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rfa._specs import parse_spec
from rfa.errors import InvalidValueError
from rfa.lab.attacks.corruption import Corruption, DataCorruption, UpdateCorruption
from rfa.lab.attacks.registry import BUILT_IN, NAMES, NONE, TRIGGERED, find_corruption
from rfa.lab.settings.fields import Group, setting

MAX_SYBILS = 10_000
MOST_ASSUMED = 0.49
"""What aggregators assume at most by a margin: they need a majority of honest devices."""


@dataclass(frozen=True)
class Attack(Group):
    """Which devices are corrupted, and their attack."""

    corruption: str = setting(
        NONE,
        f"What corrupted devices do: {', '.join(NAMES)}, or your own module:function. Parameters "
        "may follow, as in alie:z=1.5.",
    )
    rho: float = setting(0.0, "The fraction of the training data on corrupted devices.")
    assumed_margin: float = setting(
        0.0,
        "Added to rho, if there is corruption, for aggregators that are told it: rounds may draw "
        "more corrupted devices than rho says.",
    )
    attackers: str = setting(
        "fixed",
        "Which devices are corrupted: fixed (the same in all rounds) or random (drawn each round).",
        choices=("fixed", "random"),
    )
    sybils: int = setting(
        0, "Corrupted devices without data that join every round beside the sampled ones."
    )

    def __post_init__(self) -> None:
        """Check each value, and that a level comes with a corruption."""
        self._check_types()
        self._check_fractions("rho", "assumed_margin")
        self._check_counts("sybils", least=0)
        if self.sybils > MAX_SYBILS:
            msg = f"sybils must be at most {MAX_SYBILS}, not {self.sybils}: each holds an update"
            raise InvalidValueError(msg)
        for name, others in (("rho", "data or omniscient"), ("sybils", "ipm or alie")):
            if self.corruption == NONE and getattr(self, name):
                msg = f"{name}={getattr(self, name)} needs a corruption: give one, such as {others}"
                raise InvalidValueError(msg)

    def applied(self) -> dict[str, Any]:
        """The values that make a difference: at level 0 only a backdoor, which is tried anyway."""
        values = super().applied()
        del values["assumed_margin"]  # a parameter of the aggregator says what it is told
        if not self.sybils:  # so that runs keep the names that they have
            del values["sybils"]
        if self.rho or self.sybils:
            return values
        return {"corruption": self.corruption if self._has_trigger() else NONE, "rho": 0.0}

    def check_sybils(self, corruption: Corruption | None, hidden: bool) -> None:
        """Check that sybils, if there are any, have something to send, which the server sees.

        Args:
            corruption: what they do.
            hidden: whether sums are secure or hold noise.

        Raises:
            InvalidValueError: if their corruption is one of data, or sums are secure or noisy.
        """
        if self.sybils and not isinstance(corruption, UpdateCorruption):
            msg = f"sybils={self.sybils} have no data for corruption={self.corruption}: give one "
            raise InvalidValueError(msg + f"of updates, such as {', '.join(BUILT_IN)}")
        if self.sybils and hidden:
            msg = f"sybils={self.sybils} are simulated without secure sums and noise alone: give "
            raise InvalidValueError(msg + "secure=off, and no epsilon or noise")

    def assumed_fraction(self, cohort: int) -> float:
        """The fraction of a round's devices that aggregators assume to be corrupted.

        It is the true one, sybils among them, and the margin, but not more than `MOST_ASSUMED`.
        """
        fraction = self.rho
        if self.sybils:
            fraction = (self.rho * cohort + self.sybils) / (cohort + self.sybils)
        if not (fraction and self.assumed_margin):
            return fraction
        return max(fraction, min(fraction + self.assumed_margin, MOST_ASSUMED))

    def _has_trigger(self) -> bool:
        """Whether every evaluation tries a trigger, of the task's backdoor or the user's own."""
        named = parse_spec(self.corruption)
        if not named.is_plugin:
            return named.name in TRIGGERED
        corruption = find_corruption(self.corruption, {})
        return isinstance(corruption, DataCorruption) and corruption.trigger is not None
