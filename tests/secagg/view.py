"""What a server's view of a round determines: which sums, over which honest devices.

A masked input is x_i + b_i + sum of +- p_ij. From all that was said, and what colluders know, the
secrets that can be put together are counted; the masks that they do not give are unknowns. Each is
uniform and independent of everything else, so a linear combination of parts tells something exactly
if all unknown masks in it cancel. Unknown self-masks never cancel; an unknown pair mask cancels
only between the two parts that hold it, made for the same masked sum. So what is determined are the
sums over connected components, where no mask leads out of the component.

In a fast round a device has a seat in each roster that it accepted, two at the most. The secrets of
a masked sum are dealt over one of them. The mask's secret of the first sum is dealt to nobody.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rfa.secagg.device.membership import accept_roster, read_parameters
from rfa.secagg.messages import decoding
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import (
    AdvertiseKeys,
    DeviceKeys,
    FirstInput,
    FirstSum,
    MaskedInput,
    OpenFirstSum,
    Roster,
    ShareKeys,
    SumRequest,
    Unmask,
    UnmaskShares,
)
from rfa.secagg.messages.values import NO_SHARE, read_bitmap
from rfa.secagg.security.cohort import Cohort, Identities, form_cohort
from rfa.secagg.transcript import context_of, leaf_of, point_of

Said = Iterable[tuple[int, bytes, bytes | None]]
"""What was said: device, request, reply."""
decode = functools.lru_cache(maxsize=1024)(decoding.decode)
"""Decoding, which is done once for each message of a round."""
Ahead = Mapping[int, DeviceKeys]
"""The keys that devices sent in the round before."""


@dataclass
class Seat:
    """A device in a cohort, as the transcript shows it."""

    device: int
    cohort: Cohort
    position: int
    first: int = 0
    """The first masked sum that its roster is for."""
    asked: dict[int, tuple[bytes, frozenset[int]]] = field(
        default_factory=dict[int, tuple[bytes, frozenset[int]]]
    )
    """By masked sum: the context of the part that it sent, and who it was told takes part."""
    released: dict[tuple[int, bool], set[int]] = field(
        default_factory=dict[tuple[int, bool], set[int]]
    )
    """By masked sum and kind (True for self-masks): whose share it released, by position."""


@dataclass(frozen=True)
class Known:
    """A sum that is determined: which, the honest devices in it, the size and name of its cohort.

    The name is that of the roster: its digest, and the first masked sum that it is for.
    """

    masked_sum: int
    members: frozenset[int]
    cohort: int
    roster: tuple[bytes, int] = (b"", 0)


def seats(said: Said, identities: Identities, ahead: Ahead) -> list[Seat]:
    """The devices that accepted a cohort, once for each cohort."""
    openings: dict[int, OpenRound] = {}
    adverts: dict[int, AdvertiseKeys] = {}
    every: list[Seat] = []
    found: dict[int, Seat] = {}
    for device, request, reply in said:
        if reply is None:
            continue
        asked, answer = decode(request), decode(reply)
        if isinstance(asked, OpenRound) and isinstance(answer, AdvertiseKeys):
            openings[device], adverts[device] = asked, answer
        elif isinstance(asked, OpenFirstSum) and isinstance(answer, FirstInput):
            openings[device] = decode_as(OpenRound, asked.opening)
            adverts[device] = AdvertiseKeys(asked.session, ahead[device])
            first = decode_as(FirstSum, asked.first)
            found[device] = _seat(first.roster, openings[device], adverts[device], identities)
            every.append(found[device])
            _note_part(found[device], first.sum_request)
        elif isinstance(asked, Roster) and isinstance(answer, ShareKeys):
            found[device] = _seat(asked, openings[device], adverts[device], identities)
            every.append(found[device])
        elif isinstance(asked, FirstSum) and isinstance(answer, FirstInput):
            found[device] = _seat(asked.roster, openings[device], adverts[device], identities)
            every.append(found[device])
            _note_part(found[device], asked.sum_request)
        elif isinstance(asked, SumRequest) and isinstance(answer, MaskedInput):
            _note_part(found[device], asked)
        elif isinstance(asked, Unmask) and isinstance(answer, UnmaskShares):
            _note_shares(found[device], asked, answer)
    return every


def _seat(
    roster: Roster, opening: OpenRound, advert: AdvertiseKeys, identities: Identities
) -> Seat:
    parameters = read_parameters(roster, opening)
    cohort = form_cohort(opening, parameters, roster.nonce, roster.leaves)
    member = accept_roster(roster, cohort, advert.keys, identities)
    return Seat(advert.keys.device, member.cohort, member.position, roster.masked_sum)


def _note_part(seat: Seat, sum_request: SumRequest) -> None:
    context = context_of(seat.cohort.digest, sum_request, point_of(sum_request.v, sum_request.nu))
    alive = read_bitmap(sum_request.alive, seat.cohort.parameters.cohort)
    known = seat.asked.setdefault(sum_request.masked_sum, (context, alive))
    assert known[0] == context, "a device sent two parts for one masked sum"


def _note_shares(seat: Seat, unmask: Unmask, opened: UnmaskShares) -> None:
    alive = seat.asked[unmask.masked_sum][1]
    survivors = read_bitmap(unmask.survivors, seat.cohort.parameters.cohort)
    dealers = [one for one in seat.cohort.neighbors(seat.position) if one in alive]
    for dealer, share in zip(dealers, opened.shares, strict=True):
        if share != NO_SHARE:
            seat.released.setdefault((unmask.masked_sum, dealer in survivors), set()).add(dealer)


def determined(
    said: Said,
    identities: Identities,
    colluders: frozenset[int] = frozenset(),
    ahead: Ahead | None = None,
) -> list[Known]:
    """All sums that the view of a server that colludes with some devices determines.

    Args:
        said: what was said in a round.
        identities: the identities of devices, where the server is malicious.
        colluders: who colludes with it.
        ahead: the keys that devices sent in the round before.
    """
    listed, sent = list(said), ahead or {}
    every = [seat for seat in seats(listed, identities, sent) if seat.device not in colluders]
    leaves = _leaves(listed, sent)
    groups: dict[tuple[bytes, int], dict[int, Seat]] = {}
    for seat in every:
        for masked_sum, (context, _) in seat.asked.items():
            groups.setdefault((context, masked_sum), {})[seat.device] = seat
    known: list[Known] = []
    for (_, masked_sum), members in groups.items():
        cohort = next(iter(members.values())).cohort
        there = [one for one in colluders if leaves[one] in cohort.leaves]
        bad = {cohort.leaves.index(leaves[one]): one for one in there}
        found = _seated(every, cohort, masked_sum)
        table = {seat.position: one for one, seat in found.items()} | bad
        opened = {
            kind: _opened(found, table, masked_sum, kind) | colluders for kind in (True, False)
        }
        if cohort.opening.is_first(masked_sum):
            opened[False] = colluders  # nobody is dealt shares of these secrets
        known += _components(members, table, masked_sum, opened)
    return known


def _leaves(said: Said, ahead: Ahead) -> dict[int, bytes]:
    """The leaf of every device that advertised, colluders among them."""
    found: dict[int, bytes] = {}
    for device, request, reply in said:
        asked, answer = decode(request), decode(reply) if reply else None
        if isinstance(asked, OpenRound) and isinstance(answer, AdvertiseKeys):
            found[device] = leaf_of(asked, answer.keys)
        elif isinstance(asked, OpenFirstSum):
            found[device] = leaf_of(decode_as(OpenRound, asked.opening), ahead[device])
    return found


def _seated(every: list[Seat], cohort: Cohort, masked_sum: int) -> dict[int, Seat]:
    """The honest devices that accepted a cohort for a masked sum."""
    first = _first_of(cohort.opening, masked_sum)
    return {
        seat.device: seat
        for seat in every
        if seat.cohort.digest == cohort.digest and seat.first == first
    }


def _first_of(opening: OpenRound, masked_sum: int) -> int:
    """The first masked sum of the roster that a masked sum is over."""
    return masked_sum - masked_sum % opening.each_roster


def _opened(
    found: dict[int, Seat], table: dict[int, int], masked_sum: int, kind: bool
) -> frozenset[int]:
    """The honest devices of a cohort whose secrets of a kind can be put together.

    Colluders hold a share of each of their neighbors in whatever cohort lists them.
    """
    honest = {place: one for place, one in table.items() if one in found}
    opened: set[int] = set()
    for place, device in honest.items():
        seat = found[device]
        holders = [table[other] for other in seat.cohort.neighbors(place) if other in table]
        count = sum(
            holder not in found
            or place in found[holder].released.get((masked_sum, kind), set[int]())
            for holder in holders
        )
        if count >= seat.cohort.parameters.threshold:
            opened.add(device)
    return frozenset(opened)


def _components(
    members: dict[int, Seat],
    table: dict[int, int],
    masked_sum: int,
    opened: dict[bool, frozenset[int]],
) -> list[Known]:
    """The components of the honest parts of one context, without those that stay closed."""
    edges: dict[int, set[int]] = {device: set() for device in members}
    closed = set(members) - opened[True]
    for device, seat in members.items():
        for place in seat.cohort.neighbors(seat.position):
            other = table.get(place)
            known = device in opened[False] or other in opened[False]
            if place not in seat.asked[masked_sum][1] or known:
                continue
            if other in members:
                edges[device].add(other)
            else:
                closed.add(device)  # nobody has sent the other part that holds this mask
    some = next(iter(members.values()))
    size, roster = some.cohort.parameters.cohort, (some.cohort.digest, some.first)
    return [
        Known(masked_sum, frozenset(part), size, roster)
        for part in _connected(edges)
        if not part & closed
    ]


def _connected(edges: dict[int, set[int]]) -> list[set[int]]:
    parts: list[set[int]] = []
    left = set(edges)
    while left:
        part, waiting = set[int](), [left.pop()]
        while waiting:
            one = waiting.pop()
            part.add(one)
            waiting += edges[one] - part
        left -= part
        parts.append(part)
    return parts


def broken(known: list[Known], honest: int) -> list[str]:
    """The promises that a view breaks: sums, and differences of sums, over too few.

    A device is in the sums of one roster: of two, they would be more sums than it was asked for.
    """
    said = [f"a sum over {set(one.members)}" for one in known if len(one.members) < honest]
    for one in known:
        for other in known:
            apart = one.members ^ other.members
            if (
                one.masked_sum < other.masked_sum
                and one.members & other.members
                and 0 < len(apart) < honest
            ):
                said.append(f"sums that differ by {set(apart)}")
            both = one.members & other.members
            if one.roster < other.roster and both:
                said.append(f"sums of two rosters over {set(both)}")
    return said
