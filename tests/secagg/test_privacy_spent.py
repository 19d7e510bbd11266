"""A device's budget of privacy: what its sums are charged, where that is kept, and when it ends."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.errors import InvalidValueError
from rfa.privacy import epsilon_of, rho_of
from rfa.secagg.device.machine import Device
from rfa.secagg.device.memory import Memory
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.store import FileStore
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import (
    PrivacySpentError,
    RefusalError,
    SpentUpdateError,
    TooFewDevicesError,
    VaultError,
    WeakTermsError,
)
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.round import Roster, SumRequest
from rfa.secagg.noise import noisy_sum
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from tests.secagg.attack import NU, altered, reach, refuses
from tests.secagg.party import MALICIOUS, SMALL, Party, equals, party

Z = 2.0


def charge_of(table: Party) -> float:
    scales = noisy_sum(table.opening, table.terms.parameters(len(table.parts)))
    assert scales is not None
    return scales.rho


CHARGE = charge_of(party(6, noise=Z))
"""What a sum over six devices is charged here."""


def with_budget(rho: float, **how: Any) -> Policy:
    """The policy of a device that bears this charge in all."""
    return Policy(max_queries=4, honest_per_query=0, epsilon=epsilon_of(rho, 1e-5), **how)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive number"),
        ({"epsilon": -1.0}, "epsilon must be a positive number"),
        ({"epsilon": math.inf}, "epsilon must be a positive number"),
        ({"epsilon": math.nan}, "epsilon must be a positive number"),
        ({"epsilon": "8"}, "epsilon must be a positive number"),
        ({"delta": 0.0}, "delta must be"),
        ({"epsilon": 8.0, "delta": 1.0}, "delta must be from"),
        ({"epsilon": 8.0, "max_share": 0.5}, r"no device can check max_share=0\.5: leave one"),
    ],
)
def test_a_budget_that_has_no_meaning_is_refused(how: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        Policy(**how)


def test_the_budget_is_the_charge_of_its_epsilon() -> None:
    assert Policy().budget == math.inf
    assert Policy(epsilon=8.0, delta=1e-6).budget == rho_of(8.0, 1e-6)
    assert Profile(1, Policy(epsilon=8.0)).policy.epsilon == 8.0, "also when it is settled"


def test_charges_that_add_up_to_the_budget_are_borne() -> None:
    """Whatever the last digits of a sum of floats are."""
    for count in (1, 3, 10, 1000):
        policy, spent = Policy(epsilon=8.0), 0.0
        for _ in range(count):
            policy.check_charge(spent, policy.budget / count)
            spent += policy.budget / count
        with pytest.raises(PrivacySpentError):
            policy.check_charge(spent, policy.budget / 1e6)


def test_a_device_with_a_budget_joins_no_round_without_noise() -> None:
    """Whether of training, or of an evaluation with its exact metrics."""
    for parts in (equals(6, 3), {n: Contribution(np.zeros(1, np.float32)) for n in range(6)}):
        table = party(parts, policy=Policy(epsilon=100.0))
        device = next(iter(table.devices.values()))
        refuses(device, table.opening.encode(), WeakTermsError, "a round without noise")
        with pytest.raises(TooFewDevicesError):
            table.oracle()


def test_a_device_without_a_budget_keeps_its_charges_all_the_same() -> None:
    table = party(6, queries=2, noise=Z)
    ask, device = table.oracle(), table.devices[5]
    assert device.spent_rho == 0
    ask(np.zeros(3), NU)
    assert device.spent_rho == CHARGE
    ask(np.zeros(3), NU)
    assert device.spent_rho == 2 * CHARGE
    after = Device(None, Profile(5), memory=device.memory.between_rounds())
    assert after.spent_rho == 2 * CHARGE
    assert device.memory.left().rho == 2 * CHARGE
    plain = party(6)
    plain.oracle()(np.zeros(3), NU)
    assert plain.devices[5].spent_rho == 0


def spent_device(table: Party, spent: float, policy: Policy) -> Device:
    """A device of a party that was charged before."""
    profile = Profile(5, policy)
    table.devices[5] = Device(table.parts[5], profile, memory=Memory(rho=spent))
    return table.devices[5]


@pytest.mark.parametrize("queries", [1, 3])
def test_it_refuses_before_it_joins_what_exceeds_its_budget_for_sure(queries: int) -> None:
    """All sums of a round together: to leave it in between would end it for the others."""
    policy = with_budget(10 * CHARGE)
    table = party(6, queries=queries, noise=Z)
    device = spent_device(table, (10.5 - queries) * CHARGE, policy)
    match = rf"{queries} more sums? at a charge of rho=\S+ each would exceed this device's budget"
    refuses(device, table.opening.encode(), PrivacySpentError, match)
    device = spent_device(table, (9.99 - queries) * CHARGE, policy)
    assert device.receive(table.opening.encode())


def test_it_refuses_a_cohort_for_which_the_charge_is_more() -> None:
    """The charge of a sum is known when the cohort is, before any share is dealt."""
    table = party(6, noise=Z)
    least = 1 / (2 * Z * Z)
    assert least < CHARGE
    device = spent_device(table, 0.0, with_budget((least + CHARGE) / 2))
    refuses(device, reach(table, Roster)[5], PrivacySpentError, "of which 0 is spent")


def test_it_refuses_a_sum_that_another_run_left_nothing_for(tmp_path: Path) -> None:
    """Of two runs at once the second is refused: their charges add up in one file."""
    stores = [durable(tmp_path, run, 1.5 * CHARGE) for run in ("a", "b")]
    requests: list[bytes] = []
    for seed, device in enumerate(stores):
        table = party(equals(6, 3, seed=seed), noise=Z)
        device.bring(table.parts[5])
        table.devices[5] = device  # type: ignore[assignment]
        requests.append(reach(table, SumRequest)[5])
    assert stores[0].receive(requests[0])
    with pytest.raises(PrivacySpentError):
        stores[1].receive(requests[1])
    assert [device.spent_rho for device in stores] == [CHARGE, CHARGE]


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])
def test_a_budget_of_so_many_rounds_is_for_so_many(terms: Any) -> None:
    memory, rounds = Memory(), 0
    charge = charge_of(party(6, terms, noise=Z))
    policy = with_budget(3 * charge, min_cohort=3, num_colluders=0)
    for number in range(1, 6):
        table = party(equals(6, 3, seed=number), terms, noise=Z, number=number, policy=policy)
        identity = table.devices[5]._profile.identity  # pyright: ignore[reportPrivateUsage]
        device = Device(table.parts[5], Profile(5, policy, identity), memory=memory)
        table.devices[5] = device
        ask = None
        with contextlib.suppress(TooFewDevicesError):
            ask = table.oracle()
        joined = 5 not in table.exchange.refused
        if joined and ask:
            ask(np.zeros(3), NU)
            rounds += 1
        else:
            assert isinstance(table.exchange.refused[5], PrivacySpentError)
            assert isinstance(table.exchange.refused[5], RefusalError)
        memory = device.memory.between_rounds()
    assert rounds == 3
    assert memory.rho == pytest.approx(3 * charge)


def durable(folder: Path, run: str = "one", budget: float = 1e6) -> DurableDevice:
    profile = Profile(5, with_budget(budget))
    return DurableDevice(folder / run, profile, spent=folder / "spent")


def at_sum(device: DurableDevice, number: int, **how: Any) -> bytes:
    """Bring a new update of a device to the request for its masked input."""
    table = party(equals(6, 3, seed=number), noise=Z, number=number, **how)
    device.bring(table.parts[5])
    table.devices[5] = device  # type: ignore[assignment]
    return reach(table, SumRequest)[5]


def test_charges_outlive_restarts_rounds_and_runs(tmp_path: Path) -> None:
    for number, run in enumerate(("a", "a", "b"), 1):
        with durable(tmp_path, run) as device:
            device.receive(at_sum(device, number))
            assert device.spent_rho == pytest.approx(number * CHARGE)
            device.end()
        with durable(tmp_path, run) as device:
            assert device.spent_rho == pytest.approx(number * CHARGE)
    (tmp_path / "b").unlink()
    with durable(tmp_path, "b") as device:
        assert device.spent_rho == pytest.approx(3 * CHARGE), "a store begun anew knows of all"
    (tmp_path / "spent").unlink()
    with durable(tmp_path, "a") as device:
        assert device.spent_rho == pytest.approx(2 * CHARGE), "and a run of its own, at the least"


def test_a_store_by_itself_keeps_charges(tmp_path: Path) -> None:
    profile = Profile(5, with_budget(1.0))
    with DurableDevice(tmp_path / "one", profile) as device:
        device.receive(at_sum(device, 1))
        device.end()
    with DurableDevice(tmp_path / "one", profile) as device:
        assert device.spent_rho == CHARGE
        device.receive(at_sum(device, 2))
        assert device.spent_rho == 2 * CHARGE


def test_no_word_of_a_server_takes_a_charge_back(tmp_path: Path) -> None:
    """It may say that no sum was opened, and the update be brought again: for another charge."""
    with durable(tmp_path) as device:
        device.receive(at_sum(device, 1))
        device.end(1, opened=False)
        assert device.spent_rho == CHARGE
        table = party(equals(6, 3, seed=1), noise=Z, number=2)
        device.bring(table.parts[5])
        table.devices[5] = device  # type: ignore[assignment]
        device.receive(reach(table, SumRequest)[5])
        assert device.spent_rho == 2 * CHARGE


def test_a_retry_is_not_charged_again(tmp_path: Path) -> None:
    with durable(tmp_path) as device:
        request = at_sum(device, 1)
        reply = device.receive(request)
        assert device.receive(request) == reply
        assert device.spent_rho == CHARGE
        with pytest.raises(RefusalError):
            device.receive(altered(request, nu=9.0))
        assert device.spent_rho == CHARGE


def test_what_does_not_leave_is_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the writes of a transaction fails, all of it does."""
    with durable(tmp_path) as device:
        request, keep, writes = at_sum(device, 1), FileStore.keep, 3
        for failing in range(writes):
            left = [failing]

            def full(self: FileStore, *args: Any, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    msg = "database or disk is full"
                    raise sqlite3.OperationalError(msg)
                keep(self, *args)

            with monkeypatch.context() as patch:
                patch.setattr(FileStore, "keep", full)
                with pytest.raises(VaultError, match="disk is full"):
                    device.receive(request)
            assert device.spent_rho == 0
        device.receive(request)
        assert device.spent_rho == CHARGE


def masked_again(device: DurableDevice, terms: Any = SMALL, **how: Any) -> bytes:
    """Bring the same update as always, and mask it in another round."""
    table = party(equals(6, 3), terms, **how)
    device.bring(table.parts[5], noisy=bool(how.get("noise")))
    table.devices[5] = device  # type: ignore[assignment]
    return device.receive(reach(table, SumRequest)[5])


def test_the_same_update_is_charged_in_every_sum_with_noise(tmp_path: Path) -> None:
    """To refuse it would tell that it did not change: an exact word, which no noise covers."""
    for number, run in enumerate(("a", "a", "b"), 1):
        with durable(tmp_path, run) as device:
            masked_again(device, noise=number * Z, number=number)
            device.end()
    with durable(tmp_path) as device:
        charges = [charge_of(party(6, noise=number * Z)) for number in (1, 2, 3)]
        assert device.spent_rho == pytest.approx(sum(charges))


def test_of_two_runs_at_once_both_get_an_update_into_sums_with_noise(tmp_path: Path) -> None:
    stores, requests = [durable(tmp_path, "a"), durable(tmp_path, "b")], list[bytes]()
    for device in stores:
        table = party(equals(6, 3), noise=Z)
        device.bring(table.parts[5], noisy=True)
        table.devices[5] = device  # type: ignore[assignment]
        requests.append(reach(table, SumRequest)[5])
    for device, request in zip(stores, requests, strict=True):
        device.receive(request)
    assert stores[0].spent_rho == stores[1].spent_rho == 2 * CHARGE


@pytest.mark.parametrize("noise", [(Z, 0.0), (0.0, Z)])
def test_an_update_of_an_exact_sum_is_in_no_other(
    tmp_path: Path, noise: tuple[float, float]
) -> None:
    """Whichever of the two is exact: their difference would be charged to nobody."""
    with DurableDevice(tmp_path / "one", Profile(5, Policy(honest_per_query=0))) as device:
        masked_again(device, noise=noise[0])
        with pytest.raises(SpentUpdateError):
            masked_again(device, noise=noise[1], number=2)
        assert device.spent_rho == (CHARGE if noise[0] else 0)


def test_who_says_that_one_sum_was_not_opened_takes_no_other_back(tmp_path: Path) -> None:
    """An update of a sum with noise that was opened is in no exact one, whatever became of more."""
    with DurableDevice(tmp_path / "one", Profile(5, Policy(honest_per_query=0))) as device:
        masked_again(device, noise=Z)
        device.end(1, opened=True)
        masked_again(device, noise=Z, number=2)
        device.end(2, opened=False)
        with pytest.raises(SpentUpdateError):
            masked_again(device, number=3)
        masked_again(device, noise=Z, number=4)


def test_of_two_runs_at_once_none_takes_the_mark_of_the_other_back(tmp_path: Path) -> None:
    profile = Profile(5, Policy(honest_per_query=0))
    runs = [DurableDevice(tmp_path / run, profile, spent=tmp_path / "spent") for run in "ab"]
    for device in runs:
        masked_again(device, noise=Z)
    runs[0].end(1, opened=False)
    for device in runs:
        with pytest.raises(SpentUpdateError):
            masked_again(device, number=2)
        device.close()


def test_noise_that_is_claimed_and_not_there_frees_no_update(tmp_path: Path) -> None:
    """What counts when it is masked is the opening of the round."""
    profile = Profile(5, Policy(honest_per_query=0))
    with DurableDevice(tmp_path / "a", profile) as device:
        masked_again(device, noise=Z)
        table = party(equals(6, 3), number=2)
        device.bring(table.parts[5], noisy=True)
        table.devices[5] = device  # type: ignore[assignment]
        with pytest.raises(SpentUpdateError):
            device.receive(reach(table, SumRequest)[5])
        assert device.spent_rho == CHARGE


@pytest.mark.parametrize("epsilon", [None, 100.0])
def test_a_malicious_server_gets_an_update_again_as_far_as_a_budget_goes(
    tmp_path: Path, epsilon: float | None
) -> None:
    """Without one it could ask for the same sum until nothing is left of the noise."""
    few: dict[str, Any] = {"min_cohort": 3, "num_colluders": 0, "any_point": True}
    policy = Policy(server_model=ServerModel.MALICIOUS, epsilon=epsilon, **few)
    identity = party(6, MALICIOUS).devices[5]._profile.identity  # pyright: ignore[reportPrivateUsage]
    refused = contextlib.nullcontext() if epsilon else pytest.raises(SpentUpdateError)
    with DurableDevice(tmp_path / "one", Profile(5, policy, identity)) as device:
        masked_again(device, MALICIOUS, noise=Z)
        with refused:
            masked_again(device, MALICIOUS, noise=Z, number=2)
        sums = 2 if epsilon else 1
        assert device.spent_rho == pytest.approx(sums * charge_of(party(6, MALICIOUS, noise=Z)))


def test_a_damaged_store_says_what_becomes_of_charges(tmp_path: Path) -> None:
    for spent, what in ((tmp_path / "spent", "what sums were charged"), (None, "is forgotten")):
        path = tmp_path / "one"
        DurableDevice(path, Profile(5), spent=spent).close()
        path.write_bytes(b"not a database" * 100)
        with pytest.raises(VaultError, match=what):
            DurableDevice(path, Profile(5), spent=spent)
        path.unlink()


def answer_until_killed(folder: Path, log: Path) -> None:
    """In another process: be in one sum after the other, and note what left."""
    number = time.time_ns() // 1000
    with durable(folder) as device, log.open("ab", buffering=0) as file:
        while True:
            number += 1
            reply = device.receive(at_sum(device, number))
            file.write(bytes([len(reply) % 256]))


def test_a_device_that_is_killed_is_never_charged_too_little(tmp_path: Path) -> None:
    """At random moments, by a signal that nothing can catch."""
    log, kills = tmp_path / "left", 8
    log.touch()
    spawn, moments = multiprocessing.get_context("spawn"), np.random.default_rng(5)
    for kill in range(1, kills + 1):
        before = log.stat().st_size
        process = spawn.Process(target=answer_until_killed, args=(tmp_path, log))
        process.start()
        deadline = time.monotonic() + 120
        while log.stat().st_size <= before and time.monotonic() < deadline:
            time.sleep(0.001)
        assert process.is_alive()
        time.sleep(moments.uniform(0, 0.05))
        process.kill()
        process.join()
        with durable(tmp_path) as device:
            left, charged = log.stat().st_size, device.spent_rho / CHARGE
        assert left - 1e-6 < charged < left + kill + 1e-6
    assert log.stat().st_size >= kills


def test_a_malicious_server_is_charged_alike() -> None:
    table = party(10, MALICIOUS, noise=Z)
    table.oracle()(np.zeros(3), NU)
    assert {device.spent_rho for device in table.devices.values()} == {charge_of(table)}
