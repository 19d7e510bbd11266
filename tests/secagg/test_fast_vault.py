"""Fast rounds of devices that keep what they must not forget: restarts, marks, lists, charges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.secagg.device.memory import read_memory
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.device.sent import read_sent
from rfa.secagg.device.store import MemoryStore
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import PrivacySpentError, SpentUpdateError
from rfa.secagg.fixed_point import Total
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstInput
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.noise import noisy_sum
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.requests import Outbox, Requests
from rfa.secagg.transcript import repeated_basis
from tests.secagg.fast_round import MODELS, POINT, SILENT, FastRound, first_sum
from tests.secagg.party import LAX, SMALL, Party, contributions, equals, party, same
from tests.secagg.test_privacy_spent import with_budget

NU = 1.5
EACH_MODEL = pytest.mark.parametrize("terms", MODELS.values(), ids=list(MODELS))
LOSSES = pytest.mark.parametrize("lost", [None, SILENT], ids=["all answer", "one is lost"])


def profile(table: Party, device: int, policy: Any = LAX) -> Profile:
    return Profile(device, policy, Identity(table.identities[device], table.known))


class Restarting:
    """An exchange with devices that begin anew for each request, which comes twice."""

    def __init__(
        self, table: Party, folder: Path, lost: int | None = None, policy: Policy = LAX
    ) -> None:
        self.table, self.folder, self.lost, self.policy = table, folder, lost, policy
        self.whom = b""

    def device(self, name: int, **how: Any) -> DurableDevice:
        """A device as it is after a restart."""
        return DurableDevice(
            self.folder / f"{name}",
            profile(self.table, name, self.policy),
            spent=self.folder / f"{name}.spent",
            sent=self.folder / f"{name}.sent",
            **how,
        )

    def bring(self, **how: Any) -> None:
        for name, part in self.table.parts.items():
            with self.device(name) as device:
                device.bring(part, **how)

    def __call__(self, outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        whom = outbox.whom if isinstance(outbox, Requests) else b""
        for name, request in outbox:
            replies: list[bytes] = []
            for _ in range(2):
                with self.device(name, **self.keys(name)) as device:
                    replies.append(device.receive(request, whom))
            assert replies[0] == replies[1], "a retry replays the stored bytes"
            if name != self.lost or not isinstance(decode(replies[0]), FirstInput):
                yield name, replies[0]

    def keys(self, name: int) -> dict[str, bytes]:
        return {"rounding": self.table.rounding[name], "noise": self.table.noise[name]}

    def oracle(self) -> SecureOracle:
        return SecureOracle(
            self.table.opening, self.table.terms, self.table.parts, self, self.table.known
        )


def ideal(table: Party, lost: int | None, queries: int) -> list[Total | None]:
    """The totals of the same devices without masks."""
    table.exchange.lost = {lost: Moment(0, Stage.ROSTER)} if lost else {}
    ask, totals = table.unmasked(), list[Total | None]()
    for step in range(queries):
        ask(np.full(3, float(step)), NU)
        totals.append(ask.last)
    return totals


@EACH_MODEL
@LOSSES
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_devices_that_restart_before_every_message_give_the_same_sums(
    tmp_path: Path, terms: Terms, lost: int | None, noise: float
) -> None:
    parts = equals(10, 3) if noise else contributions(10, 3)
    table = party(parts, terms, queries=2, fast=True, noise=noise)
    exchange = Restarting(table, tmp_path, lost)
    exchange.bring()
    ask = exchange.oracle()
    for step, wanted in enumerate(ideal(table, lost, 2)):
        ask(np.full(3, float(step)), NU)
        assert same(ask.last, wanted)


@EACH_MODEL
@LOSSES
def test_what_a_device_sent_and_opened_is_on_its_list(
    tmp_path: Path, terms: Terms, lost: int | None
) -> None:
    table = party(contributions(10, 3), terms, queries=2, fast=True)
    exchange = Restarting(table, tmp_path, lost)
    exchange.bring()
    ask = exchange.oracle()
    for _ in range(2):
        ask(np.zeros(3), NU)
    sums = [(0, False), (2, True), (3, True)] if lost else [(0, True), (1, True)]
    for name in set(table.devices) - {SILENT}:
        entries = read_sent(tmp_path / f"{name}.sent")
        assert [(entry.masked_sum, entry.opened) for entry in entries] == sums
    if lost:
        (entry,) = read_sent(tmp_path / f"{lost}.sent")
        assert (entry.masked_sum, entry.opened) == (0, False)


def durable_first(tmp_path: Path, terms: Terms, **how: Any) -> tuple[FastRound, DurableDevice, int]:
    """A fast round at its first sum, with a device that keeps what it must."""
    table = party(contributions(10, 3), terms, fast=True, number=4, **how)
    name = sorted(table.devices)[2]
    device = DurableDevice(tmp_path / "store", profile(table, name), spent=tmp_path / "spent")
    device.bring(table.parts[name])
    table.devices[name] = device  # type: ignore[assignment]
    return first_sum(terms, table=table), device, name


@EACH_MODEL
def test_an_update_is_spent_when_its_first_input_leaves(tmp_path: Path, terms: Terms) -> None:
    at, device, name = durable_first(tmp_path, terms)
    part = at.table.parts[name]
    device.bring(part)  # nothing has left
    at, device, name = durable_first(tmp_path / "other", terms)
    device.receive(at.request)
    with pytest.raises(SpentUpdateError):
        device.bring(part)
    device.end(4)
    with pytest.raises(SpentUpdateError):
        device.bring(part)


@EACH_MODEL
def test_a_second_roster_spends_nothing_anew(tmp_path: Path, terms: Terms) -> None:
    at, device, name = durable_first(tmp_path, terms)
    at.regroup()
    at.deliver()
    at.ask(at.server.ask(POINT, NU))
    at.deliver()
    if terms.server_model == ServerModel.MALICIOUS:
        at.ask(at.server.survivors())
        at.deliver()
    at.ask(at.server.unmask())
    at.deliver()
    assert at.server.total().sum.count == 9
    with pytest.raises(SpentUpdateError):
        device.bring(at.table.parts[name])


@EACH_MODEL
def test_a_first_sum_that_was_not_opened_may_be_taken_back_by_a_trusted_server(
    tmp_path: Path, terms: Terms
) -> None:
    at, device, name = durable_first(tmp_path, terms)
    device.receive(at.request)
    device.end(4, opened=False)
    if terms.server_model == ServerModel.MALICIOUS:
        with pytest.raises(SpentUpdateError):
            device.bring(at.table.parts[name])
    else:
        device.bring(at.table.parts[name])


@pytest.mark.parametrize("first", [None, SILENT], ids=["first whole", "first regrouped"])
@pytest.mark.parametrize("fast", [False, True], ids=["then long", "then fast"])
def test_a_sum_is_repeated_to_the_bit_whatever_was_lost_on_the_way(
    tmp_path: Path, first: int | None, *, fast: bool
) -> None:
    table = party(contributions(10, 3), SMALL, fast=True)
    exchange = Restarting(table, tmp_path, first)
    exchange.keys = lambda _: {}  # type: ignore[method-assign]
    exchange.bring()
    ask = exchange.oracle()
    ask(np.ones(3), NU)
    whole = {name: part for name, part in table.parts.items() if name != first}
    again = party(whole, SMALL, fast=fast, number=2)
    repeating = Restarting(again, tmp_path)
    repeating.keys = lambda _: {}  # type: ignore[method-assign]
    tokens: set[bytes] = set()
    for name, part in whole.items():
        assert part is not None
        with repeating.device(name) as device:
            tokens.add(device.repeat(part)[0])
    (token,) = tokens
    basis = repeated_basis(again.opening.basis, token)
    again.opening = dataclasses.replace(again.opening, basis=basis)
    twice = repeating.oracle()
    twice(np.ones(3), NU)
    assert same(twice.last, ask.last)


@pytest.mark.parametrize("fast", [False, True], ids=["long", "fast"])
def test_a_round_that_is_opened_anew_rounds_as_the_one_before(*, fast: bool) -> None:
    """Where only keys have left, a later opening takes its place: a repeat has its numbers too."""
    tables = [party(contributions(6, 3), SMALL, fast=fast, number=number) for number in (1, 2)]
    kept: dict[str, bytes] = {}
    device, keys = DurableDevice(MemoryStore(kept), profile(tables[0], 5)), set[bytes]()
    device.bring(tables[0].parts[5])
    for table in tables:
        device.receive(table.opening.encode())
        keys.add(read_memory(kept["main memory"]).rounding)
    assert len(keys) == 1


@EACH_MODEL
def test_who_accepted_a_second_roster_goes_on_with_it_after_a_restart(
    tmp_path: Path, terms: Terms
) -> None:
    """Nine are left of the ten that its policy asks for, as the first roster allowed."""
    table = party(contributions(10, 3), terms, fast=True)
    exchange = Restarting(table, tmp_path, SILENT, dataclasses.replace(LAX, min_cohort=10))
    exchange.bring()
    assert exchange.oracle()(np.zeros(3), NU).count == 9


def charges(terms: Terms, lost: int) -> tuple[float, float]:
    """What a sum over ten devices is charged, and one after a loss."""
    table = party(equals(10, 3), terms, fast=True, noise=2.0)
    whole = terms.parameters(10)
    sums = [noisy_sum(table.opening, each) for each in (whole, terms.without(whole, lost))]
    first, second = (0.0 if each is None else each.rho for each in sums)
    return first, second


@EACH_MODEL
@LOSSES
def test_each_query_is_charged_once_and_never_too_little(
    tmp_path: Path, terms: Terms, lost: int | None
) -> None:
    table = party(equals(10, 3), terms, queries=2, fast=True, noise=2.0)
    exchange = Restarting(table, tmp_path, lost)
    exchange.bring()
    ask, name = exchange.oracle(), max(table.devices)
    first, second = charges(terms, 1)
    assert first > 0
    assert second > 0
    spent = [max(first, second), max(first, second) + second] if lost else [first, 2 * first]
    for wanted in spent:
        ask(np.zeros(3), NU)
        with exchange.device(name) as device:
            assert device.spent_rho == pytest.approx(wanted, rel=1e-12)
    if lost:
        with exchange.device(lost) as device:
            assert device.spent_rho == first, "its input left, whoever opened it"


@EACH_MODEL
def test_a_second_roster_is_within_the_budget_of_the_first(terms: Terms) -> None:
    """A device whose budget is spent by one sum goes on; one with less does not begin."""
    first, second = charges(terms, 1)
    for budget, sums in ((max(first, second), 1), (0.99 * first, 0)):
        policy = with_budget(budget)
        table = party(equals(10, 3), terms, fast=True, noise=2.0, policy=policy)
        at = first_sum(terms, table=table)
        if not sums:
            with pytest.raises(PrivacySpentError):
                at.victim.receive(at.request)
            continue
        at.regroup()
        at.deliver()
        at.ask(at.server.ask(POINT, NU))
        at.deliver()
        assert at.victim.spent_rho == pytest.approx(max(first, second), rel=1e-12)
