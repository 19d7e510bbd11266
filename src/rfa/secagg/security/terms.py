"""What a server offers to devices, whatever their number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rfa._checks import check_number
from rfa.secagg.errors import ParameterError
from rfa.secagg.security.odds import FAILURE_BITS
from rfa.secagg.security.parameters import (
    LEAST_HONEST,
    Parameters,
    ServerModel,
    check_failure_bits,
    check_server_model,
    derive,
    insist,
)

SMALL = 1 << 10
"""Below how many devices a cohort is looked for that terms allow."""


@dataclass(frozen=True)
class Terms:
    """What a server offers whatever the number of devices, as fractions of a cohort.

    Attributes:
        colluder_fraction: the devices that may tell the server all they know.
        max_dropout_fraction: the devices that may drop out in a round, at most.
        min_honest_fraction: the honest devices in any sum, at least.
        server_model: what the server may do.
        failure_bits: accept, where that takes fewer neighbors and the server is semi-honest, that
            more than the sums is learned with a probability of 2^-bits over the random order of
            the cohort. More bits are safer, 40 the least; None is the safest: certainty only.
    """

    colluder_fraction: float = 0.1
    max_dropout_fraction: float = 0.2
    min_honest_fraction: float = 0.25
    server_model: ServerModel = ServerModel.SEMI_HONEST
    failure_bits: int | None = FAILURE_BITS

    def __post_init__(self) -> None:
        """Check that these are fractions, and that they leave room for each other."""
        names = ("colluder_fraction", "max_dropout_fraction", "min_honest_fraction")
        fractions = {name: getattr(self, name) for name in names}
        for name, value in fractions.items():
            insist(check_number, name, value)
        if sum(fractions.values()) > 1:
            listed = ", ".join(f"{name}={value}" for name, value in fractions.items())
            msg = f"{listed}: these are fractions of a cohort, at most 1 together"
            raise ParameterError(msg)
        insist(check_server_model, "server_model", self.server_model)
        check_failure_bits("failure_bits", self.failure_bits)

    def parameters(self, cohort: int) -> Parameters:
        """The parameters for a cohort of this size.

        Raises:
            ParameterError: if there are none.
        """
        return derive(
            cohort,
            num_colluders=math.ceil(self.colluder_fraction * cohort),
            num_dropouts=math.floor(self.max_dropout_fraction * cohort),
            min_honest=max(LEAST_HONEST, math.floor(self.min_honest_fraction * cohort)),
            server_model=self.server_model,
            failure_bits=self.failure_bits,
        )

    def enough(self, asked: int) -> int:
        """How many of the devices that are asked to join are enough to form a cohort.

        All but as many as may drop out; all where fewer would be too few for the terms.
        """
        least = asked - math.floor(self.max_dropout_fraction * asked)
        try:
            self.parameters(least)
        except ParameterError:
            return asked
        return least

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
