"""Whose shares did not unseal, as devices say before the survivors of a masked sum are closed.

One complaint is one word against another: the dealer sealed garbage, or the neighbor lies. More
complaints than there can be colluders hold an honest one, so that the dealer is at fault. But a
cohort that is one of many groups may hold more liars than its parameters say, so over rounds each
complaint stays a dispute: `rfa.secagg.server.suspicion` counts them against all liars there can be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rfa.secagg.errors import BadShareError, ComplaintsError, NotCanonicalError, SecAggError
from rfa.secagg.messages.values import Bitmap, read_bitmap
from rfa.secagg.security.cohort import Cohort
from rfa.secagg.security.rules import Members

Complaints = Mapping[int, Collection[int]]
"""For each dealer, who complained about it."""


@dataclass(frozen=True, order=True)
class Dispute:
    """A dealer and a holder of whom one is at fault, and nobody can tell which.

    Attributes:
        dealer: the device that dealt a share.
        holder: the device that says it could not unseal it, or opened a wrong one.
        forgers: so many liars, or more, could have put two honest devices in this dispute; 0 if no
            number of others could.
    """

    dealer: int
    holder: int
    forgers: int = 0


@dataclass(frozen=True)
class Unopened:
    """A secret that could not be opened, which ended a round.

    Attributes:
        dealer: the device whose secret it is.
        holders: how many devices opened shares of it.
        forgers: how many of these must have lied, if the dealer did not.
    """

    dealer: int
    holders: int
    forgers: int


def read_complaints(bitmap: Bitmap, dealers: Collection[int], cohort: int) -> Members:
    """About whom a device complains, of those who dealt it shares.

    Raises:
        NotCanonicalError: if it names nobody in so many bytes, or somebody else.
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
    """The dealers of whom more devices complain than can lie together, and what is said of them."""
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
    """Complaints, or wrong shares that liars can forge, as pairs of devices."""
    needed = forgers or {}
    return {
        Dispute(names[dealer], names[holder], needed.get(dealer, 0))
        for dealer, holders in complaints.items()
        for holder in holders
    }


def require_shares(
    cohort: Cohort, survivors: Members, complaints: Complaints, names: Sequence[int]
) -> None:
    """End the round where too few good shares of a secret are left to open it.

    Args:
        cohort: the cohort.
        survivors: who can open shares.
        complaints: who says that it holds none.
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
