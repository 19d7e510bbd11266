"""The plan of a federation: devices per round, thresholds, bytes, drop-outs, noise."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rfa._checks import check_count, check_number
from rfa.aggregators import RFA, Groups, Layout, OneStepRFA, SumAggregator
from rfa.aggregators.partition import Around
from rfa.aggregators.registry import build_private
from rfa.errors import InvalidValueError
from rfa.planning.fit import check_fit, check_votes, describe_sums
from rfa.planning.noise import (
    MASS,
    NoisePlan,
    NoiseRequest,
    check_draw,
    devices_enough,
    plan_noise,
)
from rfa.privacy import Budget
from rfa.privacy.budget import DELTA
from rfa.radii import count_blocks
from rfa.secagg.security.parameters import (
    LARGEST_COHORT,
    Parameters,
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
    """A request for a plan: the federation, and what it must tolerate.

    Attributes:
        rho: the fraction of the devices that may be corrupted.
        rounds: the number T of rounds.
        confidence: the probability that no round has more corrupted devices than it tolerates.
        theta: the fraction of corrupted devices that a round must tolerate; by default halfway
            between rho and 1/2.
        devices: the number of devices in the population.
        devices_per_round: the number of devices that take part in a round; 0 for as many as the
            draw and the sums need.
        dim: the number of parameters of the model.
        aggregator: a private aggregator, or a text such as "rfa:budget=3".
        metrics: how many numbers are summed besides the update. Flower needs two for each metric,
            because its weight is summed, too. The default is two, and 0 with noise.
        nu_share: the smoothing radius as a fraction of the typical distance of updates.
        terms: what the secure sum tolerates.
        epsilon: the privacy budget of a device for all sums together; None for sums without noise.
        delta: the delta of (epsilon, delta)-differential privacy.
    """

    rho: float = 0.1
    rounds: int = 100
    confidence: float = 0.95
    theta: float | None = None
    devices: int = 1000
    devices_per_round: int = 0
    dim: int = 1_000_000
    aggregator: SumAggregator[Any] | str = field(default_factory=RFA)
    metrics: int | None = None
    nu_share: float = 0.5
    terms: Terms = field(default_factory=Terms)
    epsilon: float | None = None
    delta: float = DELTA

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("rounds", "devices", "dim"):
            check_count(name, getattr(self, name))
        check_count("devices_per_round", self.devices_per_round, least=0)
        check_count("metrics", self.num_metrics, least=0)
        check_number("nu_share", self.nu_share, positive=True)
        if not 0 <= self.rho < 1 / 2:
            msg = f"rho must be from 0 to below 1/2, not {self.rho}: no method tolerates more"
            raise InvalidValueError(msg)
        if not 0 < self.confidence < 1:
            msg = f"confidence must be between 0 and 1, not {self.confidence}"
            raise InvalidValueError(msg)
        check_draw(self.devices, self.devices_per_round)
        if 0 < self.devices_per_round < self.min_devices and self.layout.parts > 1:
            msg = f"{self.devices_per_round} devices per round cannot form {self.layout.parts} "
            msg += f"parts: {describe_sums(self.layout)} take {self.min_devices} or more"
            raise InvalidValueError(msg)
        check_fit(
            build_private(self.aggregator), self.terms, devices=self.devices_per_round or None
        )
        if self.budget:
            build_private(self.aggregator).check_noise()
        elif self.delta != DELTA:
            msg = f"delta={self.delta:g} needs epsilon: give epsilon, too"
            raise InvalidValueError(msg)
        if self.budget and self.num_metrics:
            msg = f"metrics={self.num_metrics} with noise: their sums are exact, and not private; "
            raise InvalidValueError(msg + "give metrics=0")

    @functools.cached_property
    def budget(self) -> Budget | None:
        """The privacy budget of a device; None without noise."""
        return None if self.epsilon is None else Budget(self.epsilon, self.delta)

    @property
    def num_metrics(self) -> int:
        """How many numbers are summed besides the update."""
        usual = 2 if self.epsilon is None else 0
        return usual if self.metrics is None else self.metrics

    @property
    def statistics(self) -> frozenset[str]:
        """The totals that devices send; with noise, neither squares nor weights."""
        read = build_private(self.aggregator).statistics
        return read if self.epsilon is None else read - {"squares", "weight"}

    @property
    def layout(self) -> Layout:
        """How the aggregator queries a cohort."""
        return build_private(self.aggregator).layout(self.devices_per_round or self.devices)

    @property
    def min_devices(self) -> int:
        """The smallest number of devices per round for a secure sum in each part."""
        return self.layout.parts * self.terms.smallest(self.layout.queries)


@dataclass(frozen=True)
class FederationPlan:
    """A plan for a request.

    Attributes:
        theta: the fraction of corrupted devices that hardly any round exceeds.
        c_theta: the factor by which the error grows with it, where the paper proves that a round
            tolerates it: for RFA and OneStepRFA, also in parts. None for other aggregators; a mean
            tolerates no corrupted device.
        theorem: the number of devices per round that the theorem requires.
        exact: the number of devices per round from the exact distribution of the draw.
        devices_per_round: the number of devices per round of this plan.
        holds: the probability that all rounds have at most theta corrupted devices.
        parts: the number of parts of a cohort, each with separate sums; the theorem assumes one.
        part_holds: the probability that a part has at most theta corrupted devices.
        liars: how many devices that lie inside a sum a round tolerates.
        parameters: the parameters of the secure sum of a part: cohort, neighbors, threshold,
            drop-outs.
        honest_needed: how many honest devices its sums need so that they reveal no single one.
        traffic: bytes of a device in a round, and exchanges, that of training included.
        fedavg: bytes that a device sends in a round of FedAvg in the clear.
        share: the largest share of a device in a step, if all updates are equally far away.
        certificate: the proven bound on that share, without knowing that they are, and with the
            corrupted ones far away; for devices of equal weight, like the next. In a mean it is the
            share itself. None if there is no proof: from sums with noise, and for your own
            aggregator unless it has a `certificate`.
        certificate_most: its largest value if half of the devices of a part are no farther than
            the typical distance.
        noise: the noise and its effects; None for sums without noise.
    """

    theta: float
    c_theta: float | None
    theorem: int
    exact: int
    devices_per_round: int
    holds: float
    parts: int
    part_holds: float
    liars: int
    parameters: Parameters
    honest_needed: int
    traffic: Traffic
    fedavg: int
    share: float
    certificate: float | None
    certificate_most: float | None
    noise: NoisePlan | None = None

    def report(self) -> dict[str, Any]:
        """As plain values."""
        values = dataclasses.asdict(self)
        values["parameters"]["server_model"] = self.parameters.server_model.label
        values["parameters"]["survivors"] = self.parameters.survivors
        values["parameters"]["honest"] = self.parameters.honest
        if self.noise:
            values["noise"]["verdict"] = self.noise.verdict
        return values


def plan(request: PlanRequest) -> FederationPlan:
    """What a request takes.

    Raises:
        ValueError: if it cannot be had; the message says what to change.
    """
    delta = 1 - request.confidence
    theta = (request.rho + 1 / 2) / 2 if request.theta is None else request.theta
    theorem = devices_needed(request.rho, theta, request.rounds, delta)
    exact = devices_needed_exactly(request.rho, theta, request.rounds, delta, request.devices)
    m = _devices(request, exact)
    aggregator = build_private(request.aggregator)
    inner = _innermost(aggregator)
    check_votes(aggregator, m)
    noise = _noise_request(request, m)
    part, queries = m // request.layout.parts, request.layout.queries
    proven = request.budget is None and _proves_a_share(inner)
    return FederationPlan(
        theta=theta,
        c_theta=c_theta(theta) if isinstance(inner, RFA | OneStepRFA) else None,
        theorem=theorem,
        exact=exact,
        devices_per_round=m,
        holds=holds_with(request.rho, theta, m, request.devices) ** request.rounds,
        parts=request.layout.parts,
        part_holds=holds_with(request.rho, theta, part, request.devices),
        liars=(request.layout.parts - 1) // 2 if isinstance(aggregator, Groups) else 0,
        parameters=request.terms.parameters(part, queries),
        honest_needed=honest_needed(queries, request.terms.honest_per_query),
        traffic=_traffic(request, m),
        fedavg=4 * request.dim,
        share=largest_share(part, 1.0, 1.0),
        certificate=_certificate(request, part) if proven else None,
        certificate_most=_certificate_most(request, part) if proven else None,
        noise=plan_noise(noise) if noise else None,
    )


def _devices(request: PlanRequest, exact: int) -> int:
    """Return the number of devices per round that the draw and the secure sums need."""
    m = request.devices_per_round or max(exact, request.min_devices)
    noise = _noise_request(request, min(m, request.devices))
    if noise and not request.devices_per_round:
        most = min(request.devices, LARGEST_COHORT * request.layout.parts)
        m = max(m, devices_enough(noise) or most)
    if m > request.devices:
        msg = f"{request.devices} devices are too few: {describe_sums(request.layout)} take {m}"
        msg += "; give more devices, or fewer parts"
        if request.layout.queries > 1:
            msg += "; or take rfa-one-step or sub-cohorts, which ask each device once"
        raise InvalidValueError(msg)
    return m


def _noise_request(request: PlanRequest, m: int) -> NoiseRequest | None:
    """The question how much noise such rounds take; None without noise."""
    if request.budget is None:
        return None
    return NoiseRequest(
        request.budget,
        rounds=request.rounds,
        devices=request.devices,
        devices_per_round=m,
        dim=request.dim,
        layout=request.layout,
        terms=request.terms,
        mass="mass" in request.statistics,
        near="near" in request.statistics,
        mass_share=1.0 if _is_mean(request) else MASS,
        confidence=request.confidence,
    )


def _traffic(request: PlanRequest, m: int) -> Traffic:
    """Of a device in the largest part, and not in the first of sub-cohorts, which starts at 0.

    Messages are as long as their vector, a byte for each block, and the rest: short ones tell of
    any length.
    """
    from rfa.secagg.messages.sizes import Traffic, traffic  # noqa: PLC0415 settings check without

    block = build_private(request.aggregator).block
    blocks = count_blocks(request.dim, block) if block else 1
    one, longer, split = (
        traffic(
            request.terms.parameters(math.ceil(m / request.layout.parts)),
            queries=request.layout.queries,
            dim=dim,
            metrics=request.num_metrics,
            statistics=request.statistics,
            from_zero=not request.layout.sequential,
            fast=True,
            block=size if block else 0,
        )
        for dim, size in ((1, 1), (2, 2), (2, 1))
    )

    def total(side: str) -> int:
        short, long, more = (getattr(each, side) for each in (one, longer, split))
        return short + (request.dim - 1) * (long - short) + (blocks - 1) * (more - long)

    return Traffic(total("down"), total("up"), one.exchanges)


def _innermost(aggregator: SumAggregator[Any]) -> SumAggregator[Any]:
    """The aggregator of a part of a cohort."""
    return _innermost(aggregator.inner) if isinstance(aggregator, Around) else aggregator


def _proves_a_share(aggregator: SumAggregator[Any]) -> bool:
    """Whether an aggregator bounds the share of a device, as those of rfa do."""
    kind: type[Any] = type(aggregator)
    usual: type[Any] = SumAggregator
    return kind.certificate is not usual.certificate


def _certificate(request: PlanRequest, part: int) -> float:
    """`Sum.certificate` where honest devices have the same mass, and corrupted ones hardly any."""
    if _is_mean(request):
        return 1 / part
    honest = max(math.ceil(part / 2), math.floor((1 - request.rho) * part))
    return min(honest**-0.5, largest_certificate(honest, 1 / request.nu_share))


def _certificate_most(request: PlanRequest, part: int) -> float:
    """The largest `Sum.certificate` if half of the devices are no farther than is typical."""
    if _is_mean(request):
        return 1 / part
    return largest_certificate(math.ceil(part / 2), 1 / request.nu_share)


def _is_mean(request: PlanRequest) -> bool:
    """Whether a step divides by the weight, which then bounds all shares, and not by the mass."""
    return "mass" not in request.statistics
