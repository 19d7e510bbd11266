"""The demands of a device on every round."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from numbers import Real

from rfa._checks import check_count, check_flag, check_number
from rfa._types import Floats32
from rfa.errors import InvalidValueError
from rfa.privacy import rho_of
from rfa.privacy.zcdp import check_delta
from rfa.radii import Radii, Radius
from rfa.secagg.errors import (
    ChosenQueryError,
    ParameterError,
    PrivacySpentError,
    SmallCohortError,
    SmallRadiusError,
    TooFewHonestError,
    TooManyNeighborsError,
    TooManyQueriesError,
    WeakTermsError,
    WrongDimensionError,
)
from rfa.secagg.messages.opening import MAX_METRICS, OpenRound
from rfa.secagg.security.demands import derived_demands
from rfa.secagg.security.odds import FAILURE_BITS
from rfa.secagg.security.parameters import (
    HONEST_PER_QUERY,
    LEAST_HONEST,
    MAX_MASKED_SUMS,
    MAX_NEIGHBORS,
    Parameters,
    ServerModel,
    check_failure_bits,
    check_max_neighbors,
    check_server_model,
    honest_needed,
)

MAX_NU_FACTOR = 32.0
"""The factor by which nu may change between two sums of a malicious server, as a learned nu
does."""
MAX_QUERIES = 16
"""The most queries in a round of a semi-honest server."""
LAST_DIGITS = 1e-9
"""The relative error of computed radii and charges."""
_rho_of = functools.cache(rho_of)


@dataclass(frozen=True)
class Policy:
    """A device's own demands, which no message can change.

    *Formal guarantee*: a device contributes to no sum, and opens no sum, that contradicts its
    policy (tests/secagg/test_refusals.py). A policy protects the device alone, and holds whatever
    the server does.

    Attributes:
        min_cohort: the least number of devices in a round. The default is 3; with a malicious
            server it is nine tenths of all identities that the device knows.
        min_honest: the least number of honest devices in a sum.
        num_colluders: the least number of colluders that the parameters must withstand. The default
            is 0 with a semi-honest server, which chooses the number. A malicious server chooses the
            cohort, and could choose all colluders, so count them among all devices; the default is
            then a tenth of all identities, rounded up.
        max_queries: the most queries in a round. The default is 16, because every v follows from
            the sums before; with a malicious server it is 1, because that server could choose two
            queries whose answers differ by the input of one device.
        min_nu: the least radius; below it, one device at v would outweigh the others.
        server_model: the strongest server that the device must be protected from; SEMI_HONEST
            accepts both.
        max_share: the largest share of the device in the sum of a query; 1 for any.
        max_neighbors: the most neighbors; the device does work for each.
        max_message_bytes: the most bytes of a message beside its vector.
        failure_bits: accept parameters by odds if they expose the device with a probability of at
            most 2^-bits, by its own computation; at least 40, None for certain parameters only.
        honest_per_query: the number of further honest devices that the sums need for each query
            after the first (`honest_needed`), because several sums together reveal single updates.
            With 0, only more honest devices than sums are required.
        any_point: whether a malicious server may query points other than zero, as sub-cohorts need.
            A sum at a guessed update reveals whether some device has it.
        max_nu_factor: the largest factor by which a malicious server may change nu between two sums
            that the device is in; None for any. A learned nu changes by at most 32 per round, so a
            device that takes part in few rounds, or with another nu, needs a larger factor.
        any_radii: whether a malicious server may give each block of coordinates its own radius, as
            block clipping does. In each block it then chooses between a mean and a sum of
            directions, and two rounds of nearly the same updates reveal the longest device of each
            block.
        epsilon: the privacy budget, at delta, for all sums that the device is ever in, over all
            rounds and runs; None for no budget. A device with a budget joins only rounds with
            noise, and refuses sums beyond it with `PrivacySpentError`.
        delta: the delta of the privacy budget.
    """

    min_cohort: int | None = None
    min_honest: int = LEAST_HONEST
    num_colluders: int | None = None
    max_queries: int | None = None
    min_nu: float = 1e-6
    server_model: ServerModel = ServerModel.SEMI_HONEST
    max_share: float = 1.0
    max_neighbors: int = MAX_NEIGHBORS
    max_message_bytes: int = 1 << 24
    failure_bits: int | None = FAILURE_BITS
    honest_per_query: int = HONEST_PER_QUERY
    any_point: bool = False
    max_nu_factor: float | None = MAX_NU_FACTOR
    any_radii: bool = False
    epsilon: float | None = None
    delta: float = 1e-5

    def __post_init__(self) -> None:
        """Check each demand by itself."""
        for name, least in (
            ("min_honest", LEAST_HONEST),
            ("max_message_bytes", 1),
            ("honest_per_query", 0),
        ):
            check_count(name, getattr(self, name), least=least)
        for name, least in (
            ("min_cohort", LEAST_HONEST),
            ("num_colluders", 0),
            ("max_queries", 1),
        ):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least=least)
        check_flag("any_point", self.any_point)
        check_flag("any_radii", self.any_radii)
        factor = self.max_nu_factor
        if factor is not None and not (isinstance(factor, Real) and factor >= 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"max_nu_factor must be at least 1, or None for any, not {factor!r}"
            raise InvalidValueError(msg)
        for name in ("min_nu", "max_share"):
            check_number(name, getattr(self, name), positive=True)
        check_server_model("server_model", self.server_model)
        check_failure_bits("failure_bits", self.failure_bits)
        check_max_neighbors("max_neighbors", self.max_neighbors)
        self._check_budget()

    def _check_budget(self) -> None:
        """Check that the budget is valid, and fits the other demands."""
        check_delta(self.delta)
        if self.epsilon is None:
            return
        check_number("epsilon", self.epsilon, positive=True)
        if self.max_share < 1:
            msg = (
                f"epsilon={self.epsilon:g} asks for rounds with noise, in which no device can "
                f"check max_share={self.max_share:g}: leave one of them out"
            )
            raise InvalidValueError(msg)

    @property
    def budget(self) -> float:
        """The limit on the charges of all sums, in zCDP; infinite without a budget."""
        return math.inf if self.epsilon is None else _rho_of(self.epsilon, self.delta)

    @property
    def is_wary(self) -> bool:
        """Whether the device assumes that the server is malicious."""
        return self.server_model == ServerModel.MALICIOUS

    def settled(self, identities: int) -> Policy:
        """Return the policy with every default replaced by a number.

        Args:
            identities: the number of identities that the device knows.

        Raises:
            ParameterError: if the server is malicious, and a demand is neither given nor derived.
        """
        cohort, colluders = self.min_cohort, self.num_colluders
        if None not in (cohort, colluders):
            return self
        derived = derived_demands(identities, is_wary=self.is_wary)
        return dataclasses.replace(
            self,
            min_cohort=derived[0] if cohort is None else cohort,
            num_colluders=derived[1] if colluders is None else colluders,
        )

    def check_opening(self, opening: OpenRound, dim: int, metrics: int) -> None:
        """Check that the device accepts the opening of a round.

        Raises:
            RefusalError: if it does not; the message names the value.
        """
        malicious = opening.server_model == ServerModel.MALICIOUS
        most = self.max_queries or (1 if malicious else MAX_QUERIES)
        if not 1 <= opening.queries <= most:
            msg = f"a round of {opening.queries} queries: this device answers at most {most}"
            raise TooManyQueriesError(msg)
        if opening.masked_sums > MAX_MASKED_SUMS or opening.metrics > MAX_METRICS:
            msg = f"{opening.masked_sums} masked sums and {opening.metrics} metrics are too many"
            raise TooManyQueriesError(msg)
        if opening.dim != dim or opening.metrics > metrics:
            msg = (
                f"asked for {opening.dim} coordinates and {opening.metrics} metrics: "
                f"this device has {dim} and {metrics}"
            )
            raise WrongDimensionError(msg)
        if (
            opening.server_model not in (ServerModel.SEMI_HONEST, ServerModel.MALICIOUS)
            or opening.server_model < self.server_model
        ):
            msg = f"server_model={opening.server_model}: this device wants {self.server_model!r}"
            raise WeakTermsError(msg)
        if not 0 <= opening.max_share <= 1 or (
            self.max_share < 1 and not 0 < opening.max_share <= self.max_share
        ):
            msg = f"max_share={opening.max_share}: this device wants at most {self.max_share}"
            raise WeakTermsError(msg + f": give max_share={self.max_share}, or less")
        if self.epsilon is not None and not opening.noise > 0:
            msg = (
                f"a round without noise: this device has a budget of epsilon={self.epsilon:g}, "
                "which exact sums, of training or evaluation, do not keep: open it with noise"
            )
            raise WeakTermsError(msg)

    def check_charge(self, spent: float, charge: float, sums: int = 1) -> None:
        """Check that the charges of sums stay within the budget.

        Args:
            spent: the charges so far.
            charge: the charge of each sum.
            sums: the number of sums.

        Raises:
            PrivacySpentError: if they would not; the message says how much is spent.
        """
        if spent + sums * charge <= self.budget * (1 + LAST_DIGITS):
            return
        msg = (
            f"{sums} more sum{'s' * (sums > 1)} at a charge of rho={charge:.4g} each would exceed "
            f"this device's budget of rho={self.budget:.4g} (epsilon={self.epsilon:g} at "
            f"delta={self.delta:g}), of which {spent:.4g} is spent"
        )
        raise PrivacySpentError(msg)

    def check_cohort(self, cohort: int) -> None:
        """Check that a cohort is large enough.

        Raises:
            SmallCohortError: if it is not; the message gives its size.
            ParameterError: if the policy is not settled.
        """
        if self.min_cohort is None:
            raise self._not_settled()
        if cohort < self.min_cohort:
            msg = f"a cohort of {cohort}: this device wants at least {self.min_cohort}"
            raise SmallCohortError(msg)

    def _not_settled(self) -> ParameterError:
        return ParameterError(f"{self} is not settled: let the device's Profile do it")

    def check_parameters(self, parameters: Parameters, queries: int) -> None:
        """Check that parameters protect the device enough, and do not cost it too much work.

        Args:
            parameters: the parameters.
            queries: the number of queries in the round.

        Raises:
            RefusalError: if they do not; the message names the value.
            ParameterError: if the policy is not settled.
        """
        if parameters.degree > self.max_neighbors:
            count, most = parameters.degree, self.max_neighbors
            msg = f"{count} neighbors: this device deals to at most {most} (max_neighbors)"
            raise TooManyNeighborsError(msg)
        if self.num_colluders is None:
            raise self._not_settled()
        if parameters.min_honest < self.min_honest:
            msg = f"h={parameters.min_honest} honest devices: this device wants {self.min_honest}"
            raise WeakTermsError(msg)
        if parameters.num_colluders < self.num_colluders:
            count, wanted = parameters.num_colluders, self.num_colluders
            msg = f"c={count} colluders are withstood: this device wants {wanted}"
            raise WeakTermsError(msg)
        if not parameters.holds_with(self.failure_bits):
            bits = self.failure_bits
            wanted = "certain ones" if bits is None else f"a probability below 2^-{bits}"
            msg = f"{parameters} hold by odds only: this device wants {wanted}"
            raise WeakTermsError(msg)
        self._check_honest(parameters, queries)

    def _check_honest(self, parameters: Parameters, queries: int) -> None:
        """Check that the sums about one update do not reveal it together."""
        needed = honest_needed(queries, self.honest_per_query)
        if parameters.honest < needed:
            lost = f"{parameters.num_colluders} colluders and {parameters.num_dropouts} drop-outs"
            msg = (
                f"{queries} sums about the same updates reveal single ones together: of "
                f"{parameters.cohort} devices with {lost} {parameters.honest} are sure to be "
                f"honest, and this device wants {needed}: take "
                f"{parameters.cohort - parameters.honest + needed} devices, "
                "or one sum"
            )
            raise TooFewHonestError(msg)

    def check_query(self, v: Floats32, radius: Radius, last_nu: float) -> None:
        """Check that a point and a radius cannot single out a device.

        Args:
            v: the point, empty for zero.
            radius: the radius, or the radii of blocks.
            last_nu: the one radius of the last sum that the device was in; 0 for none.

        Raises:
            SmallRadiusError, ChosenQueryError: if they can; the message names them.
        """
        nu = radius.nu if isinstance(radius, Radii) else radius
        if not nu >= self.min_nu:
            msg = f"a radius nu of {nu}: this device answers from {self.min_nu} on"
            raise SmallRadiusError(msg)
        if not self.is_wary:
            return
        if len(v) and not self.any_point:
            msg = (
                "a point v that is not zero: a malicious server could have guessed an update. "
                "Policy(any_point=True) answers, as sub-cohorts need"
            )
            raise ChosenQueryError(msg)
        if isinstance(radius, Radii):
            if self.any_radii:
                return
            msg = (
                "a radius for each block of coordinates: a malicious server could have chosen "
                "them. Policy(any_radii=True) answers, as block clipping needs"
            )
            raise ChosenQueryError(msg)
        most = self.max_nu_factor
        if most and last_nu and not 1 / _slack(most) <= nu / last_nu <= _slack(most):
            msg = (
                f"a radius nu of {nu} after {last_nu}: this device goes along with a factor of "
                f"{most:g} at once; Policy(max_nu_factor=...) sets it, None for any"
            )
            raise ChosenQueryError(msg)


def _slack(factor: float) -> float:
    """Return a factor with room for the error of computed radii."""
    return factor * (1 + LAST_DIGITS)
