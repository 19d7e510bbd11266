"""What to ask for before a federation is built: devices a round, thresholds, bytes, drop-outs.

>>> found = plan(PlanRequest(rho=0.1, rounds=100, population=1000, dim=1_000_000))
>>> found.theorem, found.exact, found.devices
(96, 34, 49)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rfa._checks import check_count, check_number
from rfa.aggregators import RFA, Layout, SumAggregator
from rfa.aggregators.registry import build_private
from rfa.errors import InvalidValueError
from rfa.secagg.errors import ParameterError
from rfa.secagg.security.parameters import (
    HONEST_PER_QUERY,
    MAX_MASKED_SUMS,
    Parameters,
    ServerModel,
    honest_needed,
)
from rfa.secagg.security.terms import Terms
from rfa.theory import (
    c_theta,
    devices_needed,
    devices_needed_exactly,
    holds_with,
    largest_certificate,
    largest_share,
)

if TYPE_CHECKING:
    from rfa.secagg.messages.sizes import Traffic


@dataclass(frozen=True)
class PlanRequest:
    """What is known of a federation, and wanted of it.

    Attributes:
        rho: the fraction of the devices that may be corrupted.
        rounds: the rounds T.
        confidence: with what probability no round may have more corrupted devices than it bears.
        theta: the fraction of corrupted devices that a round must withstand; halfway between rho
            and 1/2 by default.
        population: the devices in all.
        devices: the devices a round; by default what the exact count asks for, and the secure sum.
        dim: the parameters of the model.
        aggregator: a private aggregator, or a text such as "rfa:budget=3".
        metrics: numbers that are summed beside the update: on Flower two for each metric, which has
            its weight behind it.
        nu_share: the smoothing radius, as a share of the typical distance of updates.
        terms: whom the secure sum is to withstand.
    """

    rho: float = 0.1
    rounds: int = 100
    confidence: float = 0.95
    theta: float | None = None
    population: int = 1000
    devices: int = 0
    dim: int = 1_000_000
    aggregator: SumAggregator[Any] | str = field(default_factory=RFA)
    metrics: int = 2
    nu_share: float = 0.5
    terms: Terms = field(default_factory=Terms)

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        for name in ("rounds", "population", "dim"):
            check_count(name, getattr(self, name))
        for name in ("devices", "metrics"):
            check_count(name, getattr(self, name), least=0)
        check_number("nu_share", self.nu_share, positive=True)
        if not 0 <= self.rho < 1 / 2:
            msg = f"rho must be from 0 to below 1/2, not {self.rho}: no method bears more"
            raise InvalidValueError(msg)
        if not 0 < self.confidence < 1:
            msg = f"confidence must be between 0 and 1, not {self.confidence}"
            raise InvalidValueError(msg)
        if self.devices > self.population:
            msg = f"{self.devices} devices a round of {self.population}: give at most so many"
            raise InvalidValueError(msg)
        if 0 < self.devices < self.min_devices and self.layout.parts > 1:
            msg = (
                f"{self.devices} devices a round make no {self.layout.parts} parts: "
                f"{describe_sums(self.layout)} take {self.min_devices} or more"
            )
            raise InvalidValueError(msg)
        check_fit(build_private(self.aggregator), self.terms, devices=self.devices or None)

    @property
    def layout(self) -> Layout:
        """How the aggregator asks a cohort."""
        return build_private(self.aggregator).layout(self.devices or self.population)

    @property
    def min_devices(self) -> int:
        """The fewest devices a round that have a secure sum in each part."""
        return self.layout.parts * self.terms.smallest(self.layout.queries)


def make_terms(
    colluder_fraction: float,
    max_dropout_fraction: float,
    server_model: str,
    honest_per_query: int = HONEST_PER_QUERY,
) -> Terms:
    """Terms in the words of the command line, with a quarter of honest devices or what is left."""
    left = 1 - colluder_fraction - max_dropout_fraction
    return Terms(
        colluder_fraction,
        max_dropout_fraction,
        max(0.0, min(0.25, left)),
        ServerModel[server_model.upper().replace("-", "_")],
        honest_per_query=honest_per_query,
    )


def check_fit(
    aggregator: SumAggregator[Any],
    terms: Terms,
    *,
    devices: int | None = None,
    max_share: float = 0.0,
    max_queries: int = MAX_MASKED_SUMS,
) -> None:
    """Check that secure sums under some terms are enough for an aggregator, and promise something.

    Args:
        aggregator: the aggregator.
        terms: whom the secure sum must withstand.
        devices: the devices a round, where they are known.
        max_share: the largest share of a step that a device may have; 0 for any.
        max_queries: the most queries that devices answer in a round.

    Raises:
        InvalidValueError: naming what does not fit, and what would.
    """
    aggregator.check_secure()
    layout = aggregator.layout(devices or terms.smallest())
    masked_sums = layout.queries * (2 if max_share else 1)
    if terms.server_model == ServerModel.MALICIOUS and layout.queries > 1:
        msg = "the protection from a malicious server holds for one query a device, not for "
        msg += f"{layout.queries}: take rfa-one-step, or RFA in sub-cohorts"
        raise InvalidValueError(msg)
    if layout.queries > max_queries:
        msg = f"budget={layout.queries}: devices answer at most {max_queries} queries a round"
        raise InvalidValueError(msg)
    if masked_sums > MAX_MASKED_SUMS:
        msg = f"{layout.queries} queries take {masked_sums} secure sums a round, more than "
        raise InvalidValueError(msg + f"{MAX_MASKED_SUMS}: give a smaller budget")
    if devices is None:
        return
    if layout.parts > devices:
        msg = f"{devices} devices a round make no {layout.parts} parts: give fewer parts"
        raise InvalidValueError(msg)
    together = devices // layout.parts
    try:
        terms.parameters(together, layout.queries)
    except ParameterError as error:
        if layout.parts == 1:
            raise
        msg = f"in each of {layout.parts} parts: {error}"
        raise InvalidValueError(msg) from None
    if 0 < max_share < 1 / together:
        least = math.ceil(1000 / together) / 1000
        msg = f"max_share={max_share} cannot hold for {together} devices: give {least} or more"
        raise InvalidValueError(msg)


@dataclass(frozen=True)
class FederationPlan:
    """What follows from a request.

    Attributes:
        theta: the share of corrupted devices that a round bears.
        c_theta: by what the error grows with it.
        theorem: the devices a round that the theorem asks for.
        exact: the devices a round that the law of the draw asks for.
        devices: the devices a round that the rest is about.
        holds: with what probability all rounds hold at most theta corrupted devices.
        parts: the parts of a round's devices, each with sums of its own; the theorem knows of one.
        part_holds: with what probability a part holds at most theta corrupted devices.
        liars: how many devices that lie inside of a sum a round bears.
        parameters: those of a part's secure sum: cohort, neighbors, threshold, drop-outs.
        honest_needed: the honest devices that must be in its sums, lest these tell of single ones.
        traffic: bytes of a device in a round, and exchanges.
        fedavg: bytes up of a device in a round of FedAvg in the clear.
        share: a device's largest share of a step, where all updates are equally far away.
        certificate: what the certificate proves of it, without knowing that they are, and with the
            corrupted ones far away; for devices of equal weight, as the next.
        certificate_most: what it proves at most, where half of a part's devices are no farther than
            the typical distance.
    """

    theta: float
    c_theta: float
    theorem: int
    exact: int
    devices: int
    holds: float
    parts: int
    part_holds: float
    liars: int
    parameters: Parameters
    honest_needed: int
    traffic: Traffic
    fedavg: int
    share: float
    certificate: float
    certificate_most: float

    def report(self) -> dict[str, Any]:
        """As plain values."""
        values = dataclasses.asdict(self)
        values["parameters"]["server_model"] = self.parameters.server_model.label
        values["parameters"]["survivors"] = self.parameters.survivors
        values["parameters"]["honest"] = self.parameters.honest
        return values


def plan(request: PlanRequest) -> FederationPlan:
    """What a request takes.

    Raises:
        ValueError: if it cannot be had; the message says what to change.
    """
    delta = 1 - request.confidence
    theta = (request.rho + 1 / 2) / 2 if request.theta is None else request.theta
    theorem = devices_needed(request.rho, theta, request.rounds, delta)
    exact = devices_needed_exactly(request.rho, theta, request.rounds, delta, request.population)
    m = _devices(request, exact)
    part, queries = m // request.layout.parts, request.layout.queries
    return FederationPlan(
        theta=theta,
        c_theta=c_theta(theta),
        theorem=theorem,
        exact=exact,
        devices=m,
        holds=holds_with(request.rho, theta, m, request.population) ** request.rounds,
        parts=request.layout.parts,
        part_holds=holds_with(request.rho, theta, part, request.population),
        liars=0 if request.layout.sequential else (request.layout.parts - 1) // 2,
        parameters=request.terms.parameters(part, queries),
        honest_needed=honest_needed(queries, request.terms.honest_per_query),
        traffic=_traffic(request, m),
        fedavg=4 * request.dim,
        share=largest_share(part, 1.0, 1.0),
        certificate=_certificate(request, part),
        certificate_most=largest_certificate(math.ceil(part / 2), 1 / request.nu_share),
    )


def _devices(request: PlanRequest, exact: int) -> int:
    """The devices a round: as many as the draw asks for, and the secure sums."""
    m = request.devices or max(exact, request.min_devices)
    if m > request.population:
        msg = f"{request.population} devices are too few: {describe_sums(request.layout)} take {m}"
        msg += "; give more devices, or fewer parts"
        if request.layout.queries > 1:
            msg += "; or take rfa-one-step or sub-cohorts, which ask each device once"
        raise InvalidValueError(msg)
    return m


def describe_sums(layout: Layout) -> str:
    """What a round asks of devices, in words."""
    count = layout.queries
    sums = "one secure sum" if count == 1 else f"{count} secure sums about the same updates"
    return sums if layout.parts == 1 else f"{sums} in each of {layout.parts} parts"


def _traffic(request: PlanRequest, m: int) -> Traffic:
    """Of a device in the largest part, and not in the first of sub-cohorts, which starts at 0."""
    from rfa.secagg.messages.sizes import traffic  # noqa: PLC0415 settings check plans without

    statistics = build_private(request.aggregator).statistics
    return traffic(
        request.terms.parameters(math.ceil(m / request.layout.parts)),
        queries=request.layout.queries,
        dim=request.dim,
        metrics=request.metrics,
        statistics=statistics,
        from_zero=not request.layout.sequential,
    )


def _certificate(request: PlanRequest, part: int) -> float:
    """`Sum.certificate` where honest devices have the same mass, and corrupted ones hardly any."""
    honest = max(math.ceil(part / 2), math.floor((1 - request.rho) * part))
    return min(honest**-0.5, largest_certificate(honest, 1 / request.nu_share))
