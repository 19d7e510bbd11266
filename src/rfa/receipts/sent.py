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
    known = _entries_of(part, sent)
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


def _entries_of(part: CheckedPart, sent: Sequence[SentInput]) -> dict[tuple[int, int], SentInput]:
    """Return what devices of a part sent in it, by device and masked sum.

    Raises:
        ReceiptError: if one opened a sum of another round too, to which the server gave the same
            session: a receipt has one of the two.
    """
    listed, contexts = {keys.device for keys in part.keys}, {opened.context for opened in part.sums}
    own = [e for e in sent if e.session == part.opening.session and e.device in listed]
    own.sort(key=lambda entry: entry.context in contexts)  # of two, the one that is recorded
    known = {(entry.device, entry.masked_sum): entry for entry in own}
    for entry in own:
        if entry.opened and known[entry.device, entry.masked_sum] is not entry:
            name = sum_name(part.number, entry.masked_sum)
            msg = f"{name} was opened by device {entry.device}, with another cohort, v or nu, and "
            raise ReceiptError(msg + "is not recorded")
    return known


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
