"""What a device still has after each answer, and the request that it answers next."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rfa.secagg.device.forgetting import after_dealing, after_masking, after_opening
from rfa.secagg.device.memory import GONE, Memory
from rfa.secagg.device.order import check_due, is_over, may_take_back, released
from rfa.secagg.errors import AskedTwiceError, OtherSessionError, OutOfStageError
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import MaskedInput, SumRequest, Unmask
from rfa.secagg.messages.stages import LEFT, Moment, Stage
from rfa.secagg.oracle import open_round
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.terms import Terms


def a_round(model: ServerModel = ServerModel.SEMI_HONEST, *, fast: bool = False) -> OpenRound:
    return open_round(1, Terms(server_model=model), queries=2, dim=3, fast=fast)


def secrets(letter: bytes, opening: OpenRound) -> tuple[bytes, ...]:
    return tuple(letter * 31 + bytes([at + 1]) for at in range(opening.masked_sums))


def joined(opening: OpenRound) -> Memory:
    """The state of a device that has all of its secrets."""
    return Memory(
        round=1,
        due=Moment(0, Stage.ROSTER),
        opening=opening.encode(),
        sealing=b"s" * 32,
        masks=secrets(b"m", opening),
        seeds=secrets(b"e", opening),
        rounding=b"r" * 32,
        noise=b"n" * 32,
    )


def request(opening: OpenRound, masked_sum: int = 0) -> SumRequest:
    v = np.zeros(0, "<f4")
    return SumRequest(opening.session, masked_sum, 1, 0.5, 0, b"\x07", (), v, b"")


def masked(memory: Memory, opening: OpenRound, masked_sum: int = 0) -> Memory:
    asked, context, point = request(opening, masked_sum), b"c" * 32, b"a" * 32
    return after_masking(
        memory, opening, asked, shares=(b"x",), context=context, asked=point, charge=0.25
    )


def kept(values: tuple[bytes, ...]) -> list[int]:
    """The masked sums whose secrets are still there."""
    return [at for at, value in enumerate(values) if value != GONE]


def test_a_device_that_dealt_keeps_what_it_dealt() -> None:
    opening = a_round()
    after = after_dealing(joined(opening), opening, 0, b"roster", (b"k" * 32,))
    assert (after.due, after.roster, after.sealing) == (Moment(0, Stage.SUM), b"roster", GONE)
    assert kept(after.masks) == kept(after.seeds) == [0, 1]


def test_before_a_fast_sum_a_device_can_still_deal_again() -> None:
    opening = a_round(fast=True)
    after = after_dealing(joined(opening), opening, 0, b"roster", ())
    assert after.sealing != GONE
    assert kept(after.masks) == [0, 1, 2, 3]
    again = after_dealing(after, opening, 2, b"second", ())
    assert again.sealing == GONE
    assert kept(again.masks) == kept(again.seeds) == [2, 3]


@pytest.mark.parametrize("model", ServerModel)
def test_a_masked_input_takes_its_secrets_with_it(model: ServerModel) -> None:
    opening = a_round(model)
    after = masked(joined(opening), opening)
    stage = Stage.SURVIVORS if model == ServerModel.MALICIOUS else Stage.UNMASK
    assert after.due == Moment(0, stage)
    assert kept(after.masks) == kept(after.seeds) == [1]
    assert (after.rho, after.charged, after.nu) == (0.25, 0.0, 0.5)
    assert after.noise != GONE
    assert masked(after, opening, 1).noise == GONE


@pytest.mark.parametrize("model", ServerModel)
def test_a_fast_sum_is_not_signed_and_may_be_asked_again(model: ServerModel) -> None:
    opening = dataclasses.replace(a_round(model, fast=True), queries=1)
    after = masked(joined(opening), opening)
    assert after.due == Moment(0, Stage.UNMASK)
    assert after.charged == 0.25
    assert after.noise != GONE
    opened = after_opening(after, opening, Unmask(opening.session, 0, b"\x07", ()))
    assert opened.noise == GONE


def test_an_opened_sum_leaves_no_share_and_the_last_one_no_secret() -> None:
    opening = a_round()
    before = masked(joined(opening), opening)
    unmask = Unmask(opening.session, 0, b"\x07", ())
    after = after_opening(before, opening, unmask)
    assert (after.due, after.shares, after.survivors) == (Moment(1, Stage.SUM), (), b"\x07")
    assert after.rounding != GONE
    assert released(before, after)
    last = after_opening(
        masked(after, opening, 1), opening, Unmask(opening.session, 1, b"\x07", ())
    )
    assert (last.incoming, last.rounding, last.noise) == ((), GONE, GONE)
    assert kept(last.masks) == kept(last.seeds) == []
    assert is_over(last)
    assert not is_over(after)


def test_a_fast_sum_that_is_opened_takes_the_second_roster_with_it() -> None:
    opening = a_round(fast=True)
    before = masked(joined(opening), opening)
    after = after_opening(before, opening, Unmask(opening.session, 0, b"\x07", ()))
    assert after.sealing == GONE
    assert kept(after.masks) == kept(after.seeds) == [1]
    assert after.charged == 0.0


def test_requests_are_answered_in_order() -> None:
    opening = a_round()
    memory = dataclasses.replace(joined(opening), due=Moment(1, Stage.SUM))
    check_due(request(opening, 1), memory, abstains=False)
    with pytest.raises(AskedTwiceError):
        check_due(request(opening, 0), memory, abstains=False)
    with pytest.raises(OutOfStageError, match="out of order"):
        check_due(request(opening, 2), memory, abstains=False)
    with pytest.raises(OutOfStageError, match="out of order"):
        check_due(request(opening, 1), memory, abstains=True)
    with pytest.raises(OtherSessionError):
        check_due(request(a_round(), 1), memory, abstains=False)
    with pytest.raises(OutOfStageError, match="left the round"):
        check_due(request(opening, 1), memory.left(), abstains=False)
    reply = MaskedInput(opening.session, 1, (), np.zeros(0, "<u4"))
    with pytest.raises(OutOfStageError, match="not a request"):
        check_due(reply, memory, abstains=False)


def test_only_a_trusted_server_takes_back_a_sum_that_nobody_opened() -> None:
    memory = joined(a_round())
    assert may_take_back(memory)
    assert not may_take_back(joined(a_round(ServerModel.MALICIOUS)))
    assert not may_take_back(dataclasses.replace(memory, survivors=b"\x07"))
    assert not may_take_back(dataclasses.replace(memory, due=LEFT))
    assert not may_take_back(Memory())
