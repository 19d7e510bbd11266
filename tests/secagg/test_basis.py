"""What was trained from is bound, against a server that gives all but one device a dead model.

A dead model (all units off, say) makes the updates of all others zero, so that a consistent, signed
sum over many devices is the update of the one that got the real model (Pasquini, Francati,
Ateniese, CCS 2022).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rfa.secagg.errors import (
    CohortError,
    OtherBasisError,
    ParameterError,
    SignatureError,
    TooFewDevicesError,
)
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import NO_BASIS, OpenRound
from rfa.secagg.messages.round import (
    AdvertiseKeys,
    DeviceKeys,
    Roster,
    ShareKeys,
    SumRequest,
    Unmask,
)
from rfa.secagg.messages.values import write_bitmap
from rfa.secagg.security.cohort import Cohort, form_cohort, in_order
from rfa.secagg.security.terms import Terms
from rfa.secagg.transcript import digest, leaf_of
from tests.secagg.party import MALICIOUS, SMALL, Party, party
from tests.secagg.view import determined

COUNT, DIM, NU = 8, 40, 1.0
REAL, DEAD = digest(b"test", b"a model"), digest(b"test", b"a dead model")
BOTH = pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi-honest", "malicious"])
VICTIM = 5


def parts(real: bytes = REAL, dead: bytes = DEAD) -> dict[int, Contribution]:
    """Devices of which all but the victim trained a dead model."""
    rng = np.random.default_rng(1)
    updates = {11 * index + VICTIM: np.zeros(DIM, np.float32) for index in range(COUNT)}
    updates[VICTIM] = rng.standard_normal(DIM).astype(np.float32)
    return {
        device: Contribution(update, basis=real if device == VICTIM else dead)
        for device, update in updates.items()
    }


def table(terms: Terms, basis: bytes = REAL, **how: bytes) -> Party:
    found = party(parts(**how), terms)
    return dataclasses.replace(found, opening=dataclasses.replace(found.opening, basis=basis))


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    one, other = one.astype(np.float64), other.astype(np.float64)
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


@BOTH
def test_where_it_is_not_bound_the_sum_is_the_update_of_the_victim(terms: Terms) -> None:
    there = table(terms, NO_BASIS, real=NO_BASIS, dead=NO_BASIS)
    push = there.oracle()(np.zeros(DIM), NU).push
    update = parts()[VICTIM].update
    assert cosine(push, update) == pytest.approx(1, abs=1e-9)


@BOTH
def test_devices_that_started_from_something_else_refuse_the_round(terms: Terms) -> None:
    there = table(terms)
    with pytest.raises(TooFewDevicesError, match=r"1 devices joined"):
        there.oracle()
    refused = there.exchange.refused
    assert set(refused) == set(there.parts) - {VICTIM}
    for error in refused.values():
        assert isinstance(error, OtherBasisError)
        assert DEAD.hex()[:16] in str(error)
        assert REAL.hex()[:16] in str(error)


def openings(there: Party) -> dict[int, OpenRound]:
    """What a server that wants everyone to join tells each device."""
    return {
        device: dataclasses.replace(there.opening, basis=part.basis)
        for device, part in there.parts.items()
        if part
    }


def advertise(there: Party) -> dict[int, DeviceKeys]:
    told = ((device, opening.encode()) for device, opening in openings(there).items())
    replies = dict(there.carry(told))
    assert set(replies) == set(there.parts)
    return {device: decode_as(AdvertiseKeys, reply).keys for device, reply in replies.items()}


def rosters(
    there: Party, keys: dict[int, DeviceKeys], leaf: Callable[[int, OpenRound], bytes]
) -> tuple[dict[int, Cohort], dict[int, bytes]]:
    """For each device a cohort of all under leaves of the server's choice, and its roster."""
    cohorts: dict[int, Cohort] = {}
    requests: dict[int, bytes] = {}
    parameters, nonce = there.terms.parameters(COUNT), bytes(16)
    for device, opening in openings(there).items():
        leaves = {leaf(other, opening): other for other in keys}
        order = in_order(nonce, list(leaves))
        cohort = cohorts[device] = form_cohort(opening, parameters, nonce, order)
        place = order.index(leaf_of(opening, keys[device]))
        everyone = there.terms is MALICIOUS
        shown = range(COUNT) if everyone else sorted(cohort.neighbors(place))
        listed = tuple(keys[leaves[order[other]]] for other in shown)
        roster = Roster(opening.session, parameters.numbers, nonce, order, listed)
        requests[device] = roster.encode()
    return cohorts, requests


