"""The terms that a server offers to devices, for cohorts of any size."""

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
"""The search for the smallest cohort that terms allow ends at this size."""


@dataclass(frozen=True)
class Terms:
    """The terms that a server offers, as fractions of a cohort of any size.

    Attributes:
        colluder_fraction: the fraction of devices that may collude with the server.
        max_dropout_fraction: the largest fraction of devices that may drop out in a round.
        min_honest_fraction: the least fraction of honest devices in any sum.
        server_model: what the server may do.
        failure_bits: with a semi-honest server, accept that it learns more than the sums with a
            probability of 2^-bits over the random order of the cohort, where that takes fewer
            neighbors. The least is 40, and more is safer; None requires certainty.
        max_neighbors: the most neighbors of a device, which its policy must accept.
        honest_per_query: the number of further honest devices that the sums need for each query
            after the first (`honest_needed`), because several sums together reveal single updates.
            With 0, only more honest devices than sums are required; devices refuse it unless their
            `Policy` allows it.
    """

    colluder_fraction: float = 0.1
    max_dropout_fraction: float = 0.2
    min_honest_fraction: float = 0.25
    server_model: ServerModel = ServerModel.SEMI_HONEST
    failure_bits: int | None = FAILURE_BITS
    max_neighbors: int = MAX_NEIGHBORS
    honest_per_query: int = HONEST_PER_QUERY

    def __post_init__(self) -> None:
        """Check that the fractions are valid, and at most 1 together."""
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
        """Return the parameters for a cohort of this size whose devices answer this many queries.

        Raises:
            ParameterError: if none are safe, or the sums would reveal single updates together.
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
                f"{queries} sums about the same updates reveal single ones together: of {cohort} "
                f"devices {found.honest} honest ones are sure to be in a sum, and {needed} must "
                f"be. Ask {least} devices or more, or each device once: one-step RFA "
                "(rfa-one-step) does, and RFA in sub-cohorts"
            )
            raise ParameterError(msg)
        return found

    def without(self, parameters: Parameters, lost: int) -> Parameters:
        """Return the parameters of the same sums after some devices are lost.

        Each sum still has the same least number of devices and of honest devices, and the same
        safety: certain parameters stay certain, and others hold with the same odds.

        Args:
            parameters: those of the cohort before.
            lost: the number of lost devices.

        Raises:
            ParameterError: if more are lost than may be, or no parameters are safe.
        """
        cohort, dropouts = parameters.cohort, parameters.num_dropouts
        if lost > dropouts:
            msg = f"{lost} of {cohort} devices are lost, and at most {dropouts} may be"
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
        """Return how many of the devices that are asked to join are enough to form a cohort.

        These are all except the tolerated drop-outs, or all if fewer would be too few for the
        terms.
        """
        least = asked - math.floor(self.max_dropout_fraction * asked)
        try:
            self.parameters(least, queries)
        except ParameterError:
            return asked
        return least

    def smallest(self, queries: int = 1) -> int:
        """Return the size of the smallest cohort that the terms allow with this many queries.

        Raises:
            ParameterError: if there is none of reasonable size.
        """
        return self._smallest(queries, LEAST_HONEST)

    def _smallest(self, queries: int, least: int) -> int:
        """Return the smallest cohort of at least this size."""
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
        """Return n - f - c, the honest devices that are sure to be in a sum of such a cohort."""
        return cohort - self._colluders(cohort) - self._dropouts(cohort)

    def _remedy(self, queries: int, cohort: int) -> str:
        """Return how many devices the terms need, if more devices would help."""
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
