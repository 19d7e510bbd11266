"""Whether receipts say of a device what the device itself knows that it sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rfa.receipts.errors import ReceiptError
from rfa.receipts.parts import CheckedPart
from rfa.receipts.receipt import sum_name
from rfa.secagg.device.sent import SentInput


def check_sent(parts: Iterable[CheckedPart], sent: Sequence[SentInput]) -> int:
    """Check what receipts say of a device, and count its masked inputs in the sums.

    Raises:
        ReceiptError: if an input of the device is missing, is another one, or was never sent.
    """
    devices = {entry.device for entry in sent}
    return sum(_check_part(part, sent, devices) for part in parts)


def _check_part(part: CheckedPart, sent: Sequence[SentInput], devices: set[int]) -> int:
    session = part.opening.session
    known = {(entry.device, entry.masked_sum): entry for entry in sent if entry.session == session}
    found = 0
    for index, opened in enumerate(part.sums):
        name = sum_name(part.number, index)
        inputs = part.inputs(opened)
        for device in devices & set(inputs) | {who for who, which in known if which == index}:
            entry, digest = known.get((device, index)), inputs.get(device)
            if entry is None:
                msg = f"{name} has an input of device {device}, which did not send one"
                raise ReceiptError(msg)
            if digest is None:
                msg = f"{name} is without the input that device {device} sent: it came late, or "
                msg += "was left out"
                raise ReceiptError(msg)
            if digest != entry.digest:
                msg = f"{name} has another input of device {device} than the one it sent"
                raise ReceiptError(msg)
            if opened.context != entry.context:
                msg = f"{name} is recorded with another cohort, v or nu than device {device} was "
                msg += "asked with"
                raise ReceiptError(msg)
            found += 1
    _check_hidden(part, [entry for (_, which), entry in known.items() if which >= len(part.sums)])
    return found


def _check_hidden(part: CheckedPart, hidden: Sequence[SentInput]) -> None:
    """Check that no sum that is not recorded was opened, or asked for in a part that did not stop.

    Raises:
        ReceiptError: naming the first.
    """
    for entry in sorted(hidden, key=lambda entry: entry.masked_sum):
        name = sum_name(part.number, entry.masked_sum)
        if entry.opened:
            msg = f"{name} was opened by device {entry.device}, and is not recorded"
            raise ReceiptError(msg)
        if not part.stopped:
            msg = f"{name} was asked for, and is not recorded"
            raise ReceiptError(msg)
