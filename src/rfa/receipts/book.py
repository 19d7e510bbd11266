"""The folder of a run's receipts: one file a round, each with the digest of the one before."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path

from rfa.errors import InvalidValueError
from rfa.receipts.errors import ReceiptError
from rfa.receipts.models import Model, digest_of, write_model
from rfa.receipts.receipt import FIRST, Receipt, Signed, read_receipt, write_receipt
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
        """Open a folder, or make it, for a run that has done some rounds.

        Args:
            folder: the folder.
            identity: the server's Ed25519 identity.
            model: the model from which the run goes on.
            done: how many rounds are done.

        Raises:
            InvalidValueError: if the folder holds receipts that the run does not go on from.
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
        if later := sorted(number for number in there if number > done):
            self._check_later(there[later[0]], later, digest_of(model), done)

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

    def _check_later(self, path: Path, later: list[int], model: bytes, done: int) -> None:
        """A server that stopped after a receipt and before its checkpoint does the round again."""
        signed: Signed | None = None
        with contextlib.suppress(ReceiptError):
            signed = read_receipt(path)
        again = signed and signed.receipt.previous == self.last
        if not again or later != [done + 1] or signed.receipt.model_before != model:
            msg = f"{self.folder} has receipts up to round {later[-1]}, and the run goes on after "
            msg += f"round {done}: give its checkpoint, or another folder"
            raise InvalidValueError(msg)
