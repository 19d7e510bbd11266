"""The properties of a device that all rounds share."""

from __future__ import annotations

from dataclasses import dataclass, field

from rfa._checks import check_count, check_number
from rfa.secagg.crypto.keys import sign
from rfa.secagg.errors import ParameterError, SignatureError
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.parameters import insist
from rfa.secagg.security.policy import Policy


@dataclass(frozen=True)
class Identity:
    """A device's Ed25519 identity, and the public identities of all devices.

    Attributes:
        secret: its own secret, 32 bytes.
        known: the public identities, by device.
    """

    secret: bytes = field(repr=False)
    known: Identities

    def __post_init__(self) -> None:
        """Check that no two devices have the same identity."""
        if len(set(self.known.values())) < len(self.known):
            msg = "two devices have the same public identity"
            raise SignatureError(msg)


@dataclass(frozen=True)
class Profile:
    """The properties of a device that all rounds share.

    Attributes:
        device: its number.
        policy: its demands. Defaults become numbers here; with a malicious server they follow from
            the identities that the device knows (`Policy.settled`).
        identity: its identity; required with a malicious server.
        spent_elsewhere: the charges, in zCDP, that other ledgers have for sums that it may have
            been in. They count toward its budget.
    """

    device: int
    policy: Policy = field(default_factory=Policy)
    identity: Identity | None = None
    spent_elsewhere: float = 0.0

    def __post_init__(self) -> None:
        """Check the number of the device and its charges, and settle the policy."""
        insist(check_count, "the number of a device", self.device, least=0)
        insist(check_number, "spent_elsewhere", self.spent_elsewhere)
        if self.device >= 1 << 64:
            msg = f"the number of a device must be below 2^64, not {self.device}"
            raise ParameterError(msg)
        known = len(self.identity.known) if self.identity else 0
        object.__setattr__(self, "policy", self.policy.settled(known))

    @property
    def known(self) -> Identities | None:
        """The public identities of all devices; None without an identity."""
        return self.identity.known if self.identity else None

    def sign(self, statement: bytes) -> bytes:
        """Return the device's signature of a statement.

        Raises:
            SignatureError: if it has no identity.
        """
        if self.identity is None:
            msg = f"device {self.device} has no identity to sign with: give it one"
            raise SignatureError(msg)
        return sign(self.identity.secret, statement)
