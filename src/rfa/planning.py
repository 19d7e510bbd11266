"""What to ask for before a federation is built: devices a round, thresholds, bytes, drop-outs.

>>> found = plan(Wish(rho=0.1, rounds=100, population=1000, dim=1_000_000))
>>> found.theorem, found.exact, found.devices
(96, 34, 34)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from rfa._checks import check_count, check_number
from rfa.errors import InvalidValueError
from rfa.lab.settings.settings import WEISZFELD
from rfa.secagg.messages.sizes import Traffic, traffic
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.security.terms import Terms
from rfa.theory import (
    c_theta,
    devices_needed,
    devices_needed_exactly,
    holds_with,
    largest_certificate,
    largest_share,
)

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
        weiszfeld: how they are spent, as in the settings of the lab: each by the whole cohort, or
            by sub-cohorts of it.
        groups: groups of a cohort, each with sums of its own; 0 for one.
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
    weiszfeld: str = "plain"
    groups: int = 0
    metrics: int = 1
    nu_share: float = 0.5
    terms: Terms = field(default_factory=Terms)

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        for name in ("rounds", "population", "dim", "budget"):
            check_count(name, getattr(self, name))
        for name in ("devices", "metrics", "groups"):
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
        self._check_parts()

    def _check_parts(self) -> None:
        if self.weiszfeld not in WEISZFELD:
            msg = f"weiszfeld must be one of {', '.join(WEISZFELD)}, not {self.weiszfeld!r}"
            raise InvalidValueError(msg)
        if self.groups > 1 and self.weiszfeld == "sub-cohorts":
            msg = "a cohort is asked in groups or in sub-cohorts, not both: give groups=0"
            raise InvalidValueError(msg)
        least = self.parts * self.terms.smallest() if self.parts > 1 else 0
        if 0 < self.devices < least:
            msg = (
                f"{self.devices} devices a round make no {self.parts} parts with a secure sum "
                f"each: give devices-per-round={least} or more, or fewer parts"
            )
            raise InvalidValueError(msg)
        if self.terms.server_model == ServerModel.MALICIOUS and self.questions > 1:
            msg = (
                f"trust=lying promises nothing for {self.questions} questions a round: "
                "give budget=1, or weiszfeld=sub-cohorts"
            )
            raise InvalidValueError(msg)

    @property
    def parts(self) -> int:
        """Into how many disjoint parts, each with sums of its own, a cohort is split."""
        return self.budget if self.weiszfeld == "sub-cohorts" else max(1, self.groups)

    @property
    def questions(self) -> int:
        """How many sums a device takes part in, in a round."""
        return 1 if self.weiszfeld == "sub-cohorts" else self.budget


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
        parts: the parts of a round's devices, each with sums of its own; the theorem knows of one.
        part_holds: with what probability a part holds at most theta corrupted devices.
        liars: how many devices that lie inside of a sum a round bears.
        parameters: those of a part's secure sum: cohort, neighbors, threshold, drop-outs.
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
    m = _devices(wish, exact)
    part = m // wish.parts
    return Plan(
        theta=theta,
        c_theta=c_theta(theta),
        theorem=theorem,
        exact=exact,
        devices=m,
        holds=holds_with(wish.rho, theta, m, wish.population) ** wish.rounds,
        parts=wish.parts,
        part_holds=holds_with(wish.rho, theta, part, wish.population),
        liars=(max(1, wish.groups) - 1) // 2,
        parameters=wish.terms.parameters(part),
        traffic=_traffic(wish, m),
        fedavg=4 * wish.dim,
        share=largest_share(part, 1.0, 1.0),
        certificate=_certificate(wish, part),
        certificate_most=largest_certificate(math.ceil(part / 2), 1 / wish.nu_share),
    )


def _devices(wish: Wish, exact: int) -> int:
    """The devices a round: as many as the draw asks for, and the secure sums."""
    least = wish.parts * wish.terms.smallest()
    m = wish.devices or max(exact, least)
    if m > wish.population:
        sums = "a secure sum takes" if wish.parts == 1 else f"{wish.parts} secure sums take"
        msg = (
            f"{wish.population} devices are too few: {sums} {m}; give more devices, or fewer parts"
        )
        raise InvalidValueError(msg)
    return m


def _traffic(wish: Wish, m: int) -> Traffic:
    """Of a device in the largest part, and not in the first of sub-cohorts, which starts at 0."""
    return traffic(
        wish.terms.parameters(math.ceil(m / wish.parts)),
        queries=wish.questions,
        dim=wish.dim,
        metrics=wish.metrics,
        from_zero=wish.parts == 1 or wish.weiszfeld != "sub-cohorts",
    )


def _certificate(wish: Wish, part: int) -> float:
    """`Sum.certificate` where honest devices have the same mass, and corrupted ones hardly any."""
    honest = max(math.ceil(part / 2), math.floor((1 - wish.rho) * part))
    return min(honest**-0.5, largest_certificate(honest, 1 / wish.nu_share))


def table(wish: Wish, found: Plan) -> list[tuple[str, str]]:
    """A plan in words, line by line."""
    p, cost = found.parameters, found.traffic
    each = " in each part" if found.parts > 1 else ""
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
        *_part_lines(found),
        ("colluders, drop-outs", f"{p.num_colluders} and {p.num_dropouts} are withstood{each}"),
        ("neighbors, threshold", f"k = {p.degree}, t = {p.threshold} ({p.server_model.label})"),
        ("least in a sum", f"{p.survivors} devices, {p.min_honest} of them honest"),
        ("exchanges, per device", f"{1 + cost.exchanges} a round, with the one for training"),
        ("up, per device", f"{_size(cost.up)} ({cost.up / found.fedavg:.2f} times FedAvg's)"),
        ("down, per device", f"{_size(cost.down)}, beside the model"),
        ("largest share", f"{found.share:.1%} of a step, if all updates are equally far away"),
        (
            "certificate",
            f"about {found.certificate:.1%} is proven, {found.certificate_most:.1%} at most "
            "where half are no farther than is typical",
        ),
    ]


def _part_lines(found: Plan) -> list[tuple[str, str]]:
    if found.parts == 1:
        return []
    return [
        (
            "sums of their own",
            f"{found.parts} parts of {found.parameters.cohort} devices or one more; "
            f"{found.part_holds:.1%} that one holds at most {found.theta:.1%} corrupted in a round",
        ),
        ("liars inside of a sum", f"{found.liars} are withstood"),
    ]


def _size(count: int) -> str:
    return f"{count / MIB:.2f} MiB" if count >= MIB else f"{count / 1024:.1f} KiB"
