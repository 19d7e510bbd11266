"""The cohort as the server sees it: the keys of its devices, and what they deal to each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rfa.secagg.errors import WrongDimensionError
from rfa.secagg.messages.round import DeviceKeys, Roster, ShareKeys
from rfa.secagg.security.cohort import Cohort
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.rules import Members


@dataclass(frozen=True)
class Table:
    """What the server knows of the cohort when its masked sums begin, by position.

    Attributes:
        cohort: the cohort.
        keys: the public keys of its members.
        deals: the sealed shares and commitments of those who dealt.
    """

    cohort: Cohort
    keys: list[DeviceKeys]
    deals: dict[int, ShareKeys]

    @property
    def names(self) -> list[int]:
        """The device at each position."""
        return [keys.device for keys in self.keys]

    def devices(self, members: Members) -> list[int]:
        """The devices at some positions, in the order of these."""
        return [self.keys[position].device for position in sorted(members)]

    def rosters(self) -> Iterator[tuple[int, bytes]]:
        """The roster for each device: keys of its neighbors, or of all if it trusts nobody."""
        cohort, opening = self.cohort, self.cohort.opening
        everyone = opening.server_model == ServerModel.MALICIOUS
        numbers = cohort.parameters.numbers
        for position, addressee in enumerate(self.keys):
            wanted = range(len(self.keys)) if everyone else sorted(cohort.neighbors(position))
            keys = tuple(self.keys[other] for other in wanted)
            roster = Roster(opening.session, numbers, cohort.nonce, cohort.leaves, keys)
            yield addressee.device, roster.encode()

    def take_deal(self, position: int, deal: ShareKeys) -> None:
        """Take what a device deals.

        Raises:
            WrongDimensionError: if it is not a commitment a masked sum, and for each neighbor a
                sealed pair of shares a masked sum.
        """
        masked_sums, degree = self.cohort.opening.masked_sums, self.cohort.parameters.degree
        if len(deal.commitments) != masked_sums or len(deal.sealed) != masked_sums * degree:
            wanted = f"{masked_sums} commitments and {masked_sums * degree} shares"
            dealt = f"{len(deal.commitments)} and {len(deal.sealed)}"
            msg = f"device {self.keys[position].device} dealt {dealt} instead of {wanted}"
            raise WrongDimensionError(msg)
        self.deals[position] = deal
