"""Whoever has the masked inputs computes the totals again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.aggregators import RFA, OneStepRFA
from rfa.receipts import Receipt, ReceiptError, Verifier, check_total
from rfa.receipts.parts import CheckedPart
from rfa.secagg.in_process import Losses
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.records import TotalRecord
from rfa.secagg.messages.round import MaskedInput
from rfa.secagg.messages.stages import Moment, Stage
from tests.receipts.rounds import Run
from tests.secagg.party import MALICIOUS, SMALL, masked


def played(run: Run) -> tuple[CheckedPart, Receipt, list[dict[int, bytes]]]:
    """A part, its receipt, and the masked inputs of each of its masked sums."""
    verified = Verifier().check(run.play()[0])
    (part,) = verified.parts
    inputs: list[dict[int, bytes]] = [{} for _ in part.sums]
    for device, _, reply in masked(run.parties[0]):
        inputs[decode_as(MaskedInput, reply).masked_sum][device] = reply
    return part, verified.signed.receipt, inputs


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi-honest", "malicious"])
def test_the_totals_are_the_sums_of_the_masked_inputs(tmp_path: Path, terms: Any) -> None:
    run = Run(tmp_path, RFA(budget=3, nu=0.5), count=12, terms=terms)
    part, receipt, inputs = played(run)
    for index, total in enumerate(receipt.parts[0].totals):
        check_total(part, index, total, inputs[index])


def test_also_where_devices_dropped_out(tmp_path: Path) -> None:
    def lost(names: Sequence[int]) -> Losses:
        return {names[3]: Moment(0, Stage.SUM), names[5]: Moment(0, Stage.UNMASK)}

    part, receipt, (inputs,) = played(Run(tmp_path, OneStepRFA(), count=12, lost=lost))
    assert len(inputs) == 11
    check_total(part, 0, receipt.parts[0].totals[0], inputs)


def test_another_total_and_another_input_are_found(tmp_path: Path) -> None:
    part, receipt, (inputs,) = played(Run(tmp_path, OneStepRFA(), count=8))
    total = receipt.parts[0].totals[0]
    words = total.words + np.uint32(1)
    tail = (total.tail[0] + 1, *total.tail[1:])
    for other in (TotalRecord(total.tail, words), TotalRecord(tail, total.words)):
        with pytest.raises(ReceiptError, match="is not the sum of the masked inputs"):
            check_total(part, 0, other, inputs)
    device, message = next(iter(inputs.items()))
    changed = message[:-1] + bytes([message[-1] ^ 1])
    with pytest.raises(ReceiptError, match=f"device {device} in masked sum 0 of part 0 is not the"):
        check_total(part, 0, total, {**inputs, device: changed})
    del inputs[device]
    with pytest.raises(ReceiptError, match=f"device {device} in masked sum 0 of part 0 is not her"):
        check_total(part, 0, total, inputs)
