"""A radius for each block: what devices add, what it tells, and what they refuse."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.errors import InvalidValueError
from rfa.numerics.plain_oracle import PlainOracle
from rfa.oracle import Sum
from rfa.radii import TOP_LEVEL, Radii, count_blocks, lengths_of
from rfa.secagg.blocks import vote_bits
from rfa.secagg.errors import ImplausibleSumError, ParameterError, TooFewDevicesError
from rfa.secagg.fixed_point import HALF, Contribution, Encoding
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstSum, SumRequest
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.oracle import open_round
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.statistics import mask_of
from rfa.secagg.words import WORD
from tests.secagg.party import MALICIOUS, SMALL, contributions, equals, party

WARY = Policy(server_model=ServerModel.MALICIOUS, num_colluders=0, min_cohort=3)
MASK = mask_of({"weight"})
ZERO = np.empty(0, np.float32)


def levels(dim: int, size: int, seed: int = 0) -> Radii:
    """Radii around 1, of which some are tiny."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(140, 180, count_blocks(dim, size))
    drawn[::5] = 0
    return Radii(drawn.astype(np.uint8), size)


def encoding(cohort: int, size: int) -> Encoding:
    return Encoding(cohort, MASK, block=size)


@pytest.mark.parametrize("size", [1, 3, 8, 50])
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])
def test_secure_sums_are_those_in_the_clear_up_to_rounding(
    size: int, fast: bool, terms: Any
) -> None:
    dim, alone = 40, (40 - 1) % size == 0  # a coordinate by itself takes equal weights
    parts = equals(9, dim) if alone else contributions(9, dim, metrics=0)
    radii = levels(dim, size)
    policy = dataclasses.replace(WARY, any_radii=True) if terms is MALICIOUS else Policy()
    table = party(parts, terms, policy=policy, block=size, fast=fast)
    total = table.oracle()(np.zeros(dim), radii)
    updates, weights = zip(*((part.update, part.weight) for part in parts.values()), strict=True)
    clear = PlainOracle(np.stack(updates), np.array(weights))(np.zeros(dim), radii)
    assert total.count == 9
    assert total.need("weight") == pytest.approx(clear.need("weight"))
    assert np.abs(total.push - clear.push).max() <= 9 / encoding(9, size).scale
    assert total.mass is total.near is total.squares is None
    ideal = table.unmasked()(np.zeros(dim), radii)
    assert np.array_equal(total.push, ideal.push)
    assert np.array_equal(total.votes, ideal.votes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("stage", [Stage.ROSTER, Stage.SUM])
def test_drop_outs_leave_a_sum_over_the_others(fast: bool, stage: Stage) -> None:
    parts, radii = contributions(9, 20, metrics=0), levels(20, 4)
    gone = sorted(parts)[2]
    lost = {gone: Moment(0, stage)}
    total = party(parts, block=4, lost=lost, fast=fast).oracle()(np.zeros(20), radii)
    there = [part for device, part in parts.items() if device != gone or total.count == 9]
    clear = PlainOracle(
        np.stack([part.update for part in there]), np.array([part.weight for part in there])
    )(np.zeros(20), radii)
    # a fast round takes its first sum with the roster: who is lost later is in it
    assert total.count == (9 if fast and stage == Stage.SUM else 8)
    assert np.abs(total.push - clear.push).max() <= 9 / encoding(9, 4).scale


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 6),
    shape=st.tuples(st.integers(1, 30), st.integers(1, 12)),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e9, 3e38]),
    level=st.integers(0, TOP_LEVEL),
    seed=st.integers(0, 2**16),
)
def test_no_block_is_longer_than_the_weight_whatever_the_update_is(
    count: int, shape: tuple[int, int], scale: float, level: int, seed: int
) -> None:
    rng, (dim, size) = np.random.default_rng(seed), shape
    coder = encoding(count, size)
    radii = Radii(np.full(count_blocks(dim, size), level, np.uint8), size)
    words, tail, weight, most = np.zeros(dim, WORD), [0, 0], 0.0, 0
    for _ in range(count):
        update = np.clip(rng.standard_normal(dim) * scale, -3e38, 3e38).astype(np.float32)
        part = Contribution(update, float(rng.uniform(0.1, 1)))
        coded = coder.encode(part, ZERO, radii, rng.bytes(16))
        most = max(most, int(np.abs(coded.words.view(np.int32).astype(np.int64)).max()))
        words += coded.words
        weight += part.weight
        tail = [a + b for a, b in zip(tail, coded.tail, strict=True)]
    total = coder.decode(words, tail).sum
    slack = count * (np.sqrt(size) / coder.scale + 1e-9)
    assert lengths_of(total.push, size).max() <= weight + slack
    assert total.votes is not None
    assert ((total.votes >= 0) & (total.votes <= count)).all()
    assert count * most < HALF


