"""Receipts of fast rounds: of the first sum with the roster, and of those after a loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.aggregators import RFA, OneStepRFA
from rfa.receipts import ReceiptError, Verifier, check_total
from rfa.receipts.receipt import Receipt
from rfa.receipts.sent import check_sent
from rfa.secagg.device.sent import read_sent
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.in_process import Losses
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.round import FirstInput, MaskedInput
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.messages.values import write_bitmap
from rfa.secagg.security.terms import Terms
from tests.receipts import rounds
from tests.receipts.rounds import Run, forge, with_part
from tests.secagg.party import MALICIOUS, SMALL, Party
from tests.secagg.test_vault import profile

MODELS = pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])


def one_lost(names: Sequence[int]) -> Losses:
    return {names[3]: Moment(0, Stage.ROSTER)}


def inputs_of(table: Party, masked_sum: int) -> dict[int, bytes]:
    """The messages with the inputs to a masked sum, by device."""
    found: dict[int, bytes] = {}
    for device, _, reply in table.said:
        message = decode(reply) if reply else None
        at = message.masked_sum if isinstance(message, MaskedInput) else None
        if at == masked_sum or (isinstance(message, FirstInput) and not masked_sum):
            found[device] = reply or b""
    return found


@MODELS
@pytest.mark.parametrize(("lost", "sums"), [(None, [0, 1, 2]), (one_lost, [3, 4, 5])])
def test_a_receipt_of_a_fast_round_holds_and_its_totals_are_computed_again(
    tmp_path: Path, terms: Terms, lost: Any, sums: list[int]
) -> None:
    run = Run(tmp_path, RFA(budget=3, nu=0.5), count=12, terms=terms, lost=lost, fast=True)
    verified = Verifier().check(run.play()[0])
    (part,) = verified.parts
    assert [opened.record.masked_sum for opened in part.sums] == sums
    for index, total in enumerate(verified.signed.receipt.parts[0].totals):
        inputs = inputs_of(run.parties[0], sums[index])
        check_total(part, index, total, inputs)
        wrong = dataclasses.replace(total, words=total.words + np.uint32(1))
        with pytest.raises(ReceiptError, match="is not the sum of the masked inputs"):
            check_total(part, index, wrong, inputs)


def refused(tmp_path: Path, receipt: Receipt) -> str:
    with pytest.raises(ReceiptError) as caught:
        Verifier().check(forge(tmp_path / "lie.rfa", receipt))
    return str(caught.value)


def renumbered(*numbers: int) -> Callable[[Receipt], Receipt]:
    return lambda receipt: with_part(
        receipt, 0, sums={index: {"masked_sum": number} for index, number in enumerate(numbers)}
    )


@MODELS
@pytest.mark.parametrize("numbers", [(0, 2), (1, 2), (0, 3), (2, 1), (1, 0), (3, 4), (2, 2)])
def test_sums_of_two_rosters_or_out_of_order_are_refused(
    tmp_path: Path, terms: Terms, numbers: tuple[int, int]
) -> None:
    """Two queries: a round has sums 0 and 1, or, of a second roster, 2 and 3."""
    run = Run(tmp_path, RFA(budget=2, nu=0.5), count=12, terms=terms, fast=True)
    receipt = run.receipt()
    assert len(receipt.parts[0].sums) == 2
    words = refused(tmp_path, renumbered(*numbers)(receipt))
    moved = terms is MALICIOUS and numbers[0] == 2  # then its signatures tell first
    wanted = "is not under these survivors" if moved else "it is called masked sum"
    assert wanted in words


@MODELS
def test_the_sum_of_a_second_roster_is_not_that_of_the_first(tmp_path: Path, terms: Terms) -> None:
    """What is signed, and what keys are, depends on the number."""
    run = Run(tmp_path, OneStepRFA(), count=12, terms=terms, fast=True, lost=one_lost)
    lied = renumbered(0)(run.receipt())
    if terms is MALICIOUS:
        assert "is not under these survivors and this request" in refused(tmp_path, lied)
        return
    (part,) = Verifier().check(forge(tmp_path / "lie.rfa", lied)).parts  # nobody signs in it
    with pytest.raises(ReceiptError, match="a message FirstInput is wanted"):
        check_total(part, 0, lied.parts[0].totals[0], inputs_of(run.parties[0], 1))


@MODELS
def test_a_first_sum_is_over_all_and_signed(tmp_path: Path, terms: Terms) -> None:
    receipt = Run(tmp_path, OneStepRFA(), count=12, terms=terms, fast=True).receipt()
    (asked,) = receipt.parts[0].sums
    fewer = write_bitmap(range(11), 12)
    changed = with_part(receipt, 0, sums={0: {"survivors": fewer, "inputs": asked.inputs[:-1]}})
    assert "over all of them or not opened" in refused(tmp_path, changed)
    if terms is MALICIOUS:
        unsigned = with_part(receipt, 0, sums={0: {"signatures": asked.signatures[:6]}})
        assert "6 devices signed it, and 8 must" in refused(tmp_path, unsigned)


def test_a_round_that_is_fast_in_another_way_is_refused(tmp_path: Path) -> None:
    receipt = Run(tmp_path, OneStepRFA(), count=8, fast=True).receipt()
    opening: Any = decode(receipt.parts[0].cohort.opening)
    for changes in ({"fast": 2}, {"fast": 1, "max_share": 0.5}):
        forged = dataclasses.replace(opening, **changes).encode()
        assert "fast=" in refused(tmp_path, with_part(receipt, 0, cohort={"opening": forged}))


@MODELS
@pytest.mark.parametrize("lost", [None, one_lost])
def test_the_list_of_a_device_fits_the_receipt(tmp_path: Path, terms: Terms, lost: Any) -> None:
    """An input to a first sum that was never opened is in no receipt, and hides nothing."""
    run = Run(tmp_path / "run", OneStepRFA(), count=12, terms=terms, lost=lost, fast=True)
    log = tmp_path / "sent"

    def durable(table: Party) -> None:
        name = max(table.devices)
        device = DurableDevice(tmp_path / "store", profile(table, name), sent=log)
        device.bring(table.parts[name])
        table.exchange.devices = {**table.exchange.devices, name: device}  # type: ignore[dict-item]

    receipt = _with_devices(run, durable)
    verified = Verifier().check(forge(tmp_path / "one.rfa", receipt))
    made = read_sent(log)
    first = 1 if lost else 0
    assert [(entry.masked_sum, entry.opened) for entry in made][-1] == (first, True)
    assert len(made) == 1 + bool(lost)
    assert check_sent(verified.parts, made) == 1
    opened = [dataclasses.replace(entry, opened=True) for entry in made]
    if lost:
        with pytest.raises(ReceiptError, match="masked sum 0 of part 0 was opened by device"):
            check_sent(verified.parts, opened)


def _with_devices(run: Run, change: Callable[[Party], None]) -> Receipt:
    """Another round, with devices that are changed before it."""
    oracle = rounds._oracle  # pyright: ignore[reportPrivateUsage]

    def changed(table: Party, recorder: Any) -> Any:
        change(table)
        return oracle(table, recorder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "_oracle", changed)
        return run.receipt()
