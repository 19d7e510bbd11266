"""Complaints about shares that did not unseal, which come before the survivors are fixed.

In one complaint it is one device's word against another's: the dealer sealed garbage, or the
neighbor lies. If there are more complaints than possible colluders, one of them is honest, so the
dealer is at fault. But a cohort that is one of many groups may hold more liars than its parameters
say. So over rounds each complaint stays a dispute, and `rfa.secagg.server.suspicion` compares
disputes with the possible number of liars among all devices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rfa.secagg.errors import BadShareError, ComplaintsError, NotCanonicalError, SecAggError
from rfa.secagg.messages.values import Bitmap, read_bitmap
from rfa.secagg.security.cohort import Cohort
from rfa.secagg.security.rules import Members

Complaints = Mapping[int, Collection[int]]
"""For each dealer, the devices that complained about it."""


@dataclass(frozen=True, order=True)
class Dispute:
    """A dealer and a holder, one of which is at fault; the server cannot know which.

    Attributes:
        dealer: the device that dealt a share.
        holder: the device that says that it could not unseal it, or that opened a wrong one.
        forgers: the least number of liars that could have put two honest devices in this dispute; 0
            if no number could.
    """

    dealer: int
    holder: int
    forgers: int = 0


@dataclass(frozen=True)
class Unopened:
    """A secret that could not be opened, which ended a round.

    Attributes:
        dealer: the device whose secret it is.
        holders: the number of devices that opened shares of it.
        forgers: the number of these that must have lied, if the dealer did not.
    """

    dealer: int
    holders: int
    forgers: int


def read_complaints(bitmap: Bitmap, dealers: Collection[int], cohort: int) -> Members:
    """Return the dealers about which a device complains.

    Raises:
        NotCanonicalError: if the bitmap is empty but not omitted, or names others.
    """
    if not bitmap:
        return frozenset()
    accused = read_bitmap(bitmap, cohort)
    if not accused or not accused <= set(dealers):
        msg = f"complaints are about {sorted(accused)}, who are not among those who dealt shares"
        raise NotCanonicalError(msg)
    return accused


def faults_of(
    complaints: Complaints, num_colluders: int, names: Sequence[int]
) -> dict[int, SecAggError]:
    """Return the dealers about which more devices complain than can lie together, and the error."""
    return {
        names[dealer]: ComplaintsError(
            f"device {names[dealer]} dealt shares that {len(holders)} of its neighbors could not "
            "unseal"
        )
        for dealer, holders in complaints.items()
        if len(holders) > num_colluders
    }


def disputes_of(
    complaints: Complaints, names: Sequence[int], forgers: Mapping[int, int] | None = None
) -> set[Dispute]:
    """Return complaints, or wrong shares that liars can forge, as pairs of devices."""
    needed = forgers or {}
    return {
        Dispute(names[dealer], names[holder], needed.get(dealer, 0))
        for dealer, holders in complaints.items()
        for holder in holders
    }


def require_shares(
    cohort: Cohort, survivors: Members, complaints: Complaints, names: Sequence[int]
) -> None:
    """End the round if too few good shares of a secret are left to open it.

    Args:
        cohort: the cohort.
        survivors: the devices that can open shares.
        complaints: the devices that say that they hold none.
        names: the device at each position.

    Raises:
        BadShareError: naming the dealer, and how many complain.
    """
    threshold = cohort.parameters.threshold
    for dealer in sorted(complaints):
        left = (survivors & set(cohort.neighbors(dealer))) - set(complaints[dealer])
        if len(left) < threshold:
            msg = (
                f"the sum cannot be opened: {len(complaints[dealer])} neighbors of device "
                f"{names[dealer]} could not unseal its shares, and {len(left)} others are left, "
                f"of {threshold} who are needed"
            )
            raise BadShareError(msg)
