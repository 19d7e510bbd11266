"""What to ask for before a federation is built: devices a round, thresholds, bytes, drop-outs.

>>> found = plan(Wish(rho=0.1, rounds=100, population=1000, dim=1_000_000))
>>> found.theorem, found.exact, found.devices
(96, 34, 34)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from rfa.checks import check_count, check_number
from rfa.secagg.parameters import Parameters, Terms
from rfa.secagg.sizes import Traffic, traffic
from rfa.theory import c_theta, devices_needed, devices_needed_exactly, holds_with, largest_share

MIB = 1 << 20


@dataclass(frozen=True)
class Wish:
    """What is known of a federation, and wanted of it.

    Attributes:
        rho: the share of devices that may be corrupted.
        rounds: the rounds T.
        confidence: with what probability no round may have more corrupted devices than it bears.
        theta: the share of corrupted devices that a round is to bear; amid rho and 1/2 by default.
        population: the devices in all.
        devices: the devices a round; by default what the exact count asks for, and the secure sum.
        dim: the parameters of the model.
        budget: secure sums a round.
        metrics: numbers that are summed beside the update.
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
    budget: int = 3
    metrics: int = 1
    nu_share: float = 0.5
    terms: Terms = field(default_factory=Terms)

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        for name in ("rounds", "population", "dim", "budget"):
            check_count(name, getattr(self, name))
        for name in ("devices", "metrics"):
            check_count(name, getattr(self, name), least=0)
        check_number("nu_share", self.nu_share, positive=True)
        if not 0 <= self.rho < 1 / 2:
            msg = f"rho must be from 0 to below 1/2, not {self.rho}: no method bears more"
            raise ValueError(msg)
        if not 0 < self.confidence < 1:
            msg = f"confidence must be between 0 and 1, not {self.confidence}"
            raise ValueError(msg)
        if self.devices > self.population:
            msg = f"{self.devices} devices a round of {self.population}: give at most so many"
            raise ValueError(msg)


@dataclass(frozen=True)
class Plan:
    """What follows from a wish.

    Attributes:
        theta: the share of corrupted devices that a round bears.
        c_theta: by what the error grows with it.
        theorem: the devices a round that the theorem asks for.
        exact: the devices a round that the law of the draw asks for.
        devices: the devices a round that the rest is about.
        holds: with what probability all rounds hold at most theta corrupted devices.
        parameters: the secure sum's: neighbours, threshold, drop-outs.
        traffic: bytes of a device in a round, and exchanges.
        fedavg: bytes up of a device in a round of FedAvg in the clear.
        share: a device's largest share of a step, where all updates are equally far away.
        certificate: what the certificate proves of it, without knowing that they are.
    """

    theta: float
    c_theta: float
    theorem: int
    exact: int
    devices: int
    holds: float
    parameters: Parameters
    traffic: Traffic
    fedavg: int
    share: float
    certificate: float

    def report(self) -> dict[str, Any]:
        """As plain values."""
        values = dataclasses.asdict(self)
        values["parameters"]["trust"] = self.parameters.trust.name.lower()
        values["parameters"]["survivors"] = self.parameters.survivors
        return values


def plan(wish: Wish) -> Plan:
    """What a wish takes.

    Raises:
        ValueError: if it cannot be had; the message says what to change.
    """
    delta = 1 - wish.confidence
    theta = (wish.rho + 1 / 2) / 2 if wish.theta is None else wish.theta
    theorem = devices_needed(wish.rho, theta, wish.rounds, delta)
    exact = devices_needed_exactly(wish.rho, theta, wish.rounds, delta, wish.population)
    m = wish.devices or max(exact, wish.terms.smallest())
    if m > wish.population:
        msg = f"{wish.population} devices are too few: a secure sum takes {m} under {wish.terms}"
        raise ValueError(msg)
    parameters = wish.terms.parameters(m)
    cost = traffic(parameters, steps=wish.budget, dim=wish.dim, metrics=wish.metrics)
    mass = min(1.0, wish.nu_share)
    return Plan(
        theta=theta,
        c_theta=c_theta(theta),
        theorem=theorem,
        exact=exact,
        devices=m,
        holds=holds_with(wish.rho, theta, m, wish.population) ** wish.rounds,
        parameters=parameters,
        traffic=cost,
        fedavg=4 * wish.dim,
        share=largest_share(m, 1.0, 1.0),
        certificate=min(1.0, 1 / (m * mass), m**-0.5),
    )


def table(wish: Wish, found: Plan) -> list[tuple[str, str]]:
    """A plan in words, line by line."""
    p, cost = found.parameters, found.traffic
    return [
        (
            "devices a round",
            f"{found.devices} of {wish.population} "
            f"(the theorem asks for {found.theorem}, the draw for {found.exact})",
        ),
        (
            "corrupted devices",
            f"{wish.rho:.0%} of all; a round bears {found.theta:.1%}: "
            f"{found.holds:.1%} that all {wish.rounds} rounds hold no more",
        ),
        ("the error grows by", f"C_theta = {found.c_theta:.1f}"),
        ("colluders, drop-outs", f"{p.colluders} and {p.dropouts} are withstood"),
        ("neighbours, threshold", f"k = {p.degree}, t = {p.threshold} ({p.trust.name.lower()})"),
        ("least in a sum", f"{p.survivors} devices, {p.honest} of them honest"),
        ("exchanges a round", f"{1 + cost.exchanges}, with the one for training"),
        ("up, per device", f"{_size(cost.up)} ({cost.up / found.fedavg:.2f} times FedAvg's)"),
        ("down, per device", f"{_size(cost.down)}, beside the model"),
        ("largest share", f"{found.share:.1%} of a step, if all updates are equally far away"),
        ("certificate", f"at most {found.certificate:.1%} is proven then"),
    ]


def _size(count: int) -> str:
    return f"{count / MIB:.2f} MiB" if count >= MIB else f"{count / 1024:.1f} KiB"
