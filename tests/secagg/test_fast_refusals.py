"""Every refusal of a device in a fast round."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from rfa.secagg import errors
from rfa.secagg.messages.decoding import decode, decode_as
from rfa.secagg.messages.round import FirstSum, Roster, SumRequest, SurvivorList, Unmask
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.messages.values import read_bitmap, write_bitmap
from rfa.secagg.oracle import open_round
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms
from tests.secagg.attack import NU, TERMS, altered, at_stage, refuses, victim_leaf, victim_of
from tests.secagg.fast_round import MODELS, POINT, SILENT, first_sum
from tests.secagg.party import MALICIOUS, SMALL, party

EACH_MODEL = pytest.mark.parametrize("terms", MODELS.values(), ids=list(MODELS))


def test_a_fast_round_has_one_meaning() -> None:
    """Devices refuse another flag, and one beside a limit on shares; so does whoever opens one."""
    table = party(6)
    for changes in ({"fast": 2}, {"fast": 1, "max_share": 0.5}):
        opening = dataclasses.replace(table.opening, **changes).encode()
        refuses(table.devices[5], opening, errors.NotCanonicalError, "fast=")
    with pytest.raises(errors.ParameterError, match="give fast=False, or max_share=0"):
        open_round(1, SMALL, queries=1, dim=3, fast=True, max_share=0.5)
    with pytest.raises(errors.ParameterError, match="fast must be"):
        open_round(1, SMALL, queries=1, dim=3, fast=2)  # type: ignore[arg-type]
    with pytest.raises(errors.ParameterError, match="at most 256 masked sums"):
        open_round(1, SMALL, queries=129, dim=3, fast=True)
    assert open_round(1, SMALL, queries=128, dim=3, fast=True).masked_sums == 256


@EACH_MODEL
def test_rosters_of_the_other_kind_of_round_are_refused(terms: Terms) -> None:
    at = first_sum(terms)
    first = decode_as(FirstSum, at.request)
    refuses(at.victim, first.roster.encode(), errors.OutOfStageError)
    for other in (1, 2):
        wrong = dataclasses.replace(first.roster, masked_sum=other)
        refuses(at.victim, wrong.encode(), errors.OutOfStageError)
    _, device, request = at_stage(Roster, terms=terms)
    roster = decode_as(Roster, request)
    same = roster.session, roster.parameters, roster.nonce, roster.leaves, roster.keys
    wrong = FirstSum(*same, 1.5, np.zeros(0, "<f4"))
    refuses(device, wrong.encode(), errors.OutOfStageError)
    refuses(device, altered(request, masked_sum=1), errors.OutOfStageError)
    device.receive(request)


@EACH_MODEL
def test_a_long_round_has_no_second_roster(terms: Terms) -> None:
    table, device, request = at_stage(Unmask, terms=terms)
    roster = decode_as(Roster, device.memory.roster)
    for first in (1, 2):
        second = dataclasses.replace(roster, masked_sum=first).encode()
        refuses(device, second, errors.OutOfStageError)
    assert table.opening.fast == 0
    device.receive(request)


@EACH_MODEL
def test_who_opened_the_first_sum_accepts_no_second_roster(terms: Terms) -> None:
    at = first_sum(terms, queries=2).unmask()
    at.victim.receive(at.request)
    for members in (set(at.table.devices), set(at.table.devices) - {SILENT}):
        second = at.second(members)
        refuses(at.victim, second, errors.OutOfStageError)
        refuses(at.victim, altered(second, masked_sum=1), errors.AskedTwiceError)
    other = altered(at.request, sealed=decode_as(Unmask, at.request).sealed[::-1])
    refuses(at.victim, other, errors.AskedTwiceError)


@EACH_MODEL
def test_who_accepted_a_second_roster_opens_the_first_sum_no_more(terms: Terms) -> None:
    at = first_sum(terms, queries=2).unmask()
    unmask = at.request
    second = at.second(set(at.table.devices) - {SILENT})
    reply = at.victim.receive(second)
    refuses(at.victim, unmask, errors.AskedTwiceError)
    assert at.victim.receive(second) == reply
    again = at.second(set(at.table.devices))
    refuses(at.victim, again, errors.AskedTwiceError)
    assert at.victim.due == Moment(2, Stage.SUM)


@EACH_MODEL
def test_sums_of_one_roster_are_not_those_of_the_other(terms: Terms) -> None:
    """After the first sum come those of its roster, and nothing comes after the last of them."""
    at = first_sum(terms).unmask()
    request = SumRequest(
        at.table.opening.session, 1, 1, 1.5, 0, at.victim.memory.alive, (), np.zeros(0, "<f4")
    )
    refuses(at.victim, request.encode(), errors.OutOfStageError)
    at.victim.receive(at.request)
    assert at.victim.over
    refuses(at.victim, request.encode(), errors.AskedTwiceError)
    survivors = SurvivorList(at.table.opening.session, 1, at.victim.memory.alive)
    refuses(at.victim, survivors.encode(), errors.AskedTwiceError)


@EACH_MODEL
def test_the_first_sum_is_opened_over_all_of_its_roster_alone(terms: Terms) -> None:
    at = first_sum(terms).unmask()
    everyone = read_bitmap(decode_as(Unmask, at.request).survivors, 10)
    here = decode_as(Roster, at.victim.memory.roster).leaves
    own = here.index(victim_leaf(at.table))
    one, two, *_ = sorted(everyone - {own})
    for gone in ({one}, {one, two}):
        fewer = altered(at.request, survivors=write_bitmap(everyone - gone, 10))
        refuses(at.victim, fewer, errors.SurvivorsError, "over all of it or not opened")
    without = altered(at.request, survivors=write_bitmap(everyone - {own}, 10))
    refuses(at.victim, without, errors.SurvivorsError, "is impossible")
    message = SurvivorList(at.table.opening.session, 0, write_bitmap(everyone, 10))
    refuses(at.victim, message.encode(), errors.AskedTwiceError)


@EACH_MODEL
def test_sealed_shares_come_with_the_opening_of_the_first_sum_and_with_no_other(
    terms: Terms,
) -> None:
    at = first_sum(terms, queries=2).unmask()
    sealed = decode_as(Unmask, at.request).sealed
    for wrong in ((), sealed[:-1], (*sealed, sealed[0])):
        refuses(
            at.victim, altered(at.request, sealed=wrong), errors.NotCanonicalError, "sealed shares"
        )
    at.deliver()
    at.server.total()
    at.ask(at.server.ask(POINT, 1.5))
    if terms.server_model == ServerModel.MALICIOUS:
        at.deliver()
        at.ask(at.server.survivors())
    at.deliver()
    at.ask(at.server.unmask())
    refuses(
        at.victim, altered(at.request, sealed=sealed), errors.NotCanonicalError, "sealed shares"
    )
    at.victim.receive(at.request)


@EACH_MODEL
def test_replays_get_the_same_bytes_in_a_fast_round(terms: Terms) -> None:
    at = first_sum(terms)
    first = at.victim.receive(at.request)
    assert at.victim.receive(at.request) == first
    refuses(at.victim, altered(at.request, nu=2.0), errors.AskedTwiceError)
    at.unmask()
    opened = at.victim.receive(at.request)
    assert at.victim.receive(at.request) == opened


@EACH_MODEL
def test_a_second_roster_has_nobody_that_the_first_had_not(terms: Terms) -> None:
    at = first_sum(terms)
    at.deliver()
    members = set(at.table.devices) - {SILENT}
    good = decode_as(Roster, at.second(members))
    leaves = list(good.leaves)
    place = next(k for k, leaf in enumerate(leaves) if leaf != victim_leaf(at.table))
    leaves[place] = bytes(32)
    refuses(
        at.victim,
        dataclasses.replace(good, leaves=tuple(leaves)).encode(),
        errors.CohortError,
        "that the first did not have",
    )
    at.victim.receive(good.encode())


@EACH_MODEL
def test_a_second_roster_without_the_device_or_in_another_order_is_refused(terms: Terms) -> None:
    at = first_sum(terms)
    at.deliver()
    members = set(at.table.devices) - {SILENT}
    good = decode_as(Roster, at.second(members))
    refuses(
        at.victim,
        dataclasses.replace(good, leaves=good.leaves[::-1]).encode(),
        errors.CohortError,
    )
    others = {SILENT, *members} - {victim_of(at.table)}
    if terms.server_model == ServerModel.MALICIOUS:
        refuses(at.victim, at.second(others), errors.MissingKeysError)
    lost = next(keys for keys in good.keys if keys.device != victim_of(at.table))
    fewer = tuple(keys for keys in good.keys if keys is not lost)
    refuses(at.victim, dataclasses.replace(good, keys=fewer).encode(), errors.CohortError)


WEAKER: list[tuple[dict[int, int], type[Exception], str]] = [
    ({1: 0}, errors.WeakTermsError, "withstands less than the first"),
    ({3: 3}, errors.WeakTermsError, "withstands less than the first"),
    ({2: 2}, errors.TooManyDropoutsError, "at least 8 must be"),
]


@EACH_MODEL
@pytest.mark.parametrize(("changes", "error", "match"), WEAKER, ids=["c", "h", "f"])
def test_a_second_roster_withstands_no_less_than_the_first(
    terms: Terms, changes: dict[int, int], error: type[Exception], match: str
) -> None:
    """Its parameters are safe by themselves, but for another cohort than the first one."""
    strict = dataclasses.replace(terms, colluder_fraction=0.1, min_honest_fraction=0.4)
    at = first_sum(strict)
    at.deliver()
    assert at.first.numbers[1:4] == (1, 2, 4)
    good = decode_as(Roster, at.second(set(at.table.devices) - {SILENT}))
    numbers = list(good.parameters)
    numbers[4:6] = [8, 6]  # k and t that are safe with either
    for place, value in changes.items():
        numbers[place] = value
    weak: Any = tuple(numbers)
    refuses(at.victim, dataclasses.replace(good, parameters=weak).encode(), error, match)


@EACH_MODEL
def test_a_second_roster_is_as_large_as_the_least_sum_of_the_first(terms: Terms) -> None:
    """With too few devices no parameters have as many survivors."""
    at = first_sum(terms)
    at.deliver()
    members = sorted(at.table.devices)[:7]
    assert victim_of(at.table) in members
    numbers = (7, 1, 0, 3, 6, 4, int(terms.server_model), 0)
    good = decode_as(Roster, at.second(set(at.table.devices) - {SILENT}))
    small = dataclasses.replace(good, parameters=numbers, leaves=good.leaves[:7])
    refuses(at.victim, small.encode(), errors.TooManyDropoutsError, "at least 8 must be")


def test_what_the_policy_refuses_leaves_the_device_as_it_was() -> None:
    """The point and the radius of a first sum are looked at as those of any other."""
    at = first_sum(TERMS, policy=Policy(min_nu=0.1, max_queries=2, honest_per_query=0))
    refuses(at.victim, altered(at.request, nu=0.05), errors.SmallRadiusError)
    refuses(at.victim, altered(at.request, v=np.ones(4, "<f4")), errors.WrongDimensionError)
    refuses(at.victim, altered(at.request, v=np.zeros(3, "<f4")), errors.NotCanonicalError)
    at.unmask()
    at.deliver()
    assert at.server.total().sum.count == 10, "and it takes the good request after"


def test_a_wary_device_refuses_chosen_points_in_a_first_sum() -> None:
    wary = Policy(3, 3, 1, server_model=ServerModel.MALICIOUS, honest_per_query=0)
    at = first_sum(MALICIOUS, policy=wary)
    refuses(at.victim, at.request, errors.ChosenQueryError, "v that is not zero")
    at.victim.receive(altered(at.request, v=np.zeros(0, "<f4")))


@EACH_MODEL
def test_a_second_roster_is_asked_what_the_first_was(terms: Terms) -> None:
    """Else its radius could be as far from the first as that is from the last one opened."""
    at = first_sum(terms, queries=2).regroup()
    at.deliver()
    at.ask(at.server.ask(POINT, NU))
    for changes in ({"nu": 2 * NU}, {"v": np.zeros(0, "<f4")}):
        other = altered(at.request, **changes)
        refuses(at.victim, other, errors.AskedTwiceError, "with another roster")
    at.victim.receive(at.request)


def test_a_wary_device_goes_along_with_one_change_of_the_radius_a_round() -> None:
    wary = Policy(3, 3, 1, server_model=ServerModel.MALICIOUS, honest_per_query=0)
    at = first_sum(MALICIOUS, policy=wary, point=np.zeros(3)).regroup()
    at.deliver()
    at.ask(at.server.ask(np.zeros(3), NU * 32))
    refuses(at.victim, at.request, errors.AskedTwiceError, "with another roster")


@EACH_MODEL
def test_policies_are_asked_about_the_first_roster_and_the_second(terms: Terms) -> None:
    lax = Policy(honest_per_query=0)
    for policy, error in (
        (dataclasses.replace(lax, min_cohort=11), errors.SmallCohortError),
        (dataclasses.replace(lax, num_colluders=2), errors.WeakTermsError),
        (dataclasses.replace(lax, max_neighbors=2), errors.TooManyNeighborsError),
    ):
        at = first_sum(terms, policy=policy)
        refuses(at.victim, at.request, error)
    at = first_sum(terms, policy=Policy(min_cohort=10, honest_per_query=0))
    at.regroup()
    at.victim.receive(at.request)  # nine are left of ten, as the first roster allows


def test_a_server_forms_a_cohort_anew_once_and_before_it_opens() -> None:
    at = first_sum(TERMS).unmask()
    with pytest.raises(errors.OutOfStageError, match="was not opened"):
        at.server.regroup()
    at = first_sum(TERMS).regroup()
    with pytest.raises(errors.OutOfStageError):
        at.server.regroup()
    at.deliver()
    at.ask(at.server.ask(POINT, 1.5))
    with pytest.raises(errors.OutOfStageError, match="was not opened"):
        at.server.regroup()


def test_a_first_sum_is_not_opened_over_some() -> None:
    at = first_sum(TERMS)
    at.deliver({SILENT})
    with pytest.raises(errors.TooFewDevicesError, match="not all of them answered"):
        at.server.unmask()


@EACH_MODEL
def test_a_device_of_a_fast_round_that_abstains_is_in_no_roster(terms: Terms) -> None:
    parts: Any = {**party(6).parts, 5: None}
    table = party(parts, terms, fast=True)
    assert table.oracle()(np.zeros(3), 1.5).count == 5
    assert [type(decode(r)).__name__ for d, r, _ in table.said if d == 5] == ["OpenRound"]
