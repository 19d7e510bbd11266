"""What a server offers to devices, whatever their number."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

from rfa._checks import check_count, check_number
from rfa.secagg.errors import ParameterError
from rfa.secagg.security.odds import FAILURE_BITS
from rfa.secagg.security.parameters import (
    HONEST_PER_QUERY,
    LEAST_HONEST,
    MAX_NEIGHBORS,
    Parameters,
    ServerModel,
    check_failure_bits,
    check_max_neighbors,
    check_server_model,
    derive,
    honest_needed,
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
        max_neighbors: the most neighbors of a device, which its policy must accept.
        honest_per_query: how many more honest devices must be in the sums for each query after the
            first (`honest_needed`): together they tell of single updates. 0 leaves the floor alone
            under which they determine every one; devices refuse it unless their `Policy` has it.
    """

    colluder_fraction: float = 0.1
    max_dropout_fraction: float = 0.2
    min_honest_fraction: float = 0.25
    server_model: ServerModel = ServerModel.SEMI_HONEST
    failure_bits: int | None = FAILURE_BITS
    max_neighbors: int = MAX_NEIGHBORS
    honest_per_query: int = HONEST_PER_QUERY

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
        check_max_neighbors("max_neighbors", self.max_neighbors)
        insist(check_count, "honest_per_query", self.honest_per_query, least=0)

    def parameters(self, cohort: int, queries: int = 1) -> Parameters:
        """The parameters for a cohort of this size, each device of which answers so many queries.

        Raises:
            ParameterError: if there are none, or the sums would tell of single updates together.
        """
        try:
            found = self._derive(cohort)
        except ParameterError as error:
            msg = f"{error}{self._remedy(queries, cohort)}"
            raise ParameterError(msg) from None
        needed = honest_needed(queries, self.honest_per_query)
        if found.honest < needed:
            least = self._smallest(queries, cohort + 1)
            msg = (
                f"{queries} sums about the same updates tell of single ones together: of {cohort} "
                f"devices {found.honest} honest ones are sure to be in a sum, and {needed} must "
                f"be. Ask {least} devices or more, or each device once: one-step RFA "
                "(rfa-one-step) does, and RFA in sub-cohorts"
            )
            raise ParameterError(msg)
        return found

    def without(self, parameters: Parameters, lost: int) -> Parameters:
        """The parameters of the same sums without devices that are lost already.

        A sum has as many devices at the least, and as many honest ones, as it had before, and is as
        safe: parameters that were certain are, and others hold with the same odds.

        Args:
            parameters: those of the cohort before.
            lost: how many of it are lost.

        Raises:
            ParameterError: if more are lost than may be, or none are safe.
        """
        cohort, dropouts = parameters.cohort, parameters.num_dropouts
        if lost > dropouts:
            msg = f"{lost} of {cohort} devices are lost, and at most {dropouts} may"
            raise ParameterError(msg)
        return derive(
            cohort - lost,
            num_colluders=parameters.num_colluders,
            num_dropouts=dropouts - lost,
            min_honest=parameters.min_honest,
            server_model=parameters.server_model,
            failure_bits=self.failure_bits if parameters.statistical else None,
            max_neighbors=self.max_neighbors,
        )

    def enough(self, asked: int, queries: int = 1) -> int:
        """How many of the devices that are asked to join are enough to form a cohort.

        All but as many as may drop out; all where fewer would be too few for the terms.
        """
        least = asked - math.floor(self.max_dropout_fraction * asked)
        try:
            self.parameters(least, queries)
        except ParameterError:
            return asked
        return least

    def smallest(self, queries: int = 1) -> int:
        """The smallest cohort that the terms allow, each device of which answers so many queries.

        Raises:
            ParameterError: if there is none of reasonable size.
        """
        return self._smallest(queries, LEAST_HONEST)

    def _smallest(self, queries: int, least: int) -> int:
        """The smallest cohort from a size on."""
        needed = honest_needed(queries, self.honest_per_query)
        honest = 1 - self.colluder_fraction - self.max_dropout_fraction
        most = SMALL + (math.ceil(needed / honest) if honest > 0 else 0)
        for count in range(max(least, needed), most):
            if self.honest(count) < needed:
                continue
            with contextlib.suppress(ParameterError):
                self._derive(count)
                return count
        msg = f"no cohort below {most} devices can hold {self}: expect fewer colluders or drop-outs"
        raise ParameterError(msg)

    def honest(self, cohort: int) -> int:
        """The honest devices that are sure to be in a sum of a cohort of this size, n - f - c."""
        return cohort - self._colluders(cohort) - self._dropouts(cohort)

    def _remedy(self, queries: int, cohort: int) -> str:
        """How many devices the terms take, where more of them would do."""
        try:
            return f"; these terms take {self._smallest(queries, cohort + 1)} devices or more"
        except ParameterError:
            return ""

    def _derive(self, cohort: int) -> Parameters:
        return derive(
            cohort,
            num_colluders=self._colluders(cohort),
            num_dropouts=self._dropouts(cohort),
            min_honest=max(LEAST_HONEST, math.floor(self.min_honest_fraction * cohort)),
            server_model=self.server_model,
            failure_bits=self.failure_bits,
            max_neighbors=self.max_neighbors,
        )

    def _colluders(self, cohort: int) -> int:
        return math.ceil(self.colluder_fraction * cohort)

    def _dropouts(self, cohort: int) -> int:
        return math.floor(self.max_dropout_fraction * cohort)
