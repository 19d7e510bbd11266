"""Receipts of rounds with a radius for each block: radii and steps follow from the sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rfa.aggregators import BlockClipping, Groups
from rfa.receipts import ReceiptError, Verifier
from rfa.receipts.parts import CheckedPart
from rfa.receipts.receipt import Receipt
from rfa.receipts.replay import replay
from rfa.secagg import oracle
from rfa.secagg.device import joining
from rfa.secagg.messages.opening import OpenRound
from tests.receipts.rounds import Run


@pytest.mark.parametrize("fast", [False, True])
def test_receipts_of_several_rounds_hold(tmp_path: Path, fast: bool) -> None:
    run = Run(tmp_path, BlockClipping(size=2), dim=8, fast=fast)
    verifier = Verifier()
    verified = [verifier.check(path) for path in run.play(3)]
    states = [checked.signed.receipt.state_after["levels"] for checked in verified]
    assert len({state.tobytes() for state in states}) == 3


def test_groups_have_receipts_too(tmp_path: Path) -> None:
    run = Run(tmp_path, Groups(BlockClipping(size=3), 3), count=24, dim=8)
    Verifier().check(run.play()[0])


def test_other_radii_than_those_of_the_state_are_found_out(tmp_path: Path) -> None:
    run = Run(tmp_path, BlockClipping(size=2), dim=8)
    receipt, parts = checked(run)
    levels = receipt.state_before["levels"].copy()
    levels[0] += np.uint8(1)
    wrong = dataclasses.replace(receipt, state_before={**receipt.state_before, "levels": levels})
    with pytest.raises(ReceiptError, match="not asked at the v and nu"):
        replay(wrong, parts, run.aggregator)
    replay(receipt, parts, run.aggregator)


def test_a_round_that_no_device_joins_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server can record one over devices without the rule: its own, which sign nothing."""
    with monkeypatch.context() as patch:
        for module in (oracle, joining):
            patch.setattr(module, "block_fault", find_nothing)
        (path,) = Run(tmp_path, BlockClipping(size=1), dim=8).play()
    with pytest.raises(ReceiptError, match="of 8 coordinates one is a block by itself"):
        Verifier().check(path)


def find_nothing(_: OpenRound) -> str:
    """No fault of an opening."""
    return ""


def checked(run: Run) -> tuple[Receipt, Sequence[CheckedPart]]:
    """The receipt of the second round, and its parts."""
    verifier, found = Verifier(), None
    for path in run.play(2):
        found = verifier.check(path)
    assert found is not None
    return found.signed.receipt, found.parts
