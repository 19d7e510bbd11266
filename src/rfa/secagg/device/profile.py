"""What a device is, in all rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from rfa._checks import check_count
from rfa.secagg.errors import ParameterError, SignatureError
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.parameters import insist
from rfa.secagg.security.policy import Policy


@dataclass(frozen=True)
class Identity:
    """A device's Ed25519 identity, and those of all devices, known before.

    Attributes:
        secret: its own, 32 bytes.
        known: the public ones, by device.
    """

    secret: bytes = field(repr=False)
    known: Identities

    def __post_init__(self) -> None:
        """Refuse a list in which one identity stands for two devices."""
        if len(set(self.known.values())) < len(self.known):
            msg = "two devices have the same public identity"
            raise SignatureError(msg)


@dataclass(frozen=True)
class Profile:
    """What a device is, in all rounds.

    Attributes:
        device: its number.
        policy: what it insists on; demands that are left open become numbers here, for a malicious
            server by the identities that the device knows (`Policy.settled`).
        identity: its identity, where the server is malicious.
    """

    device: int
    policy: Policy = field(default_factory=Policy)
    identity: Identity | None = None

    def __post_init__(self) -> None:
        """Refuse what is no number of a device, and settle the policy."""
        insist(check_count, "the number of a device", self.device, least=0)
        if self.device >= 1 << 64:
            msg = f"the number of a device must be below 2^64, not {self.device}"
            raise ParameterError(msg)
        known = len(self.identity.known) if self.identity else 0
        object.__setattr__(self, "policy", self.policy.settled(known))
