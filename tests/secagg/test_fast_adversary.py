"""A server that may send anything to anyone, in fast rounds.

It sends first sums to cohorts that differ, opens the first sum with some devices and sends second
rosters, which differ, to others, in any order, with replays. Where it is not trusted, no sum over
fewer honest devices than promised follows from its view, and no device is in the sums of two
rosters. Against devices that answer both the opening and a second roster, it finds that at once.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import run_state_machine_as_test

from rfa.secagg.device.membership import Membership
from rfa.secagg.device.memory import Memory
from rfa.secagg.errors import ParameterError, SecAggError, TooManyDropoutsError
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.round import FirstInput, FirstSum, ShareKeys, Unmask
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.security.cohort import Cohort, form_cohort
from rfa.secagg.security.parameters import Parameters, ServerModel, derive
from rfa.secagg.server.machine import Server as HonestServer
from rfa.secagg.server.requests import Outbox
from rfa.secagg.server.table import form_table
from tests.secagg.party import Party, contributions, exactly, party
from tests.secagg.test_adversary import HOW, Server, runs
from tests.secagg.view import Known, broken, determined
from tests.thorough import part_or_all


class FastServer(Server):
    """A server without scruples, in a fast round."""

    FAST = True

    def __init__(self) -> None:
        super().__init__()
        self.points: dict[int, int] = {}

    def _ask_for(self, stage: Stage, device: int, choice: int, at: int) -> None:
        begun = self.table.devices[device].memory.due.masked_sum or device in self.told
        if stage == Stage.ROSTER and not begun:
            self._send_first(device, choice, at)
        elif stage == Stage.ROSTER or (stage == Stage.UNMASK and at == 2):
            self._send_second(device, choice)
        elif device in self.told and stage == Stage.UNMASK and not self._masked_sum(device):
            self._open_first(device, choice)
        else:
            super()._ask_for(stage, device, choice, at)

    def _send_first(self, device: int, choice: int, at: int) -> None:
        """The first sum, over a cohort of choice."""
        cohort = self.cohorts[choice]
        roster = self._roster(cohort, device)
        if roster is None:
            return
        told = roster.session, roster.parameters, roster.nonce, roster.leaves, roster.keys
        reply = self.send(device, FirstSum(*told, 1.0, np.full(1, at + 1, "<f4")))
        if reply is not None:
            self.points[device] = at
            self._note_deal(device, cohort, decode_as(FirstInput, reply).deal)

    def _send_second(self, device: int, choice: int) -> None:
        """A second roster: the cohort without one device, or the whole of it again."""
        if device not in self.told:
            return
        first = self.table.opening.each_roster
        cohort = self._second(choice)
        roster = self._roster(cohort, device, first)
        reply = self.send(device, roster) if roster else None
        if reply is not None:
            self._note_deal(device, cohort, decode_as(ShareKeys, reply), first)

    def _second(self, choice: int) -> Cohort:
        """A cohort with the parameters that an honest server would give it after a loss."""
        whole, some = self.cohorts[0], self.cohorts[choice]
        try:
            parameters = self.table.terms.without(
                whole.parameters, len(whole.leaves) - len(some.leaves)
            )
        except ParameterError:
            return some
        return form_cohort(self.table.opening, parameters, some.nonce, some.leaves)

    def _ask(self, device: int, alive: frozenset[int], at: int) -> None:
        """A second roster is asked what the device was asked first, or it refuses."""
        anew = self._masked_sum(device) == self.table.opening.each_roster
        super()._ask(device, alive, self.points.get(device, at) if anew else at)

    def _open_first(self, device: int, choice: int) -> None:
        """Open the first sum, of which a device has no shares before."""
        alive = frozenset(range(self.told[device].parameters.cohort))
        bitmap = self._bitmap(device, choice)
        session, sealed = self.table.opening.session, self._sealed_for(device, alive)
        self.send(device, Unmask(session, 0, bitmap, (), sealed))


class TrustedFastServer(FastServer):
    TRUST = ServerModel.SEMI_HONEST


class Forgetful(FastServer):
    """The same against devices that open a first sum, and take a second roster all the same."""

    def _open_first(self, device: int, choice: int) -> None:
        memory = self.table.devices[device].memory
        super()._open_first(device, choice)
        self.table.devices[device].memory = _taken_back(memory)


def _taken_back(memory: Memory) -> Memory:
    """Where a device was before it opened a sum."""
    return dataclasses.replace(memory, request=bytes(32))


@pytest.mark.usefixtures("checked_once")
@part_or_all("games", 150, 1000)
def test_a_malicious_server_learns_no_more_in_fast_rounds(games: int) -> None:
    run_state_machine_as_test(FastServer, settings=settings(max_examples=runs(games), **HOW))


@pytest.mark.parametrize(
    ("server", "found"),
    [
        pytest.param(
            TrustedFastServer,
            "a sum over",
            id="devices that trust it",
            marks=pytest.mark.thorough,  # about every 300th game; of a long round, every tenth
        ),
        pytest.param(
            Forgetful,
            "sums of two rosters",
            id="devices that answer both",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_the_same_server_breaks_weaker_devices(server: type[FastServer], found: str) -> None:
    """The machine has teeth."""
    with pytest.raises((AssertionError, FlakyFailure)) as caught:
        run_state_machine_as_test(
            server, settings=settings(max_examples=3000, phases=[Phase.generate], **HOW)
        )
    error = caught.value
    causes = error.exceptions if isinstance(error, FlakyFailure) else [error]
    assert any(found in str(cause) or "sums that differ" in str(cause) for cause in causes)


WHOLE = Parameters(9, 1, 2, 3, 8, 5, ServerModel.MALICIOUS)
"""Nine devices, of whom one colludes; five neighbors open a secret, and seven are in any sum."""


def split(count: int, parameters: Parameters) -> tuple[Party, list[Known], list[SecAggError]]:
    """A malicious server moves some devices to a second roster, and opens both sums.

    Args:
        count: how many honest devices it moves; the colluder is in both rosters.
        parameters: those of the second roster.
    """
    table = party(contributions(9, 2), exactly(WHOLE), fast=True)
    colluder, *honest = sorted(table.devices)
    server = HonestServer(table.opening, table.terms, table.known)
    for stage in (lambda: server.open(table.devices), lambda: server.first(np.zeros(2), 1.0)):
        for device, reply in table.carry(stage()):
            assert server.take(device, reply)
    moved = {colluder, *honest[:count]}
    refused: list[SecAggError] = []

    def ask(requests: Outbox, whom: set[int]) -> None:
        for device, request in requests:
            if device in whom:
                for one, reply in table.carry(iter([(device, request)])):
                    server.take(one, reply)
                refused.extend(e for one, e in table.exchange.refused.items() if one == device)

    ask(server.unmask(), set(honest[count:]))
    old = server._formed()  # pyright: ignore[reportPrivateUsage]
    left = [keys for keys in old.keys if keys.device in moved]
    server._seat(form_table(table.opening, left, parameters, 1))  # pyright: ignore[reportPrivateUsage]
    server.masked_sum = 1
    ask(server.roster(), moved)
    if not refused:
        ask(server.ask(np.zeros(2), 1.0), moved)
        ask(server.survivors(), moved)
        ask(server.unmask(), moved)
    return table, determined(table.said, table.known, frozenset({colluder})), refused


SMALL_SECOND = Parameters(4, 1, 0, 3, 3, 3, ServerModel.MALICIOUS)


def test_a_second_roster_of_few_is_refused() -> None:
    _, known, refused = split(3, SMALL_SECOND)
    assert {type(error) for error in refused} == {TooManyDropoutsError}
    assert [len(one.members) for one in known] == [8], "the first sum, over all honest devices"


def anything_goes(*_: object) -> None:
    """In place of a rule."""


def test_without_the_rule_on_survivors_both_sums_are_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Membership, "check_regroup", anything_goes)
    _, known, refused = split(3, SMALL_SECOND)
    assert not refused
    assert sorted(len(one.members) for one in known) == [3, 8]
    assert any("sums of two rosters" in words for words in broken(known, 3))


@pytest.mark.parametrize("count", [6, 7])
def test_with_the_rule_no_split_of_the_devices_opens_both(count: int) -> None:
    """However few stay behind: those, and colluders, are fewer than open a secret."""
    second = derive(
        count + 1,
        num_colluders=1,
        num_dropouts=count - 6,
        min_honest=3,
        server_model=ServerModel.MALICIOUS,
    )
    _, known, refused = split(count, second)
    assert not refused
    assert [len(one.members) for one in known] == [count], "the sum of the second roster alone"
    assert not broken(known, 3)


def test_few_who_move_are_in_the_first_sum_and_in_no_other() -> None:
    """A second roster that most of its members never heard of cannot be opened."""
    table = party(contributions(9, 2), exactly(WHOLE), fast=True)
    colluder, *honest = sorted(table.devices)
    server = HonestServer(table.opening, table.terms, table.known)
    for stage in (lambda: server.open(table.devices), lambda: server.first(np.zeros(2), 1.0)):
        for device, reply in table.carry(stage()):
            assert server.take(device, reply)
    unmasks = dict(server.unmask())
    moved = set(honest[:2])
    for device in set(honest) - moved:
        list(table.carry(iter([(device, unmasks[device])])))
    old = server._formed()  # pyright: ignore[reportPrivateUsage]
    second = form_table(table.opening, old.keys, WHOLE, 1)
    for device, roster in dict(second.rosters()).items():
        if device in moved:
            list(table.carry(iter([(device, roster)])))
    assert {table.devices[device].due for device in moved} == {Moment(1, Stage.SUM)}
    known = determined(table.said, table.known, frozenset({colluder}))
    assert [one.members for one in known] == [frozenset(honest)]


def test_parameters_are_as_these_tests_say() -> None:
    assert WHOLE.survivors == 7
    assert WHOLE.num_dropouts + WHOLE.num_colluders < WHOLE.threshold
