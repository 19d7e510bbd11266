"""Devices and a server around one table, for the tests of the protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.errors import ParameterError
from rfa.secagg.fixed_point import Contribution, Total
from rfa.secagg.in_process import InProcess, Losses
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import MaskedInput
from rfa.secagg.oracle import SecureOracle, open_round
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.requests import Outbox
from rfa.secagg.statistics import ALL
from rfa.secagg.unmasked import UnmaskedOracle

SMALL = Terms(
    colluder_fraction=0.2, max_dropout_fraction=0.2, min_honest_fraction=0.3, honest_per_query=0
)
"""Terms that let small cohorts lose many, and answer several queries, as no device would."""
MALICIOUS = Terms(
    colluder_fraction=0.1,
    max_dropout_fraction=0.2,
    min_honest_fraction=0.3,
    server_model=ServerModel.MALICIOUS,
    honest_per_query=0,
)
LAX = Policy(max_queries=16, honest_per_query=0)
"""The policy of devices that answer several queries in a small cohort."""


@dataclass(frozen=True)
class Exactly(Terms):
    """Terms with the parameters of a test."""

    fixed: Parameters | None = None

    def parameters(self, cohort: int, queries: int = 1) -> Parameters:
        assert self.fixed is not None
        if cohort != self.fixed.cohort:
            msg = f"these are terms for {self.fixed.cohort} devices, not {cohort}"
            raise ParameterError(msg)
        return self.fixed


def exactly(parameters: Parameters) -> Exactly:
    return Exactly(server_model=parameters.server_model, honest_per_query=0, fixed=parameters)


def is_opening(request: bytes) -> bool:
    return isinstance(decode(request), OpenRound)


def drawn(seed: str) -> Callable[[int], bytes]:
    """Entropy that is the same in each run."""
    stream = hashlib.shake_256(seed.encode())
    at = 0

    def draw(size: int) -> bytes:
        nonlocal at
        at += size
        return stream.digest(at)[at - size :]

    return draw


@dataclass
class Party:
    """A round with its devices, and all that was said in it.

    Attributes:
        said: (device, request, reply) in order; the reply is None if the device refused.
    """

    opening: OpenRound
    terms: Terms
    parts: Mapping[int, Contribution | None]
    rounding: dict[int, bytes]
    identities: dict[int, bytes]
    devices: dict[int, Device]
    exchange: InProcess
    noise: dict[int, bytes] = field(default_factory=dict[int, bytes])
    said: list[tuple[int, bytes, bytes | None]] = field(
        default_factory=list[tuple[int, bytes, bytes | None]]
    )

    @property
    def known(self) -> dict[int, bytes]:
        return {device: identity_of(secret) for device, secret in self.identities.items()}

    @property
    def joined(self) -> int:
        """How many devices joined the round."""
        openings = [reply for _, request, reply in self.said if is_opening(request)]
        return sum(reply is not None for reply in openings)

    def carry(self, outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        """The exchange, written down."""
        for device, request in outbox:
            reply = None
            for _, reply in self.exchange(iter([(device, request)])):
                yield device, reply
            self.said.append((device, request, reply))

    def oracle(self) -> SecureOracle:
        return SecureOracle(self.opening, self.terms, self.parts, self.carry, self.known)

    def unmasked(self) -> UnmaskedOracle:
        return UnmaskedOracle(
            self.opening,
            self.terms,
            self.parts,
            rounding=self.rounding,
            noise=self.noise,
            lost=self.exchange.lost,
        )


def contributions(count: int, dim: int, seed: int = 0, metrics: int = 1) -> dict[int, Contribution]:
    """Updates of different lengths, with weights and metrics, under scattered numbers."""
    rng = np.random.default_rng(seed)
    lengths = rng.uniform(0.1, 4, count)
    return {
        11 * index + 5: Contribution(
            (lengths[index] * rng.standard_normal(dim)).astype(np.float32),
            float(rng.uniform(0.05, 1)),
            tuple(float(value) for value in rng.normal(0, 10, metrics)),
        )
        for index in range(count)
    }


def equals(count: int, dim: int, seed: int = 0) -> dict[int, Contribution]:
    """The same updates, of equal weights and without metrics, as rounds with noise take them."""
    return {
        device: Contribution(part.update, equal_weights=True)
        for device, part in contributions(count, dim, seed, metrics=0).items()
    }


def party(
    parts: Mapping[int, Contribution | None] | int,
    terms: Terms = SMALL,
    *,
    queries: int = 1,
    max_share: float = 0.0,
    lost: Losses | None = None,
    policy: Policy | None = None,
    number: int = 1,
    noise: float = 0.0,
    fast: bool = False,
    block: int = 0,
) -> Party:
    """A round that is about to begin."""
    if isinstance(parts, int):
        parts = equals(parts, 3) if noise else contributions(parts, 3)
    some = next(part for part in parts.values() if part)
    dim, metrics = len(some.update), len(some.metrics)
    opening = open_round(
        number,
        terms,
        queries=queries,
        dim=dim,
        metrics=metrics,
        max_share=max_share,
        equal_weights=noise > 0 or bool(block and some.equal_weights),
        noise=noise,
        fast=fast,
        block=block,
        statistics={"weight"} if block else ALL,
    )
    rounding = {device: hashlib.sha256(b"%d" % device).digest() for device in parts}
    noises = {
        device: hashlib.sha256(b"noise %d %d" % (number, device)).digest() for device in parts
    }
    secrets = {device: hashlib.sha256(b"identity %d" % device).digest() for device in parts}
    known = {device: identity_of(secret) for device, secret in secrets.items()}
    devices = {
        device: Device(
            part,
            Profile(device, policy or LAX, Identity(secrets[device], known)),
            rounding=rounding[device],
            noise=noises[device],
        )
        for device, part in parts.items()
    }
    exchange = InProcess(devices, lost or {})
    return Party(opening, terms, parts, rounding, secrets, devices, exchange, noises)


def places(queries: int, *, max_share: bool = False) -> Iterator[int]:
    """All places in a round at which a device can be lost."""
    return iter(range(2 + 3 * queries * (2 if max_share else 1)))


def masked(table: Party) -> list[tuple[int, bytes, bytes]]:
    return [
        (device, request, reply)
        for device, request, reply in table.said
        if reply is not None and isinstance(decode(reply), MaskedInput)
    ]


def same(ours: Total | None, ideal: Total | None) -> bool:
    assert ours is not None
    assert ideal is not None
    scalars = ("mass", "weight", "near", "count", "squares", "noise")
    return (
        np.array_equal(ours.sum.push, ideal.sum.push)
        and all(getattr(ours.sum, name) == getattr(ideal.sum, name) for name in scalars)
        and ours.metrics == ideal.metrics
        and ours.mass == ideal.mass
    )