@pytest.mark.parametrize("cohort", [1, 2, 3, 100, 1023, 1024, 8000])
def test_no_total_can_wrap_around_nor_votes_reach_the_push(cohort: int) -> None:
    coder = encoding(cohort, 1)
    assert cohort < 1 << vote_bits(cohort)
    assert cohort * (((coder.scale + 1) << vote_bits(cohort)) + 1) < HALF
    up = ((coder.scale + 1) << vote_bits(cohort)) + 1
    down = -((coder.scale + 1) << vote_bits(cohort)) + 1
    words = np.array([cohort * up, cohort * down], np.int64).astype(np.int32).view(WORD)
    found: Any = coder._vectors(words)  # pyright: ignore[reportPrivateUsage]
    assert found["votes"].tolist() == [cohort, cohort]
    assert found["push"] == pytest.approx([cohort * (1 + 1 / coder.scale)] * 2 * np.array([1, -1]))


def test_too_many_votes_leave_no_digits() -> None:
    with pytest.raises(
        ParameterError, match=r"votes of 20000 devices leave no digits.*give groups"
    ):
        encoding(20000, 1)


def test_half_of_the_votes_are_coins() -> None:
    """Whatever a device has, its vote is yes with probability 1/4 or 3/4."""
    dim, coder = 40000, encoding(3, 1)
    radii = Radii(np.full(dim, 160, np.uint8), 1)
    for value, share in ((0.0, 3 / 4), (100.0, 1 / 4)):
        part = Contribution(np.full(dim, value, np.float32))
        words = coder.encode(part, ZERO, radii, b"k" * 16).words.view(np.int32)
        votes = words & ((1 << coder.bits) - 1)
        assert votes.mean() == pytest.approx(share, abs=0.01)
        assert abs(np.corrcoef(votes[1:], votes[:-1])[0, 1]) < 0.02


def test_words_without_a_vote_hold_none() -> None:
    coder, radii = encoding(3, 4), levels(20, 4)
    words = coder.encode(Contribution(np.ones(20, np.float32)), ZERO, radii, b"k" * 16).words
    low = words.view(np.int32) & ((1 << coder.bits) - 1)
    assert not low.reshape(-1, 4)[:, 1:].any()


def test_what_no_devices_add_up_to_is_refused() -> None:
    coder = encoding(3, 2)
    tail = [2 * 2**96, 2]
    longer = np.array([(3 * coder.scale) << coder.bits, 0], np.int32).view(WORD)
    with pytest.raises(ImplausibleSumError, match=r"a block of the push is 3\.0 long"):
        coder.decode(longer, tail)
    with pytest.raises(ImplausibleSumError, match="3 of 2 devices vote"):
        coder.decode(np.array([3, 0], np.int32).view(WORD), tail)


def test_devices_that_do_not_trust_the_server_refuse_radii_by_default() -> None:
    table = party(equals(9, 3), MALICIOUS, policy=WARY, block=1)
    with pytest.raises(TooFewDevicesError):
        table.oracle()(np.zeros(3), levels(3, 1))
    refused = {type(error).__name__ for error in table.exchange.refused.values()}
    assert refused == {"ChosenQueryError"}
    assert "any_radii=True" in str(next(iter(table.exchange.refused.values())))


