"""What a device insists on, whatever the server says."""

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
"""By how much nu may change between two sums of a malicious server: what a learned one does."""
MAX_QUERIES = 16
"""The most queries in a round of a server that follows the protocol."""
LAST_DIGITS = 1e-9
"""By how much computed radii and charges may be off, in parts of them."""
_rho_of = functools.cache(rho_of)


@dataclass(frozen=True)
class Policy:
    """A device's own demands, which no message can change.

    Attributes:
        min_cohort: the least number of devices in a round; 3 by default. For a malicious server it
            has no default but nine tenths of all identities that the device knows.
        min_honest: the least number of honest devices in a sum.
        num_colluders: how many colluders must be withstood, at least; 0 by default, where the
            server says how many. A malicious server chooses the cohort, and can choose all of them:
            count them among all devices. By default a tenth of all identities, rounded up.
        max_queries: the most queries in a round. By default 16, where every v follows from the
            sums before; and 1 for a malicious server, which could choose two queries whose answers
            differ by what one device added.
        min_nu: the least radius; below it one device that sits on v would outweigh the others.
        server_model: what the server may do, at least; SEMI_HONEST accepts both.
        max_share: the most that the device's share of a query's sum may be; 1 for any.
        max_neighbors: the most neighbors to deal shares to, each of which is work.
        max_message_bytes: the most bytes of a message beside its vector.
        failure_bits: parameters by odds are accepted if the device finds that they expose it with
            a probability of at most 2^-bits; 40 bits at least, None for certain ones only.
        honest_per_query: how many more honest devices must be in the sums for each query after the
            first (`honest_needed`): together they tell of single updates. 0 leaves the floor alone
            under which they determine every one.
        any_point: whether a malicious server may ask at another point than zero, as sub-cohorts
            do. At a guessed update, one sum tells whether some device has it.
        max_nu_factor: by which factor a malicious server may change nu from the last sum that the
            device was in to the next; None for any. A learned nu changes by at most 32 a round, so
            a device that is asked in few rounds, or for another nu, needs more.
        any_radii: whether a malicious server may give each block of coordinates its own radius, as
            block clipping does: in each block it chooses between a mean and a sum of directions,
            and two rounds of nearly the same updates tell the longest device of each block.
        epsilon: the budget of privacy, at delta, of all sums that the device will ever be in, of
            whatever rounds and runs; None for none. A device with a budget joins rounds with noise
            only, and refuses sums beyond it by `PrivacySpentError`.
        delta: the probability that epsilon leaves out.
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
        """Check that the budget has a meaning, and goes with the other demands."""
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
        """The charge that all sums may come to, in zCDP; infinite without a budget."""
        return math.inf if self.epsilon is None else _rho_of(self.epsilon, self.delta)

    @property
    def is_wary(self) -> bool:
        """Whether the device takes the server for malicious."""
        return self.server_model == ServerModel.MALICIOUS

    def settled(self, identities: int) -> Policy:
        """The policy of a device that knows so many identities, with every demand a number.

        Raises:
            ParameterError: if the server is malicious, and a demand neither given nor derived.
        """
        cohort, colluders = self.min_cohort, self.num_colluders
        if None not in (cohort, colluders):
            return self
        if not self.is_wary:
            derived = LEAST_HONEST, 0
        elif identities:
            tenths = math.ceil(identities / 10)
            derived = max(LEAST_HONEST, math.ceil(9 * identities / 10)), tenths
        else:
            msg = (
                "a malicious server chooses the cohort, and can choose all colluders: give "
                "Policy(min_cohort=..., num_colluders=...), counted among all devices, or the "
                "device the identities of all of them"
            )
            raise ParameterError(msg)
        return dataclasses.replace(
            self,
            min_cohort=derived[0] if cohort is None else cohort,
            num_colluders=derived[1] if colluders is None else colluders,
        )

    def check_opening(self, opening: OpenRound, dim: int, metrics: int) -> None:
        """Refuse a round that asks too much.

        Raises:
            RefusalError: naming what.
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
        """Refuse sums that would be charged beyond the budget.

        Args:
            spent: what was charged before.
            charge: what each of the sums is charged.
            sums: how many there are.

        Raises:
            PrivacySpentError: naming what is spent.
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
        """Refuse a cohort that is too small.

        Raises:
            SmallCohortError: naming its size.
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
        """Refuse parameters that protect too little in such a round, or cost too much.

        Args:
            parameters: the parameters.
            queries: how many queries the round has.

        Raises:
            RefusalError: naming what.
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
        """Refuse as many sums about one update as would tell of it together."""
        needed = honest_needed(queries, self.honest_per_query)
        if parameters.honest < needed:
            lost = f"{parameters.num_colluders} colluders and {parameters.num_dropouts} drop-outs"
            msg = (
                f"{queries} sums about the same updates tell of single ones together: of "
                f"{parameters.cohort} devices with {lost} {parameters.honest} are sure to be "
                f"honest, and this device wants {needed}, so "
                f"{parameters.cohort - parameters.honest + needed} devices with as many of those, "
                "or one sum"
            )
            raise TooFewHonestError(msg)

    def check_query(self, v: Floats32, radius: Radius, last_nu: float) -> None:
        """Refuse a point and a radius by which a device could be singled out.

        Args:
            v: the point, empty for zero.
            radius: the radius, or the radii of blocks.
            last_nu: the one radius of the last sum that the device was in; 0 for none.

        Raises:
            SmallRadiusError, ChosenQueryError: naming them.
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
    """A factor that is as large but for the last digits of computed radii."""
    return factor * (1 + LAST_DIGITS)
