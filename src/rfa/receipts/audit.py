"""The total of a masked sum, computed again by whoever has the masked inputs.

A receipt holds the secrets that opened its sums. They take the masks off the sum of the masked
inputs and off no input alone, so with the inputs, which are known by their digests, a total is no
longer the server's word.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rfa.receipts.errors import ReceiptError
from rfa.receipts.parts import CheckedPart
from rfa.receipts.receipt import sum_name, total_name
from rfa.secagg.crypto.masks import add_masks
from rfa.secagg.errors import SecAggError
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.records import TotalRecord
from rfa.secagg.messages.round import FirstInput, MaskedInput
from rfa.secagg.server.unmasking import masks_left
from rfa.secagg.transcript import input_digest
from rfa.secagg.words import TAIL, WORD


def check_total(
    part: CheckedPart, index: int, total: TotalRecord, inputs: Mapping[int, bytes]
) -> None:
    """Check that a total is the sum of masked inputs without their masks.

    Args:
        part: a part that was checked.
        index: which of its masked sums.
        total: its total, as the receipt has it.
        inputs: the messages with the masked inputs of the survivors, by device.

    Raises:
        ReceiptError: if an input is missing or is not the one in the receipt, or if the total is
            another.
    """
    opened, name = part.sums[index], sum_name(part.number, index)
    if part.cohort is None:  # a part without a cohort has no sums
        raise AssertionError
    words, tail = np.zeros(len(total.words), WORD), [0] * len(total.tail)
    for device, digest in part.inputs(opened).items():
        message = inputs.get(device)
        if message is None or input_digest(message) != digest:
            what = "is not here" if message is None else "is not the one in the receipt"
            msg = f"the masked input of device {device} in {name} {what}"
            raise ReceiptError(msg)
        try:
            masked = _masked(part, opened.record.masked_sum, message)
            words += masked.words
            tail = [(a + b) % TAIL for a, b in zip(tail, masked.tail, strict=True)]
        except (SecAggError, ValueError) as error:
            msg = f"the masked input of device {device} in {name} cannot be added: {error}"
            raise ReceiptError(msg) from None
    publics = [keys.mask_keys[opened.record.masked_sum] for keys in part.keys]
    secrets = dict(zip(sorted(opened.alive), opened.record.secrets, strict=True))
    masks = masks_left(part.cohort, publics, secrets, opened.survivors, opened.context)
    add_masks(words, tail, masks)
    if tuple(tail) != total.tail or words.tobytes() != total.words.tobytes():
        msg = f"{total_name(part.number, index)} is not the sum of the masked inputs"
        raise ReceiptError(msg)


def _masked(part: CheckedPart, masked_sum: int, message: bytes) -> MaskedInput:
    """A masked input from its message, which also brings shares in the first sum of a fast round.

    Raises:
        MessageError: if it is none.
    """
    if part.opening.is_first(masked_sum):
        return decode_as(FirstInput, message).masked
    return decode_as(MaskedInput, message)
