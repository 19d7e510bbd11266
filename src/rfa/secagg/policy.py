"""What a device insists on, whatever the server says."""

from __future__ import annotations

from dataclasses import dataclass

from rfa.checks import check_count, check_number
from rfa.secagg.errors import (
    SmallCohortError,
    SmallRadiusError,
    TooManyStepsError,
    WeakTermsError,
    WrongDimensionError,
)
from rfa.secagg.messages import MOST_METRICS, MOST_TURNS, Open
from rfa.secagg.parameters import Parameters, Trust


@dataclass(frozen=True)
class Policy:
    """A device's own demands, which no message can change.

    Attributes:
        cohort: the least number of devices in a round.
        honest: the least number of honest devices in a sum.
        colluders: the least share of the cohort that must be withstood as colluders.
        steps: the most steps in a round: every sum tells something, so R is far below n.
        nu: the least radius; below it one device that sits on v would outweigh the others.
        trust: what the server is trusted with, at most; CURIOUS accepts both.
        limit: the most that the device's own share of a step may be; 1 for any.
        largest: the most bytes of a message.
    """

    cohort: int = 2
    honest: int = 2
    colluders: float = 0.0
    steps: int = 16
    nu: float = 1e-6
    trust: Trust = Trust.CURIOUS
    limit: float = 1.0
    largest: int = 1 << 30

    def __post_init__(self) -> None:
        """Refuse demands without a meaning."""
        for name in ("cohort", "honest"):
            check_count(name, getattr(self, name), least=2)
        for name in ("steps", "largest"):
            check_count(name, getattr(self, name))
        for name in ("nu", "limit"):
            check_number(name, getattr(self, name), positive=True)
        check_number("colluders", self.colluders)

    def check_opening(self, opening: Open, dim: int, metrics: int) -> None:
        """Refuse a round that asks too much.

        Raises:
            RefusalError: naming what.
        """
        if not 1 <= opening.steps <= self.steps:
            msg = f"a round of {opening.steps} steps: this device takes at most {self.steps}"
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
            raise WeakTermsError(msg)

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
        if parameters.colluders < self.colluders * parameters.cohort:
            share = f"{self.colluders:.0%} of {parameters.cohort}"
            msg = f"c={parameters.colluders} colluders: this device wants {share} withstood"
            raise WeakTermsError(msg)

    def check_radius(self, nu: float) -> None:
        """Refuse a radius below the floor.

        Raises:
            SmallRadiusError: naming it.
        """
        if not nu >= self.nu:
            msg = f"a radius nu of {nu}: this device answers from {self.nu} on"
            raise SmallRadiusError(msg)
