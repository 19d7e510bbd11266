"""Receipts that a server signed though they are none, and lists of what a node sent."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from random import Random
from typing import Any

from rfa.aggregators import RFA, CenteredClipping, Groups, OneStepRFA
from rfa.receipts import Expected, Receipt, ReceiptError, Verifier, read_receipt
from rfa.receipts.receipt import to_sections
from rfa.receipts.sealed import Section, write_sealed
from rfa.secagg.device.sent import read_sent
from rfa.secagg.errors import SecAggError, VaultError
from tests.fuzz.engine import ACCEPTED
from tests.fuzz.mutate import mutate_bytes, mutate_fields, mutate_value
from tests.receipts.rounds import SECRET, Run
from tests.secagg.party import MALICIOUS

RUNS: dict[str, dict[str, Any]] = {
    "plain": {"aggregator": RFA(budget=2)},
    "signed": {"aggregator": OneStepRFA(), "terms": MALICIOUS},
    "groups": {"aggregator": Groups(OneStepRFA(), 2), "count": 12},
    "shares": {"aggregator": CenteredClipping(budget=1), "max_share": 0.9},
}


class Receipts:
    """Receipts of real rounds, changed, and signed after that: what holds, or a `ReceiptError`."""

    def __init__(self, folder: Path) -> None:
        self.last: Any = None
        self._path, self._list = folder / "forged.rfa", folder / "sent"
        self._known = {
            name: [read_receipt(path).receipt for path in Run(folder / name, **how).play(2)]
            for name, how in RUNS.items()
        }

    def one(self, rng: Random) -> str:
        """Verify a receipt that a server may have written; or read a list that a node may have."""
        if rng.random() < 0.1:
            return self._sent(rng)
        self.last = sections = self._sections(rng)
        write_sealed(self._path, sections, SECRET)
        try:
            Verifier(Expected()).check(self._path)
        except ReceiptError as error:
            told = str(error).strip()
        else:
            return ACCEPTED
        assert told, "a ReceiptError without a text"
        return ReceiptError.__name__

    def _sections(self, rng: Random) -> list[Section]:
        receipt: Receipt = rng.choice(self._known[rng.choice(list(RUNS))])
        if rng.random() < 0.5:
            try:
                return to_sections(_changed(rng, receipt))
            except (ArithmeticError, AttributeError, SecAggError, TypeError, ValueError) as error:
                self.last = error  # what cannot be written is no input
            except struct.error as error:
                self.last = error
        sections = to_sections(receipt)
        at = rng.randrange(len(sections))
        name, body = sections[at]
        sections[at] = (name, mutate_bytes(rng, body, [other for _, other in sections]))
        return sections

    def _sent(self, rng: Random) -> str:
        """A list of what a node sent, damaged."""
        digest = rng.randbytes(32).hex()
        lines = f"5 0 {digest[:32]} {digest} {digest}\n5 0 {digest[:32]} opened\n"
        self.last = data = mutate_bytes(rng, lines.encode())
        self._list.write_bytes(data)
        try:
            read_sent(self._list)
        except VaultError as error:
            return type(error).__name__
        return ACCEPTED


def _changed(rng: Random, receipt: Receipt) -> Receipt:
    """A receipt with a field changed: of itself, of a part, a sum or a total, or of a state."""
    number = rng.randrange(len(receipt.parts))
    part = receipt.parts[number]
    match rng.randrange(6):
        case 0:
            return mutate_fields(rng, receipt)
        case 1:
            part = dataclasses.replace(part, cohort=mutate_fields(rng, part.cohort))
        case 2 if part.sums:
            part = dataclasses.replace(part, sums=mutate_value(rng, part.sums))
        case 3 if part.totals:
            part = dataclasses.replace(part, totals=mutate_value(rng, part.totals))
        case 4:
            texts = (
                "rfa",
                "krum",
                "rfa:budget=1000000000",
                "os:system",
                "fedavg",
                "\x00",
                "a:b:c=1",
            )
            return dataclasses.replace(receipt, aggregator=rng.choice(texts))
        case _:
            name = rng.choice(("state_before", "state_after"))
            state = dict(getattr(receipt, name))
            if state:
                key = rng.choice(list(state))
                state[key] = mutate_value(rng, state[key].reshape(-1)) if rng.random() < 0.7 else 0
            return dataclasses.replace(receipt, **{name: state})
    parts = [*receipt.parts[:number], part, *receipt.parts[number + 1 :]]
    return dataclasses.replace(receipt, parts=tuple(parts))
