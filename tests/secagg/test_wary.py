"""What devices that take the server for malicious insist on, and the attacks that it stops."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from rfa.aggregators.adaptive_radius import LONGEST, AdaptiveRadius
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import (
    ChosenQueryError,
    ParameterError,
    SecAggError,
    SmallCohortError,
    TooFewDevicesError,
    VaultError,
    WeakTermsError,
)
from rfa.secagg.messages.round import SumRequest
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import MAX_NU_FACTOR, Policy
from rfa.secagg.security.terms import Terms
from tests.secagg.attack import altered, reach, refuses
from tests.secagg.party import MALICIOUS, Party, contributions, party

NOBODY = Terms(0, 0, 0, server_model=ServerModel.MALICIOUS)
WARY = Policy(server_model=ServerModel.MALICIOUS)
ZERO = np.zeros(0, np.float32)
CARELESS = Policy(server_model=ServerModel.MALICIOUS, min_cohort=3, num_colluders=0)
"""What used to be the default."""


def asked_in_three(policy: Policy) -> tuple[Party, SecureOracle]:
    """A malicious server asks three of ten devices, and says that none of them collude."""
    table = party(contributions(10, 30), NOBODY, policy=policy)
    three = sorted(table.devices)[:3]
    return table, SecureOracle(table.opening, NOBODY, three, table.carry, table.known)


def refusals(table: Party) -> set[type[SecAggError]]:
    return {type(error) for error in table.exchange.refused.values()}


def test_careless_demands_let_two_identities_read_the_update_of_a_third() -> None:
    table, ask = asked_in_three(CARELESS)
    nu, (victim, *colluders) = 100.0, sorted(table.devices)[:3]
    total = ask(np.zeros(30), nu)
    known = [part for part in (table.parts[device] for device in colluders) if part]
    push = nu * total.push - sum(part.weight * part.update.astype(float) for part in known)
    found = push / (total.need("weight") - sum(part.weight for part in known))
    part = table.parts[victim]
    assert part
    assert np.linalg.norm(found - part.update) < 1e-5 * np.linalg.norm(part.update)


def test_by_default_wary_devices_refuse_the_cohort_of_three() -> None:
    table = party(contributions(10, 30), NOBODY, policy=WARY)
    with pytest.raises(TooFewDevicesError):
        SecureOracle(table.opening, NOBODY, sorted(table.devices)[:3], table.carry, table.known)(
            np.zeros(30), 100.0
        )
    assert refusals(table) == {SmallCohortError}


def test_by_default_wary_devices_refuse_parameters_without_colluders() -> None:
    table = party(contributions(10, 30), NOBODY, policy=WARY)
    with pytest.raises(TooFewDevicesError):
        table.oracle()(np.zeros(30), 100.0)
    assert refusals(table) == {WeakTermsError}
    assert party(contributions(10, 30), MALICIOUS, policy=WARY).oracle()(np.zeros(30), 1.0)


def identity(count: int) -> Identity:
    secrets = [hashlib.sha256(b"%d" % device).digest() for device in range(count)]
    return Identity(secrets[0], {device: identity_of(one) for device, one in enumerate(secrets)})


@pytest.mark.parametrize(("count", "cohort", "colluders"), [(4, 4, 1), (10, 9, 1), (21, 19, 3)])
def test_what_is_derived_from_the_list_of_identities(
    count: int, cohort: int, colluders: int
) -> None:
    policy = Profile(0, WARY, identity(count)).policy
    assert (policy.min_cohort, policy.num_colluders) == (cohort, colluders)


def test_what_is_given_is_not_derived() -> None:
    given = Policy(server_model=ServerModel.MALICIOUS, num_colluders=5)
    policy = Profile(0, given, identity(10)).policy
    assert (policy.min_cohort, policy.num_colluders) == (9, 5)


@pytest.mark.parametrize("given", [{}, {"min_cohort": 20}, {"num_colluders": 2}])
def test_without_identities_a_wary_device_must_be_told(given: dict[str, int]) -> None:
    wary = Policy(server_model=ServerModel.MALICIOUS, **given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ParameterError, match=r"give Policy\(min_cohort=\.\.\., num_colluders"):
        Profile(0, wary)
    Profile(0, CARELESS)


def test_a_device_that_trusts_the_server_keeps_its_floors() -> None:
    policy = Profile(0, Policy(), identity(100)).policy
    assert (policy.min_cohort, policy.num_colluders) == (3, 0)


@pytest.mark.parametrize("guess", [True, False])
def test_a_guessed_point_and_a_tiny_radius_tell_whether_an_update_is_the_guess(guess: bool) -> None:
    parts = contributions(10, 30)
    any_point = Policy(server_model=ServerModel.MALICIOUS, any_point=True)
    ask = party(parts, MALICIOUS, policy=any_point).oracle()
    update = parts[sorted(parts)[4]].update.astype(np.float64)
    total = ask(update if guess else update + 0.01, 1e-6)
    assert (total.near, total.need("mass") > 1e-3) == (int(guess), guess)


def test_wary_devices_answer_at_zero_alone() -> None:
    parts = contributions(10, 30)
    table = party(parts, MALICIOUS, policy=WARY)
    ask = table.oracle()
    with pytest.raises(TooFewDevicesError):
        ask(parts[sorted(parts)[4]].update.astype(np.float64), 1e-6)
    assert refusals(table) == {ChosenQueryError}


def test_the_factor_is_the_longest_stride_of_a_learned_radius() -> None:
    assert pytest.approx(math.exp(LONGEST)) == MAX_NU_FACTOR
    policy, radius = WARY, AdaptiveRadius(1e-6)
    for near in (0.0,) * 12 + (1.0,) * 20:
        after = radius.after(near)
        policy.check_query(ZERO, after.nu, radius.nu)
        radius = after


@pytest.mark.parametrize(
    ("demands", "nu", "refused"),
    [
        ({}, 1 / 33, True),
        ({}, 33.0, True),
        ({}, 31.0, False),
        ({}, 1 / 31, False),
        ({"max_nu_factor": 100}, 99.0, False),
        ({"max_nu_factor": None}, 1e9, False),
        ({"server_model": ServerModel.SEMI_HONEST}, 1e9, False),
    ],
)
def test_the_next_radius_is_near_the_last(
    demands: dict[str, float | None], nu: float, refused: bool
) -> None:
    wanted = {"server_model": ServerModel.MALICIOUS} | demands
    policy = Policy(**wanted)  # pyright: ignore[reportArgumentType]
    policy.check_query(ZERO, nu, 0.0)
    if refused:
        with pytest.raises(ChosenQueryError, match="max_nu_factor"):
            policy.check_query(ZERO, nu, 1.0)
    else:
        policy.check_query(ZERO, nu, 1.0)


def test_the_last_radius_survives_rounds_and_restarts(tmp_path: Path) -> None:
    for number, nu, refused in (
        (1, 1.0, False),
        (2, 40.0, True),
        (3, 30.0, False),
        (4, 900, False),
    ):
        table = party(contributions(10, 3, seed=number), MALICIOUS, policy=WARY, number=number)
        name = min(table.devices)
        profile = Profile(name, WARY, Identity(table.identities[name], table.known))
        with DurableDevice(tmp_path / "vault", profile) as device:
            device.bring(table.parts[name])
            table.devices[name] = device  # type: ignore[assignment]
            asked = reach(table, SumRequest)[name]
            request = altered(asked, nu=nu, v=ZERO)
            if refused:
                with pytest.raises(ChosenQueryError):
                    device.receive(request)
            else:
                device.receive(request)
            device.end()


@pytest.mark.parametrize("lasting", [True, False])
def test_the_last_radius_survives_runs_where_a_file_outlives_them(
    tmp_path: Path, lasting: bool
) -> None:
    """Or a malicious server begins another run, and asks at any radius."""
    spent = tmp_path / "spent" if lasting else None
    for run, nu, refused in (("a", 1.0, False), ("b", 40.0, lasting), ("c", 30.0, False)):
        table = party(contributions(10, 3, seed=ord(run)), MALICIOUS, policy=WARY)
        name = min(table.devices)
        profile = Profile(name, WARY, Identity(table.identities[name], table.known))
        with DurableDevice(tmp_path / run, profile, spent=spent) as device:
            device.bring(table.parts[name])
            table.devices[name] = device  # type: ignore[assignment]
            request = altered(reach(table, SumRequest)[name], nu=nu, v=ZERO)
            if refused:
                with pytest.raises(ChosenQueryError, match=r"40.0 after 1.0"):
                    device.receive(request)
            else:
                device.receive(request)


@pytest.mark.parametrize("first", ["a", "b"])
def test_runs_at_once_share_the_last_radius(tmp_path: Path, first: str) -> None:
    """Whichever of them was asked last, also if the other has one of its own."""
    asked: dict[str, tuple[DurableDevice, bytes]] = {}
    for run in ("a", "b"):
        table = party(contributions(10, 3, seed=ord(run)), MALICIOUS, policy=WARY)
        name = min(table.devices)
        profile = Profile(name, WARY, Identity(table.identities[name], table.known))
        device = DurableDevice(tmp_path / run, profile, spent=tmp_path / "spent")
        device.bring(table.parts[name])
        table.devices[name] = device  # type: ignore[assignment]
        asked[run] = device, altered(reach(table, SumRequest)[name], v=ZERO)
    device, request = asked.pop(first)
    device.receive(altered(request, nu=1.0))
    ((device, request),) = asked.values()
    for nu in (40.0, 1 / 40):
        with pytest.raises(ChosenQueryError):
            device.receive(altered(request, nu=nu))
    device.receive(altered(request, nu=30.0))


@pytest.mark.parametrize("value", [b"", b"x" * 8, b"x" * 50, "text", 1.0])
def test_a_damaged_radius_is_named(tmp_path: Path, value: object) -> None:
    table = party(contributions(10, 3))
    name = min(table.devices)
    with DurableDevice(tmp_path / "a", Profile(name), spent=tmp_path / "spent") as device:
        device.bring(None)
        store = sqlite3.connect(tmp_path / "spent")
        store.execute("INSERT INTO kept VALUES ('lasting', ?)", (value,))
        store.commit()
        store.close()
        with pytest.raises(VaultError, match=r"damaged|lasting is not bytes"):
            device.bring(table.parts[name])


def test_a_refused_query_leaves_the_device_as_it_was() -> None:
    table = party(contributions(10, 3), MALICIOUS, policy=WARY)
    name = min(table.devices)
    asked = reach(table, SumRequest)[name]
    refuses(table.devices[name], asked, ChosenQueryError, "any_point")
    table.devices[name].receive(altered(asked, v=ZERO))
