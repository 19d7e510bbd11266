"""The cohort on the server: the keys of its devices, and the shares that they deal."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rfa.secagg.crypto.graph import rank
from rfa.secagg.errors import ParameterError, TooFewDevicesError, WrongDimensionError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import (
    SEALED_SIZE,
    DeviceKeys,
    FirstSum,
    Roster,
    ShareKeys,
    SumRequest,
)
from rfa.secagg.security.cohort import Cohort, form_cohort, in_order
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.security.rules import Members
from rfa.secagg.security.terms import Terms
from rfa.secagg.transcript import leaf_of


def form_table(
    opening: OpenRound, keys: Iterable[DeviceKeys], parameters: Parameters, first: int = 0
) -> Table:
    """Return the table of the devices with these keys, in an order that nobody can choose.

    Args:
        opening: the round.
        keys: the keys of the devices.
        parameters: the parameters of a cohort of this size.
        first: the first masked sum that they deal for.
    """
    leaves = {leaf_of(opening, listed): listed for listed in keys}
    nonce = os.urandom(16)
    order = in_order(nonce, list(leaves))
    cohort = form_cohort(opening, parameters, nonce, order)
    return Table(cohort, [leaves[leaf] for leaf in order], first=first)


@dataclass(frozen=True)
class Table:
    """The server's knowledge of the cohort when its masked sums begin, by position.

    Attributes:
        cohort: the cohort.
        keys: the public keys of its members.
        deals: the sealed shares and commitments of the devices that dealt.
        first: the first masked sum that they are for.
    """

    cohort: Cohort
    keys: list[DeviceKeys]
    deals: dict[int, ShareKeys] = field(default_factory=dict[int, ShareKeys])
    first: int = 0

    @property
    def names(self) -> list[int]:
        """The device at each position."""
        return [keys.device for keys in self.keys]

    @functools.cached_property
    def positions(self) -> dict[int, int]:
        """The position of each device."""
        return {device: position for position, device in enumerate(self.names)}

    def devices(self, members: Members) -> list[int]:
        """Return the devices at some positions, in the order of these."""
        return [self.keys[position].device for position in sorted(members)]

    @property
    def everyone(self) -> Members:
        """All positions."""
        return frozenset(range(len(self.keys)))

    def rosters(self, first: SumRequest | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the roster for each device: keys of its neighbors, or of all devices.

        A malicious server must send all keys.

        Args:
            first: the first request, in a fast round.
        """
        cohort, opening = self.cohort, self.cohort.opening
        everyone = opening.server_model == ServerModel.MALICIOUS
        numbers = cohort.parameters.numbers
        for position, addressee in enumerate(self.keys):
            wanted = range(len(self.keys)) if everyone else sorted(cohort.neighbors(position))
            keys = tuple(self.keys[other] for other in wanted)
            told = opening.session, numbers, cohort.nonce, cohort.leaves, keys
            roster = (
                FirstSum(*told, first.nu, first.v, first.levels)
                if first
                else Roster(*told, self.first)
            )
            yield addressee.device, roster.encode()

    def without(self, lost: Members, first: int, terms: Terms) -> Table:
        """Return the table of the devices that are left, in a new order; they deal again.

        Args:
            lost: the positions of the others.
            first: the first masked sum that they deal for.
            terms: the terms of the first cohort.

        Raises:
            TooFewDevicesError: if too few are left.
        """
        keys = [listed for at, listed in enumerate(self.keys) if at not in lost]
        try:
            parameters = terms.without(self.cohort.parameters, len(lost))
        except ParameterError as error:
            msg = f"{len(keys)} of {len(self.keys)} devices answered the first sum: {error}"
            raise TooFewDevicesError(msg) from None
        return form_table(self.cohort.opening, keys, parameters, first)

    def sealed_for(
        self, position: int, dealers: Iterable[int], masked_sum: int
    ) -> tuple[bytes, ...]:
        """Return the shares that some of its neighbors dealt to a device for a masked sum."""
        n, k = self.cohort.parameters.cohort, self.cohort.parameters.degree
        ranks = ((dealer, rank(position, dealer, n, k) - 1) for dealer in dealers)
        at = masked_sum - self.first
        return tuple(self.deals[dealer].sealed[self._dealt * place + at] for dealer, place in ranks)

    def commitment(self, position: int, masked_sum: int) -> bytes:
        """Return a device's commitment to the seed of a masked sum."""
        return self.deals[position].commitments[masked_sum - self.first]

    @property
    def deal_size(self) -> int:
        """The number of bytes that a device deals."""
        return self._dealt * (32 + SEALED_SIZE * self.cohort.parameters.degree)

    @property
    def _dealt(self) -> int:
        """The number of masked sums for which shares are dealt."""
        return self.cohort.opening.each_roster

    def take_deal(self, position: int, deal: ShareKeys) -> None:
        """Take the shares that a device deals.

        Raises:
            WrongDimensionError: if there is not one commitment per masked sum, and one sealed pair
                of shares per neighbor and masked sum.
        """
        masked_sums, degree = self._dealt, self.cohort.parameters.degree
        if len(deal.commitments) != masked_sums or len(deal.sealed) != masked_sums * degree:
            wanted = f"{masked_sums} commitments and {masked_sums * degree} shares"
            dealt = f"{len(deal.commitments)} and {len(deal.sealed)}"
            msg = f"device {self.keys[position].device} dealt {dealt} instead of {wanted}"
            raise WrongDimensionError(msg)
        self.deals[position] = deal
