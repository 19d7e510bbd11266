"""What a server offers to devices, whatever their number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rfa._checks import check_number
from rfa.secagg.errors import ParameterError
from rfa.secagg.security.parameters import LEAST_HONEST, Parameters, Trust, derive, insist

SMALL = 1 << 10
"""Below how many devices a cohort is looked for that terms allow."""


@dataclass(frozen=True)
class Terms:
    """What a server offers whatever the number of devices, as shares of them.

    Attributes:
        colluders: the share of devices that may tell the server all they know.
        dropouts: the share of devices that may drop out in a round.
        honest: the least share of honest devices in any sum.
        trust: what the server is trusted with.
        statistical: for large cohorts in random order.
    """

    colluders: float = 0.1
    dropouts: float = 0.2
    honest: float = 0.25
    trust: Trust = Trust.CURIOUS
    statistical: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        for name in ("colluders", "dropouts", "honest"):
            insist(check_number, name, getattr(self, name))
        if self.colluders + self.dropouts + self.honest > 1:
            shares = f"colluders={self.colluders}, dropouts={self.dropouts}, honest={self.honest}"
            msg = f"{shares}: these are shares of a cohort, at most 1 together"
            raise ParameterError(msg)
        if self.trust not in tuple(Trust):
            msg = f"trust must be Trust.CURIOUS or Trust.LYING, not {self.trust!r}"
            raise ParameterError(msg)

    def parameters(self, cohort: int) -> Parameters:
        """The parameters for a cohort of this size.

        Raises:
            ParameterError: if there are none.
        """
        return derive(
            cohort,
            colluders=math.ceil(self.colluders * cohort),
            dropouts=math.floor(self.dropouts * cohort),
            honest=max(LEAST_HONEST, math.floor(self.honest * cohort)),
            trust=self.trust,
            statistical=self.statistical,
        )

    def smallest(self) -> int:
        """The smallest cohort that the terms allow.

        Raises:
            ParameterError: if there is none of reasonable size.
        """
        for count in range(LEAST_HONEST, SMALL):
            try:
                self.parameters(count)
            except ParameterError:
                continue
            return count
        msg = (
            f"no cohort below {SMALL} devices can hold {self}: expect fewer colluders or drop-outs"
        )
        raise ParameterError(msg)