def test_a_device_that_signed_another_opening_is_named() -> None:
    """Each device is told its own basis, so that all join: their signatures show it."""
    there = table(MALICIOUS)
    keys = advertise(there)
    _, requests = rosters(there, keys, lambda other, opening: leaf_of(opening, keys[other]))
    assert not dict(there.carry(iter(requests.items())))
    for device, error in there.exchange.refused.items():
        assert isinstance(error, SignatureError)
        others = set(there.parts) - {device} if device == VICTIM else {VICTIM}
        assert any(f"device {other} did not sign" in str(error) for other in others)
        assert "trained from something else" in str(error)


def test_a_device_whose_own_leaf_is_listed_is_named_too() -> None:
    there = table(MALICIOUS)
    keys, told = advertise(there), openings(there)
    _, requests = rosters(there, keys, lambda other, _: leaf_of(told[other], keys[other]))
    assert not dict(there.carry(iter(requests.items())))
    victim = there.exchange.refused[VICTIM]
    assert isinstance(victim, CohortError)
    for error in (there.exchange.refused[other] for other in there.parts if other != VICTIM):
        assert isinstance(error, CohortError)
        assert f"device {VICTIM} " in str(error)
        assert "trained from something else" in str(error)


@pytest.mark.parametrize("dead", [REAL, DEAD], ids=["the same basis", "another basis"])
def test_masks_of_devices_with_different_bases_do_not_cancel(dead: bytes) -> None:
    """Nothing is signed in the semi-honest model, so all go on; and nothing is determined."""
    there = table(SMALL, dead=dead)
    keys = advertise(there)
    cohorts, requests = rosters(there, keys, lambda other, opening: leaf_of(opening, keys[other]))
    replies = dict(there.carry(iter(requests.items())))
    dealt = {device: decode_as(ShareKeys, reply) for device, reply in replies.items()}
    assert set(dealt) == set(there.parts)
    masked = dict(there.carry(iter(sum_requests(there, cohorts, keys, dealt).items())))
    assert set(masked) == set(there.parts)
    bitmap = write_bitmap(range(COUNT), COUNT)
    unmask = Unmask(there.opening.session, 0, bitmap, ()).encode()
    list(there.carry((device, unmask) for device in there.parts))
    found = [known.members for known in determined(there.said, there.known)]
    assert found == ([frozenset(there.parts)] if dead == REAL else [])


def sum_requests(
    there: Party,
    cohorts: dict[int, Cohort],
    keys: dict[int, DeviceKeys],
    dealt: dict[int, ShareKeys],
) -> dict[int, bytes]:
    """A request of a masked sum for each, with what others dealt to it in their own cohorts."""
    bitmap, v = write_bitmap(range(COUNT), COUNT), np.zeros(0, np.float32)
    members = {
        device: [
            next(other for other in keys if leaf_of(cohort.opening, keys[other]) == leaf)
            for leaf in cohort.leaves
        ]
        for device, cohort in cohorts.items()
    }

    def near(device: int) -> list[int]:
        return [
            members[device][at] for at in cohorts[device].neighbors(members[device].index(device))
        ]

    def sealed_by(dealer: int, device: int) -> bytes:
        holders = near(dealer)
        return dealt[dealer].sealed[holders.index(device)] if device in holders else bytes(82)

    return {
        device: SumRequest(
            there.opening.session,
            0,
            1,
            NU,
            0,
            bitmap,
            tuple(sealed_by(dealer, device) for dealer in near(device)),
            v,
        ).encode()
        for device in there.parts
    }


def test_the_sum_without_masks_leaves_the_same_devices_out() -> None:
    with pytest.raises(TooFewDevicesError, match="1 devices joined"):
        table(SMALL).unmasked()


@pytest.mark.parametrize("wrong", [bytes(31), b"", "0" * 32, None])
def test_a_basis_is_a_digest(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="32 bytes"):
        Contribution(np.ones(1, np.float32), basis=wrong)
    if wrong is not None:
        with pytest.raises(ParameterError, match="32 bytes"):
            Contribution(np.ones(1, np.float32), mark=wrong)