def test_the_least_radius_is_the_device_s_own() -> None:
    table = party(equals(9, 3), policy=Policy(min_nu=1e-3), block=1)
    with pytest.raises(TooFewDevicesError):
        table.oracle()(np.zeros(3), levels(3, 1))
    assert {type(error).__name__ for error in table.exchange.refused.values()} == {
        "SmallRadiusError"
    }


@pytest.mark.parametrize(
    "change",
    [
        {"levels": b"\1\2"},
        {"levels": b"\1\2\3\4"},
        {"levels": b""},
        {"nu": 0.5},
    ],
)
@pytest.mark.parametrize("fast", [False, True])
def test_radii_that_are_none_of_the_round_are_refused(change: dict[str, Any], fast: bool) -> None:
    table = party(equals(9, 3), block=1, fast=fast)
    change_requests(table, change)
    with pytest.raises(TooFewDevicesError):
        table.oracle()(np.zeros(3), levels(3, 1))
    refused = {type(error).__name__ for error in table.exchange.refused.values()}
    assert refused == {"NotCanonicalError"}


def test_radii_in_a_round_of_one_radius_are_refused() -> None:
    table = party(9)
    change_requests(table, {"levels": b"\1\2\3", "nu": Radii(np.array([1], np.uint8)).nu})
    with pytest.raises(TooFewDevicesError):
        table.oracle()(np.zeros(3), 1.0)
    assert {type(error).__name__ for error in table.exchange.refused.values()} == {
        "NotCanonicalError"
    }


def change_requests(table: Any, change: dict[str, Any]) -> None:
    """Let every request for a sum be another one than the server meant."""
    for device in table.devices.values():
        receive = device.receive

        def changed(request: bytes, receive: Any = receive) -> Any:
            message = decode(request)
            if isinstance(message, SumRequest | FirstSum):
                request = dataclasses.replace(message, **change).encode()
            return receive(request)

        device.receive = changed


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"queries": 2}, "2 queries: a round has one, so give queries=1"),
        ({"max_share": 0.5}, "give max_share=0"),
        ({"noise": 1.0, "equal_weights": True}, "noise is for a push that is clipped as a whole"),
        ({"statistics": {"near"}}, r"the totals \['near'\] need one radius"),
        ({"block": -1}, "block must be"),
    ],
)
def test_what_does_not_go_with_blocks_is_said(how: dict[str, Any], why: str) -> None:
    usual: dict[str, Any] = {"queries": 1, "dim": 8, "statistics": {"weight"}, "block": 4}
    with pytest.raises(ParameterError, match=why):
        open_round(1, SMALL, **usual | how)


def test_a_round_is_asked_with_the_radii_that_it_was_opened_for() -> None:
    for opened, asked in ((0, levels(3, 1)), (1, 1.0), (1, levels(3, 2))):
        table = party(equals(9, 3), block=opened)
        for oracle in (table.oracle(), table.unmasked()):
            with pytest.raises(InvalidValueError, match="give the same to both"):
                oracle(np.zeros(3), asked)


def test_tiny_radii_count_signs_and_large_ones_add_values() -> None:
    """All that radii of a malicious server's choice make of a coordinate: a count, or a mean."""
    updates = np.random.default_rng(0).standard_normal((9, 2)).astype(np.float32)
    radii = Radii(np.array([0, TOP_LEVEL], np.uint8), 1)
    total: Sum = PlainOracle(updates)(np.zeros(2), radii)
    assert total.push[0] == pytest.approx(np.sign(updates[:, 0]).sum())
    assert total.push[1] * radii.values[1] == pytest.approx(updates[:, 1].sum(), rel=1e-6)


def test_a_device_that_is_asked_with_one_huge_block_takes_no_memory_for_it() -> None:
    size = 2**32 - 1
    part, radii = Contribution(np.ones(20, np.float32)), Radii(np.array([160], np.uint8), size)
    words = encoding(3, size).encode(part, ZERO, radii, b"k" * 16).words
    of_all = Radii(radii.levels, 20)
    assert np.array_equal(words, encoding(3, 20).encode(part, ZERO, of_all, b"k" * 16).words)
