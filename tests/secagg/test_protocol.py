"""Whole rounds: the sum over the survivors, integer for integer, or nothing."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.errors import OracleStoppedError
from rfa.secagg.errors import ParameterError, SurvivorsChangedError, TooFewDevicesError
from rfa.secagg.fixed_point import Contribution, Encoding, Total
from rfa.secagg.in_process import Losses
from rfa.secagg.messages.decoding import decode, decode_as
from rfa.secagg.messages.round import MaskedInput
from rfa.secagg.messages.stages import START, Moment, Stage
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.requests import Outbox
from tests.secagg.party import MALICIOUS, SMALL, Party, contributions, masked, party, same
from tests.secagg.view import broken, determined
from tests.thorough import part_or_all

NU = 1.5
TINY = Terms(
    colluder_fraction=0.0, max_dropout_fraction=0.3, min_honest_fraction=0.3, honest_per_query=0
)


def outcome(ask: Callable[[], object]) -> str:
    """What became of a sum: nothing, or the name of what ended it."""
    try:
        ask()
    except (OracleStoppedError, ParameterError) as error:
        return type(error).__name__
    return ""


def play(at_table: Party, queries: int) -> list[tuple[Total | None, Total | None]]:
    """The totals of the protocol and of the unmasked oracle, query by query, at moving v."""
    made: list[tuple[Total | None, Total | None]] = []
    dim = at_table.opening.dim
    if ended := outcome(at_table.unmasked):
        assert outcome(at_table.oracle) == ended
        return []
    secure, unmasked = at_table.oracle(), at_table.unmasked()
    assert unmasked.parameters == secure.server.parameters
    for step in range(queries):
        v = step * np.linspace(-1, 1, dim)
        ends = [outcome(functools.partial(ask, v, NU)) for ask in (secure, unmasked)]
        assert ends[0] == ends[1]
        if ends[0]:
            break
        made.append((secure.last, unmasked.last))
    return made


def check_round(
    count: int, terms: Terms, lost: Losses, queries: int = 1, *, fast: bool = False
) -> int:
    """Play a round with drop-outs; how many sums came of it."""
    table = party(count, terms, queries=queries, lost=lost, fast=fast)
    totals = play(table, queries)
    assert all(same(*pair) for pair in totals)
    known = sorted(determined(table.said, table.known), key=lambda one: one.masked_sum)
    assert not broken(known, 3)
    for one in known[len(totals) :]:  # too few opened it, but enough shares: the very sum, no more
        assert table.opening.query_of(one.masked_sum) == len(totals)
        assert len(one.members) >= table.terms.parameters(table.joined).survivors
    for one, (total, _) in zip(known, totals, strict=False):
        assert total is not None
        assert len(one.members) == total.sum.count
        step = table.opening.query_of(one.masked_sum)
        check_sum(table.parts, one.members, total, step)
    return len(totals)


def check_sum(
    parts: Mapping[int, Contribution | None], members: frozenset[int], total: Total, step: int
) -> None:
    """The total is the float64 sum over the survivors, up to rounding."""
    push, mass, dim = 0.0, 0.0, len(total.sum.push)
    v = np.float32(step * np.linspace(-1, 1, dim)).astype(np.float64)
    for device in members:
        part = parts[device]
        assert part is not None
        reach = part.update.astype(np.float64) - v
        beta = part.weight / max(NU, float(np.linalg.norm(reach)))
        push, mass = push + beta * reach, mass + NU * beta
    scale = Encoding(len(parts)).scale
    assert np.abs(total.sum.push - push).max() < len(members) / scale
    assert total.sum.mass == pytest.approx(mass, rel=1e-12)
    metrics = np.sum([part.metrics for one in members if (part := parts[one])], axis=0)
    assert total.metrics == pytest.approx(tuple(metrics), rel=1e-12)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_way_of_losing_devices_of_a_small_cohort(count: int) -> None:
    """Each of up to four devices is lost at any moment, or never."""
    sums = 0
    for when in itertools.product(map(Moment.numbered, [0, 1, 2, 4, 99]), repeat=count):
        devices = sorted(contributions(count, 3))
        sums += check_round(count, TINY, dict(zip(devices, when, strict=True)))
    assert sums or count == 2  # too few for two shares of a secret


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])
def test_every_subset_of_five_at_every_stage(terms: Terms) -> None:
    devices = sorted(contributions(5, 3))
    sums = 0
    for stage in list(Stage)[:5]:
        for size in range(6):
            for gone in itertools.combinations(devices, size):
                sums += check_round(5, terms, dict.fromkeys(gone, Moment(0, stage)))
    assert sums > 10


@pytest.mark.usefixtures("checked_once")
@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])
@part_or_all("each", 4, 1)
def test_every_mix_of_stages_for_five(terms: Terms, each: int) -> None:
    """Two steps: five devices are lost at any mix of moments."""
    devices = sorted(contributions(5, 3))
    moments = map(Moment.numbered, [0, 1, 2, 4, 5, 7, 99])
    mixes = itertools.combinations_with_replacement(moments, 5)
    for when in itertools.islice(mixes, 0, None, each):
        check_round(5, terms, dict(zip(devices, when, strict=True)), queries=2)


@pytest.mark.parametrize(
    "terms",
    [SMALL, MALICIOUS, Terms(honest_per_query=0)],
    ids=["semi_honest", "malicious", "default"],
)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_random_drop_outs_of_thirty(terms: Terms, data: st.DataObject) -> None:
    devices = sorted(contributions(30, 3))
    gone = data.draw(st.lists(st.sampled_from(devices), unique=True, max_size=12))
    lost = {device: Moment.numbered(data.draw(st.integers(0, 10))) for device in gone}
    check_round(30, terms, lost, queries=3)


def test_a_limit_on_shares_takes_two_masked_sums_a_query_with_the_same_numbers() -> None:
    table = party(contributions(8, 4), max_share=0.9, queries=2)
    totals = play(table, 2)
    assert len(totals) == 2
    assert all(same(*pair) for pair in totals)
    assert max(decode_as(MaskedInput, reply).masked_sum for _, _, reply in masked(table)) == 3


def test_a_device_over_the_limit_refuses_and_the_round_stops() -> None:
    """One device sits on v, the others are far: its share of the query is over the limit."""
    parts = contributions(10, 4)
    first = min(parts)
    parts[first] = Contribution(np.zeros(4, np.float32), 1.0, (1.0,))
    for device in parts:
        if device != first:
            parts[device] = Contribution(np.full(4, 1e3, np.float32), 1.0, (1.0,))
    table = party(parts, max_share=0.2)
    ask = table.oracle()
    with pytest.raises(SurvivorsChangedError):
        ask(np.zeros(4), 0.1)
    assert type(table.exchange.refused[first]).__name__ == "ShareLimitError"
    with pytest.raises(SurvivorsChangedError):
        table.unmasked()(np.zeros(4), 0.1)


def test_a_drop_out_between_queries_ends_the_round_and_the_sum_before_stands() -> None:
    devices = sorted(contributions(10, 3))
    table = party(10, queries=3, lost={devices[0]: Moment(1, Stage.SUM)})
    assert len(play(table, 3)) == 1
    table = party(10, queries=3, lost={devices[0]: Moment(0, Stage.UNMASK)})
    assert len(play(table, 3)) == 1, "it opened nothing, but was in the first sum"


def test_many_who_leave_together_do_not_end_the_round() -> None:
    """h + c devices or more leave between two steps: h of them are honest."""
    terms = Terms(0.0, 0.5, min_honest_fraction=0.2, honest_per_query=0)
    devices = sorted(contributions(20, 3))
    few, many = (dict.fromkeys(devices[:count], Moment(1, Stage.SUM)) for count in (3, 4))
    assert len(play(party(20, terms, queries=2, lost=few), 2)) == 1
    assert len(play(party(20, terms, queries=2, lost=many), 2)) == 2
    assert not broken(determined((t := party(20, terms, queries=2, lost=many)).said, t.known), 4)


def test_a_part_that_comes_after_its_device_was_declared_dead_stays_hidden() -> None:
    """The key of a drop-out is opened; its self-mask still hides what it sent too late."""
    table = party(6)
    late = min(table.devices)

    def losing(outbox: Outbox):
        for device, reply in table.carry(outbox):
            if device != late or not isinstance(decode(reply), MaskedInput):
                yield device, reply

    ask = SecureOracle(table.opening, table.terms, table.parts, losing, table.known)
    assert ask(np.zeros(3), NU).count == 5
    assert late in {device for device, _, _ in masked(table)}
    known = determined(table.said, table.known)
    assert [one.members for one in known] == [frozenset(table.devices) - {late}]


def test_a_device_that_abstains_is_not_in_the_cohort() -> None:
    parts: dict[int, Contribution | None] = {**contributions(6, 3)}
    parts[5] = None
    table = party(parts)
    ask = table.oracle()
    assert ask(np.zeros(3), NU).count == 5
    assert "abstains" in str(ask.server.faults[5])
    assert ask.server.parameters.cohort == 5


def test_the_server_refuses_queries_without_a_meaning() -> None:
    ask = party(6).oracle()
    for v in (np.zeros(2), np.full(3, np.nan), np.full(3, 1e39)):
        with pytest.raises(ValueError, match="v must be 3 finite numbers"):
            ask(v, NU)
    with pytest.raises(ValueError, match="nu must be a positive number"):
        ask(np.zeros(3), 0.0)
    assert ask(np.zeros(3), NU).count == 6
    with pytest.raises(OracleStoppedError, match="all 1 masked sums"):
        ask(np.zeros(3), NU)


def test_nobody_joins() -> None:
    table = party(3, lost=dict.fromkeys(contributions(3, 3), START))
    with pytest.raises(TooFewDevicesError, match="0 devices joined the round"):
        table.oracle()


def test_nobody_may_leave_between_the_scalars_and_the_vectors_of_a_query() -> None:
    """However many leave: shares of a query are of the mass that was found for all."""
    terms = Terms(colluder_fraction=0.0, max_dropout_fraction=0.5, min_honest_fraction=0.25)
    devices = sorted(contributions(12, 3))
    for gone in (1, 6):
        table = party(
            12, terms, max_share=0.9, lost=dict.fromkeys(devices[:gone], Moment(1, Stage.SUM))
        )
        assert play(table, 1) == []
        with pytest.raises(SurvivorsChangedError):
            party(12, terms, max_share=0.9, lost=table.exchange.lost).unmasked()(np.zeros(3), NU)


def test_after_an_abort_no_sum_comes_any_more() -> None:
    devices = sorted(contributions(10, 3))
    for make in (Party.oracle, Party.unmasked):
        ask = make(party(10, queries=3, lost={devices[0]: Moment(1, Stage.SUM)}))
        ask(np.zeros(3), NU)
        with pytest.raises(SurvivorsChangedError):
            ask(np.zeros(3), NU)
        with pytest.raises(OracleStoppedError, match="the round has ended: 1 devices left"):
            ask(np.zeros(3), NU)


@pytest.mark.parametrize("queries", [0, 257])
def test_rounds_have_a_number_of_masked_sums_that_everyone_accepts(queries: int) -> None:
    with pytest.raises(ParameterError, match=r"from 1 on|at most 256 masked sums"):
        party(6, queries=queries)


def test_a_large_cohort_under_parameters_by_odds_gives_the_same_sum() -> None:
    """By default, with a tenth of the devices lost in the middle of the sum."""
    devices = sorted(contributions(160, 3))
    lost = dict.fromkeys(devices[::10], Moment(0, Stage.SUM))
    assert Terms().parameters(160).statistical
    assert check_round(160, Terms(), lost) == 1


@pytest.mark.parametrize("asked", [0, 1, 3])
def test_a_round_sums_as_many_metrics_as_it_says_the_first_ones(asked: int) -> None:
    table = party(contributions(6, 3, metrics=3))
    table.opening = dataclasses.replace(table.opening, metrics=asked)
    ((ours, ideal),) = play(table, 1)
    assert same(ours, ideal)
    assert ours is not None
    brought = np.sum([part.metrics for part in table.parts.values() if part], axis=0)
    assert ours.metrics == pytest.approx(tuple(brought[:asked]))
