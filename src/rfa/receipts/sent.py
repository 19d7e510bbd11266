"""Whether receipts say of a device what the device itself knows that it sent."""

from __future__ import annotations

from collections.abc import Sequence

from rfa.receipts.errors import ReceiptError
from rfa.receipts.parts import CheckedPart
from rfa.receipts.receipt import sum_name
from rfa.secagg.device.sent import SentInput


def check_sent(parts: Sequence[CheckedPart], sent: Sequence[SentInput]) -> int:
    """Check what a receipt says of a device, and count its masked inputs in the sums.

    Raises:
        ReceiptError: if an input of the device is missing, is another one, or was never sent.
    """
    _check_listed(parts, sent)
    devices = {entry.device for entry in sent}
    return sum(_check_part(part, sent, devices) for part in parts)


def _check_listed(parts: Sequence[CheckedPart], sent: Sequence[SentInput]) -> None:
    """Check that a device that sent an input is in a part.

    In a fast round a second roster is without those whose first input did not come in time.

    Raises:
        ReceiptError: naming the first that is in none.
    """
    sessions = {part.opening.session for part in parts}
    there = {keys.device for part in parts for keys in part.keys}
    for entry in sent:
        if entry.session in sessions and entry.device not in there:
            which = f"masked sum {entry.masked_sum}"
            msg = f"no part has device {entry.device}, which sent an input for {which}: it came "
            msg += "late, or was left out"
            if entry.opened:
                msg = f"no part has device {entry.device}, which opened {which}"
            raise ReceiptError(msg)


def _check_part(part: CheckedPart, sent: Sequence[SentInput], devices: set[int]) -> int:
    session, listed = part.opening.session, {keys.device for keys in part.keys}
    known = {
        (entry.device, entry.masked_sum): entry
        for entry in sent
        if entry.session == session and entry.device in listed
    }
    found = 0
    for opened in part.sums:
        number = opened.record.masked_sum
        name = sum_name(part.number, number)
        inputs = part.inputs(opened)
        for device in devices & set(inputs) | {who for who, which in known if which == number}:
            entry, digest = known.get((device, number)), inputs.get(device)
            if entry is None:
                msg = f"{name} has an input of device {device}, which did not send one"
                raise ReceiptError(msg)
            _check_input(name, entry, digest, opened.context)
            found += 1
    recorded = {opened.record.masked_sum for opened in part.sums}
    _check_hidden(part, [entry for (_, which), entry in known.items() if which not in recorded])
    return found


def _check_input(name: str, entry: SentInput, digest: bytes | None, context: bytes) -> None:
    """Check that a sum has the input that a device sent, to what it was asked.

    Raises:
        ReceiptError: if it has not.
    """
    if digest is None:
        msg = f"{name} is without the input that device {entry.device} sent: it came late, or "
        msg += "was left out"
        raise ReceiptError(msg)
    if digest != entry.digest:
        msg = f"{name} has another input of device {entry.device} than the one it sent"
        raise ReceiptError(msg)
    if context != entry.context:
        msg = f"{name} is recorded with another cohort, v or nu than device {entry.device} was "
        msg += "asked with"
        raise ReceiptError(msg)


def _check_hidden(part: CheckedPart, hidden: Sequence[SentInput]) -> None:
    """Check that no sum that is not recorded was opened, or asked for in a part that did not stop.

    The first sum of a fast round is not opened if a second roster takes its place.

    Raises:
        ReceiptError: naming the first.
    """
    for entry in sorted(hidden, key=lambda entry: entry.masked_sum):
        name = sum_name(part.number, entry.masked_sum)
        if entry.opened:
            msg = f"{name} was opened by device {entry.device}, and is not recorded"
            raise ReceiptError(msg)
        if not part.stopped and not _was_replaced(part, entry):
            msg = f"{name} was asked for, and is not recorded"
            raise ReceiptError(msg)


def _was_replaced(part: CheckedPart, entry: SentInput) -> bool:
    """Whether an input is to the first sum of a fast round that a second roster replaces."""
    opening = part.opening
    first = part.sums[0].record.masked_sum if part.sums else 0
    return opening.is_first(entry.masked_sum) and first == opening.each_roster
