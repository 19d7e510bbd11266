"""The folder of a run's receipts: one file a round, each with the digest of the one before."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from rfa.errors import InvalidValueError
from rfa.receipts.errors import ReceiptError
from rfa.receipts.models import Model, digest_of, write_model
from rfa.receipts.receipt import FIRST, Receipt, read_receipt, write_receipt
from rfa.secagg.crypto.keys import identity_of

FIRST_MODEL = "first-model.npz"
_NAME = re.compile(r"round-(\d{4,})\.rfa")


class ReceiptBook:
    """Writes the receipts of a run.

    Attributes:
        folder: the folder.
        last: the digest of the last receipt; zeros before the first.
    """

    def __init__(self, folder: Path, identity: bytes, model: Model, done: int) -> None:
        """Open or create a folder for a run that has done some rounds.

        Args:
            folder: the folder.
            identity: the server's Ed25519 identity.
            model: the model from which the run continues.
            done: the number of rounds that are done.

        Raises:
            InvalidValueError: if the folder has receipts that the run does not continue.
        """
        self.folder, self._identity, self.last = folder, identity, FIRST
        try:
            folder.mkdir(parents=True, exist_ok=True)
            there = {
                int(match[1]): path
                for path in folder.iterdir()
                if (match := _NAME.fullmatch(path.name))
            }
            if last := max((number for number in there if number <= done), default=0):
                self.last = self._go_on(there[last], digest_of(model))
            elif not there:
                write_model(folder / FIRST_MODEL, model)
        except (OSError, ReceiptError) as error:
            msg = f"no receipts can be written to {folder}: {error}"
            raise InvalidValueError(msg) from None
        later = sorted(number for number in there if number > done)
        # A server that stopped after a receipt and before its checkpoint does that round again.
        again = later == [done + 1] and self._is_done_again(there[done + 1], digest_of(model))
        if later and not again:
            msg = f"{folder} has receipts up to round {later[-1]}, and the run goes on after round "
            msg += f"{done}: give its checkpoint, or another folder"
            raise InvalidValueError(msg)

    def write(self, receipt: Receipt) -> Path:
        """Sign a receipt as what follows the last one, and write it."""
        path = self.folder / f"round-{receipt.round:04}.rfa"
        receipt = dataclasses.replace(receipt, previous=self.last)
        self.last = write_receipt(path, receipt, self._identity)
        return path

    def _go_on(self, path: Path, model: bytes) -> bytes:
        """The digest of the last receipt, if it leads to where the run is."""
        signed = read_receipt(path)
        if signed.signer != identity_of(self._identity):
            msg = f"{path.name} is signed by {signed.signer.hex()}, which is another identity"
            raise ReceiptError(msg)
        if signed.receipt.model_after != model:
            msg = f"{path.name} leads to another model than the checkpoint has"
            raise ReceiptError(msg)
        return signed.digest

    def _is_done_again(self, path: Path, model: bytes) -> bool:
        """Whether a receipt is of the very round that comes next: the server stopped after it."""
        try:
            receipt = read_receipt(path).receipt
        except ReceiptError:
            return False
        return (receipt.previous, receipt.model_before) == (self.last, model)
