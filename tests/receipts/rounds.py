"""Rounds in this process with receipts, for the tests of receipts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rfa.aggregators import SumAggregator, spec_of
from rfa.aggregators.base import pack_state
from rfa.errors import OracleStoppedError
from rfa.oracle import SumOracle, stopped_oracle
from rfa.receipts import Receipt, ReceiptBook
from rfa.receipts.models import Model, apply_step, digest_of
from rfa.receipts.receipt import FIRST, to_sections
from rfa.receipts.sealed import Section, write_sealed
from rfa.secagg.in_process import Losses
from rfa.secagg.messages.records import PartRecord
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.recorder import Recorder
from tests.secagg.party import SMALL, Party, contributions, equals, party

DIM = 3
SECRET = bytes(range(32))
"""The server's identity."""


def first_model(dim: int = DIM) -> dict[str, Any]:
    return {"w": np.linspace(-1, 1, dim, dtype=np.float32), "seen": np.array(7)}


@dataclasses.dataclass
class Run:
    """A run of an aggregator over devices in this process, which keeps receipts.

    Attributes:
        parties: all parties of the last round, one a part.
    """

    folder: Path
    aggregator: SumAggregator[Any]
    count: int = 8
    terms: Terms = SMALL
    max_share: float = 0.0
    dim: int = DIM
    lost: Callable[[Sequence[int]], Losses] | None = None
    noise: float = 0.0
    fast: bool = False

    def __post_init__(self) -> None:
        self.model: Model = first_model(self.dim)
        self.state: Any = None
        self.round = 0
        self.parties: list[Party] = []
        self.book = ReceiptBook(self.folder, SECRET, self.model, 0)

    def play(self, rounds: int = 1) -> list[Path]:
        return [self.book.write(self.receipt()) for _ in range(rounds)]

    def receipt(self) -> Receipt:
        """Another round."""
        self.round += 1
        layout = self.aggregator.layout(self.count)
        make = equals if self.noise else contributions
        brought = make(self.count, self.dim, seed=self.round)
        names = sorted(brought)
        recorders: list[Recorder] = []
        oracles: list[SumOracle] = []
        self.parties = []
        for part in range(layout.parts):
            chosen = names[part :: layout.parts]
            lost = self.lost(chosen) if self.lost else None
            table = party(
                {name: brought[name] for name in chosen},
                self.terms,
                queries=layout.queries,
                max_share=self.max_share,
                lost=lost,
                number=100 * self.round + part,
                noise=self.noise,
                fast=self.fast,
                block=self.aggregator.block,
            )
            recorder = Recorder(table.opening)
            self.parties.append(table)
            recorders.append(recorder)
            oracles.append(_oracle(table, recorder))
        before, model = self.state, self.model
        result, self.state = self.aggregator(oracles, self.dim, before)
        self.model = apply_step(model, result.point)
        return Receipt(
            self.round,
            FIRST,
            str(spec_of(self.aggregator)),
            self.count,
            tuple(recorder.part for recorder in recorders),
            pack_state(before),
            pack_state(self.state),
            result.point,
            result.certificate,
            digest_of(model),
            digest_of(self.model),
        )


def _oracle(table: Party, recorder: Recorder) -> SumOracle:
    try:
        return SecureOracle(
            table.opening,
            table.terms,
            table.parts,
            table.carry,
            table.known,
            recorder=recorder,
        )
    except OracleStoppedError as error:
        return stopped_oracle(error)


def with_part(receipt: Receipt, number: int, **changes: Any) -> Receipt:
    """A receipt with a part that is changed: cohort=..., or sums={index: ...}, totals=..."""
    part = receipt.parts[number]
    cohort = dataclasses.replace(part.cohort, **changes.get("cohort", {}))
    sums = _changed(part.sums, changes.get("sums", {}))
    totals = _changed(part.totals, changes.get("totals", {}))
    parts = list(receipt.parts)
    parts[number] = PartRecord(cohort, sums, totals)
    return dataclasses.replace(receipt, parts=tuple(parts))


def _changed(values: tuple[Any, ...], changes: Mapping[int, dict[str, Any]]) -> tuple[Any, ...]:
    return tuple(
        dataclasses.replace(value, **changes.get(index, {})) for index, value in enumerate(values)
    )


def forge(path: Path, receipt: Receipt, identity: bytes = SECRET) -> Path:
    """A receipt as a server that lies would sign it."""
    write_sealed(path, to_sections(receipt), identity)
    return path


def sections_of(receipt: Receipt) -> list[Section]:
    return to_sections(receipt)
