"""The aggregator, run again on the sums that a receipt records, and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rfa._specs import parse_spec
from rfa._types import Vector
from rfa.aggregators import Result, SumAggregator, spec_of
from rfa.aggregators.base import pack_state, unpack_state
from rfa.aggregators.registry import build_private
from rfa.errors import (
    InvalidTypeError,
    InvalidValueError,
    OracleStoppedError,
    PluginError,
    RfaError,
)
from rfa.oracle import Sum
from rfa.radii import Radius
from rfa.receipts.errors import ReceiptError
from rfa.receipts.parts import CheckedPart, OpenedSum
from rfa.receipts.receipt import Receipt, state_bytes, sum_name
from rfa.secagg.blocks import sent_radius
from rfa.secagg.messages.values import as_sent
from rfa.secagg.transcript import point_of


class RecordedOracle:
    """Answers with the recorded sums of a part, if it is asked just as the devices were."""

    def __init__(self, part: CheckedPart) -> None:
        """Take a part whose sums were opened by the rules."""
        self._part = part
        self._left = list(part.sums)

    def __call__(self, v: Vector, nu: Radius) -> Sum:
        """The recorded sum at v.

        Raises:
            ReceiptError: if the devices were asked about something else, or not at all.
            OracleStoppedError: if the sums ended there.
        """
        if self._part.opening.max_share:
            self._next(v, nu)
        return self._next(v, nu).total.sum

    def check_over(self) -> None:
        """Check that no recorded sum is left.

        Raises:
            ReceiptError: naming one that the aggregator did not ask for.
        """
        if self._left:
            name = sum_name(self._part.number, len(self._part.sums) - len(self._left))
            msg = f"the aggregator does not ask for {name}"
            raise ReceiptError(msg)

    def _next(self, v: Vector, nu: Radius) -> OpenedSum:
        part = self._part
        if not self._left and part.stopped:
            raise OracleStoppedError(part.stopped)
        name = sum_name(part.number, len(part.sums) - len(self._left))
        if not self._left:
            msg = f"the aggregator asks for {name}, which is not recorded"
            raise ReceiptError(msg)
        opened = self._left.pop(0)
        least, levels = sent_radius(part.opening, nu)
        point = point_of(as_sent(v, part.opening.dim), float(least), levels)
        if opened.record.nu != least or opened.record.point != point:
            msg = f"{name} was not asked at the v and nu at which the aggregator asks"
            raise ReceiptError(msg)
        return opened


def build_recorded(text: str, expected: str | None) -> SumAggregator[Any]:
    """Return the aggregator that a receipt names.

    Args:
        text: what the receipt names.
        expected: the aggregator that the verifier expects. A user's own aggregator is code, and is
            loaded only if the verifier names it: no receipt decides which modules are imported.

    Raises:
        ReceiptError: if it is not the one that is expected, or cannot be built.
    """
    if expected is not None:
        aggregator = build_private(expected)
        named = str(spec_of(aggregator))
        if named != text:
            msg = f"it was aggregated by {text}, and not by {named}"
            raise ReceiptError(msg)
        return aggregator
    try:
        if parse_spec(text).is_plugin:
            msg = f"its aggregator is not of rfa: give --aggregator {text} if you trust its code"
            raise ReceiptError(msg)
        aggregator = build_private(text)
        named = str(spec_of(aggregator))
    except (InvalidValueError, InvalidTypeError, PluginError) as error:
        msg = f"its aggregator {text!r} cannot be built: {error}"
        raise ReceiptError(msg) from None
    if named != text:
        msg = f"its aggregator is written {text!r}, and rfa writes {named}"
        raise ReceiptError(msg)
    return aggregator


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what is not finite is found out
def replay(
    receipt: Receipt, parts: Sequence[CheckedPart], aggregator: SumAggregator[Any]
) -> Result:
    """Check that the step, the state after and the certificate follow from the sums, to the bit.

    Raises:
        ReceiptError: naming what does not.
    """
    oracles = [RecordedOracle(part) for part in parts]
    try:
        before = unpack_state(aggregator, receipt.state_before)
        if receipt.state_before and state_bytes(pack_state(before)) != state_bytes(
            receipt.state_before
        ):
            msg = f"the state before the round does not fit {receipt.aggregator}"
            raise ReceiptError(msg)
        result, after = aggregator(oracles, receipt.dim, before)
        state = pack_state(after)
    except ReceiptError:
        raise
    except (RfaError, ValueError, TypeError, ArithmeticError) as error:
        msg = f"the aggregator makes nothing of the sums: {error}"
        raise ReceiptError(msg) from None
    for oracle in oracles:
        oracle.check_over()
    if result.point.tobytes() != receipt.step.tobytes():
        away, length = np.linalg.norm(result.point - receipt.step), np.linalg.norm(result.point)
        msg = f"the step does not follow from the sums: it is {away:.3g} away from the aggregate, "
        msg += f"which is {length:.3g} long"
        raise ReceiptError(msg)
    if state_bytes(state) != state_bytes(receipt.state_after):
        msg = f"the state after the round is {receipt.state_after}, and the sums lead to {state}"
        raise ReceiptError(msg)
    if result.certificate != receipt.certificate:
        msg = f"the largest share is said to be {receipt.certificate}, and the sums prove "
        msg += f"{result.certificate}"
        raise ReceiptError(msg)
    return result
