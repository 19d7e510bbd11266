"""What a device insists on, whatever the server says."""

from __future__ import annotations

from dataclasses import dataclass

from rfa._checks import check_count, check_number
from rfa.secagg.errors import (
    SmallCohortError,
    SmallRadiusError,
    TooManyQueriesError,
    WeakTermsError,
    WrongDimensionError,
)
from rfa.secagg.messages.round import MAX_METRICS, OpenRound
from rfa.secagg.security.odds import FAILURE_BITS
from rfa.secagg.security.parameters import (
    MAX_MASKED_SUMS,
    Parameters,
    ServerModel,
    check_failure_bits,
    check_server_model,
)

MAX_QUERIES = 16
"""The most queries in a round of a server that follows the protocol."""


@dataclass(frozen=True)
class Policy:
    """A device's own demands, which no message can change.

    Attributes:
        min_cohort: the least number of devices in a round.
        min_honest: the least number of honest devices in a sum.
        num_colluders: how many colluders must be withstood, at least. A malicious server chooses
            the cohort, and can choose all of them: count them among all devices.
        max_queries: the most queries in a round. By default 16, where every v follows from the
            sums before; and 1 for a malicious server, which could choose two queries whose answers
            differ by what one device added.
        min_nu: the least radius; below it one device that sits on v would outweigh the others.
        server_model: what the server may do, at least; SEMI_HONEST accepts both.
        max_share: the most that the device's share of a query's sum may be; 1 for any.
        max_message_bytes: the most bytes of a message beside its vector.
        failure_bits: parameters by odds are accepted if the device finds that they expose it with
            a probability of at most 2^-bits; 40 bits at least, None for certain ones only.
    """

    min_cohort: int = 3
    min_honest: int = 3
    num_colluders: int = 0
    max_queries: int | None = None
    min_nu: float = 1e-6
    server_model: ServerModel = ServerModel.SEMI_HONEST
    max_share: float = 1.0
    max_message_bytes: int = 1 << 24
    failure_bits: int | None = FAILURE_BITS

    def __post_init__(self) -> None:
        """Check each demand by itself."""
        for name, least in (
            ("min_cohort", 3),
            ("min_honest", 3),
            ("num_colluders", 0),
            ("max_message_bytes", 1),
        ):
            check_count(name, getattr(self, name), least=least)
        if self.max_queries is not None:
            check_count("max_queries", self.max_queries)
        for name in ("min_nu", "max_share"):
            check_number(name, getattr(self, name), positive=True)
        check_server_model("server_model", self.server_model)
        check_failure_bits("failure_bits", self.failure_bits)

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

    def check_parameters(self, parameters: Parameters) -> None:
        """Refuse parameters that protect too little.

        Raises:
            RefusalError: naming what.
        """
        if parameters.cohort < self.min_cohort:
            msg = f"a cohort of {parameters.cohort}: this device wants at least {self.min_cohort}"
            raise SmallCohortError(msg)
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

    def check_radius(self, nu: float) -> None:
        """Refuse a radius below the floor.

        Raises:
            SmallRadiusError: naming it.
        """
        if not nu >= self.min_nu:
            msg = f"a radius nu of {nu}: this device answers from {self.min_nu} on"
            raise SmallRadiusError(msg)
