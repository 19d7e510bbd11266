"""The content of a receipt, and how it is written in sections.

A receipt has the sums of a round and the step that follows from them. Of a single device it has
only digests and public keys. Publishing it publishes the sums.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rfa._types import Array, Floats
from rfa.receipts.errors import ReceiptError
from rfa.receipts.sealed import Section, parse_section, read_sealed, write_sealed
from rfa.secagg.messages.codec import (
    KEY,
    REAL,
    U8,
    U32,
    U64,
    Field,
    array,
    blob,
    group,
    many,
)
from rfa.secagg.messages.records import COHORT_RECORD, SUM_RECORD, TOTAL_RECORD, PartRecord

FIRST = bytes(32)
"""What the first receipt of a run has in place of the digest of the one before."""
LONGEST_TEXT = 1 << 12
LARGEST_STATE = 1 << 30
MAX_DIMENSIONS = 32
ROUND, BEFORE, AFTER, STEP, RESULT = (
    "the round",
    "the state before",
    "the state after",
    "the step",
    "the result",
)
_ROUND = group(U64, KEY, blob(LONGEST_TEXT), U32, U32, many(U32))
_STATE = many(
    group(blob(LONGEST_TEXT), blob(LONGEST_TEXT), many(U64, MAX_DIMENSIONS), blob(LARGEST_STATE))
)
_RESULT = group(KEY, KEY, U8, REAL)
_STEP = array("<f8")
_PLAIN = re.compile(rb"[<|][biufU]\d{1,4}")
"""The types of arrays of numbers, truth values and texts."""


@dataclass(frozen=True)
class Receipt:
    """A round of training.

    Attributes:
        round: its number.
        previous: the digest of the receipt before it; zeros for the first of a run.
        aggregator: the text that builds the aggregator.
        devices: how many devices were ready.
        parts: what was summed over each part of them.
        state_before: what the aggregator carried into the round, by name.
        state_after: what it carries out of it.
        step: the aggregate, which was added to the model.
        certificate: the bound on the share of any device in the last step, if one is proven.
        model_before: the digest of the model that devices trained from.
        model_after: the digest of the model after the step.
    """

    round: int
    previous: bytes
    aggregator: str
    devices: int
    parts: tuple[PartRecord, ...]
    state_before: Mapping[str, Array]
    state_after: Mapping[str, Array]
    step: Floats = field(repr=False)
    certificate: float | None
    model_before: bytes
    model_after: bytes

    @property
    def dim(self) -> int:
        """The number of coordinates."""
        return len(self.step)


@dataclass(frozen=True)
class Signed:
    """A receipt from a file, no byte of which was changed.

    Attributes:
        receipt: the receipt.
        signer: the public key of who signed it.
        digest: its digest, which the next receipt of the run holds.
        size: the bytes of the file.
    """

    receipt: Receipt
    signer: bytes
    digest: bytes
    size: int


def write_receipt(path: Path, receipt: Receipt, identity: bytes) -> bytes:
    """Sign a receipt and write it, all of it or nothing; return its digest."""
    return write_sealed(path, to_sections(receipt), identity)


def read_receipt(path: Path) -> Signed:
    """Read a receipt, and check that no byte of it was changed since it was signed.

    Raises:
        ReceiptError: naming what was changed, or why this is no receipt.
    """
    sealed = read_sealed(path)
    receipt = from_sections(sealed.sections)
    return Signed(receipt, sealed.signer, sealed.digest, sealed.size)


def to_sections(receipt: Receipt) -> list[Section]:
    """Return a receipt as sections with descriptive names."""
    counts = tuple(len(part.sums) for part in receipt.parts)
    text = receipt.aggregator.encode()
    head = (receipt.round, receipt.previous, text, receipt.devices, receipt.dim, counts)
    bodies = [_ROUND.write(head)]
    for part in receipt.parts:
        bodies.append(COHORT_RECORD.write(part.cohort))
        for asked, total in zip(part.sums, part.totals, strict=True):
            bodies += [SUM_RECORD.write(asked), TOTAL_RECORD.write(total)]
    share = receipt.certificate
    result = (receipt.model_before, receipt.model_after, int(share is not None), share or 0.0)
    bodies += [_write_state(receipt.state_before), _write_state(receipt.state_after)]
    bodies += [_STEP.write(receipt.step), _RESULT.write(result)]
    return list(zip(_names(counts), bodies, strict=True))


def from_sections(sections: tuple[Section, ...]) -> Receipt:
    """The receipt that sections are.

    Raises:
        ReceiptError: if they are none.
    """
    bodies = dict(sections)

    def parse(name: str, field: Field) -> Any:
        return parse_section(field, bodies.get(name, b""), name)

    number, previous, text, devices, dim, counts = parse(ROUND, _ROUND)
    fits = len(sections) == 1 + len(counts) + 2 * sum(counts) + 4
    if not fits or [name for name, _ in sections] != _names(counts):
        msg = "its sections are not those of a receipt, or not in order"
        raise ReceiptError(msg)
    parts = tuple(
        PartRecord(
            parse(cohort_name(part), COHORT_RECORD),
            tuple(parse(sum_name(part, index), SUM_RECORD) for index in range(count)),
            tuple(parse(total_name(part, index), TOTAL_RECORD) for index in range(count)),
        )
        for part, count in enumerate(counts)
    )
    before, after = (_read_state(name, parse(name, _STATE)) for name in (BEFORE, AFTER))
    step, (model_before, model_after, proven, share) = parse(STEP, _STEP), parse(RESULT, _RESULT)
    if len(step) != dim or proven not in {0, 1} or (share and not proven):
        msg = f"the step has {len(step)} numbers, and the round {dim}; or the result is no result"
        raise ReceiptError(msg)
    return Receipt(
        number,
        previous,
        text.decode(errors="replace"),
        devices,
        parts,
        before,
        after,
        step,
        share if proven else None,
        model_before,
        model_after,
    )


def cohort_name(part: int) -> str:
    """Return the name of the section with the cohort of a part."""
    return f"the cohort of part {part}"


def sum_name(part: int, index: int) -> str:
    """Return the name of the section with a masked sum."""
    return f"masked sum {index} of part {part}"


def total_name(part: int, index: int) -> str:
    """Return the name of the section with the total of a masked sum."""
    return f"the total of masked sum {index} of part {part}"


def state_bytes(state: Mapping[str, Array]) -> bytes:
    """A state as bytes: two are the same if these are."""
    return _write_state(state)


def _names(counts: tuple[int, ...]) -> list[str]:
    names = [ROUND]
    for part, count in enumerate(counts):
        names.append(cohort_name(part))
        for index in range(count):
            names += [sum_name(part, index), total_name(part, index)]
    return [*names, BEFORE, AFTER, STEP, RESULT]


def _write_state(state: Mapping[str, Array]) -> bytes:
    return _STATE.write(
        tuple(
            (name.encode(), value.dtype.str.encode(), value.shape, value.tobytes())
            for name, value in state.items()
        )
    )


def _read_state(section: str, values: tuple[tuple[Any, ...], ...]) -> dict[str, Array]:
    state: dict[str, Array] = {}
    for name, kind, shape, data in values:
        try:
            if not _PLAIN.fullmatch(kind):
                raise ValueError
            values_of = np.frombuffer(data, np.dtype(kind.decode()))
            state[name.decode()] = values_of.reshape(shape)
        except (ValueError, TypeError):
            msg = f"{section} has no array {name!r} of type {kind!r} and shape {shape}"
            raise ReceiptError(msg) from None
    return state
