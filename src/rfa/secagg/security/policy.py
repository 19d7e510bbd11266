"""What a device insists on, whatever the server says."""

from __future__ import annotations

from dataclasses import dataclass

from rfa._checks import check_count, check_number
from rfa.errors import InvalidValueError
from rfa.secagg.errors import (
    SmallCohortError,
    SmallRadiusError,
    TooManyStepsError,
    WeakTermsError,
    WrongDimensionError,
)
from rfa.secagg.messages.round import MOST_METRICS, Open
from rfa.secagg.security.parameters import MOST_TURNS, Parameters, Trust

STEPS = 16
"""The most steps in a round of a server that follows the protocol."""


@dataclass(frozen=True)
class Policy:
    """A device's own demands, which no message can change.

    Attributes:
        cohort: the least number of devices in a round.
        honest: the least number of honest devices in a sum.
        colluders: the least number of colluders that must be withstood. A server that lies chooses
            the cohort, and can choose all of them: count them among all devices.
        steps: the most steps in a round. By default 16, where every v follows from the sums
            before; and 1 for a server that lies, which could choose two questions so that their
            answers differ by one device's part.
        nu: the least radius; below it one device that sits on v would outweigh the others.
        trust: what the server is trusted with, at most; CURIOUS accepts both.
        limit: the most that the device's own share of a step may be; 1 for any.
        largest: the most bytes of a message beside its vector.
    """

    cohort: int = 3
    honest: int = 3
    colluders: int = 0
    steps: int | None = None
    nu: float = 1e-6
    trust: Trust = Trust.CURIOUS
    limit: float = 1.0
    largest: int = 1 << 24

    def __post_init__(self) -> None:
        """Refuse demands without a meaning."""
        for name, least in (("cohort", 3), ("honest", 3), ("colluders", 0), ("largest", 1)):
            check_count(name, getattr(self, name), least=least)
        if self.steps is not None:
            check_count("steps", self.steps)
        for name in ("nu", "limit"):
            check_number(name, getattr(self, name), positive=True)
        if self.trust not in tuple(Trust):
            msg = f"trust must be Trust.CURIOUS or Trust.LYING, not {self.trust!r}"
            raise InvalidValueError(msg)

    def check_opening(self, opening: Open, dim: int, metrics: int) -> None:
        """Refuse a round that asks too much.

        Raises:
            RefusalError: naming what.
        """
        most = self.steps or (1 if opening.trust == Trust.LYING else STEPS)
        if not 1 <= opening.steps <= most:
            msg = f"a round of {opening.steps} steps: this device takes at most {most}"
            raise TooManyStepsError(msg)
        if opening.turns > MOST_TURNS or opening.metrics > MOST_METRICS:
            msg = f"{opening.turns} turns and {opening.metrics} metrics are too many"
            raise TooManyStepsError(msg)
        if opening.dim != dim or opening.metrics != metrics:
            msg = (
                f"asked for {opening.dim} coordinates and {opening.metrics} metrics: "
                f"this device has {dim} and {metrics}"
            )
            raise WrongDimensionError(msg)
        if opening.trust not in (Trust.CURIOUS, Trust.LYING) or opening.trust < self.trust:
            msg = f"trust {opening.trust} is asked for, and this device gives {self.trust!r}"
            raise WeakTermsError(msg)
        if not 0 <= opening.limit <= 1 or (self.limit < 1 and not 0 < opening.limit <= self.limit):
            msg = f"a limit of {opening.limit} on weights: this device wants at most {self.limit}"
            raise WeakTermsError(msg + f": give max_share={self.limit}, or less")

    def check_parameters(self, parameters: Parameters) -> None:
        """Refuse parameters that protect too little.

        Raises:
            RefusalError: naming what.
        """
        if parameters.cohort < self.cohort:
            msg = f"a cohort of {parameters.cohort}: this device wants at least {self.cohort}"
            raise SmallCohortError(msg)
        if parameters.honest < self.honest:
            msg = f"h={parameters.honest} honest devices: this device wants {self.honest}"
            raise WeakTermsError(msg)
        if parameters.colluders < self.colluders:
            msg = (
                f"c={parameters.colluders} colluders: this device wants {self.colluders} withstood"
            )
            raise WeakTermsError(msg)

    def check_radius(self, nu: float) -> None:
        """Refuse a radius below the floor.

        Raises:
            SmallRadiusError: naming it.
        """
        if not nu >= self.nu:
            msg = f"a radius nu of {nu}: this device answers from {self.nu} on"
            raise SmallRadiusError(msg)
