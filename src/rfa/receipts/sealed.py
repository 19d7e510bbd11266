r"""A receipt as a file: sections, a table of their digests, and the server's signature under it.

    rfa receipt 2\\n | size of the front | front | section | section | ...
    front = table of (name, size, digest) of the sections | the signer's key | its signature

Every byte is covered: sections by their digests, the table and the key by the signature, the rest
by there being one way to write it. So whatever is changed is found, and named.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from rfa._checks import check_regular
from rfa._files import replace_file
from rfa.receipts.errors import ReceiptError
from rfa.secagg.crypto.keys import identity_of, is_signed, sign
from rfa.secagg.errors import MessageError
from rfa.secagg.messages.codec import KEY, U32, U64, Field, Reader, blob, fixed, group, many
from rfa.secagg.messages.round import SIGNATURE_SIZE
from rfa.secagg.transcript import receipt_statement, section_digest

FORMAT = b"rfa receipt "
MAGIC = FORMAT + b"2\n"
START = len(MAGIC) + U32.width
LONGEST_FRONT = 1 << 24
LONGEST_NAME = 1 << 7
_TABLE = many(group(blob(LONGEST_NAME), U64, KEY))
_FRONT = group(_TABLE, KEY, fixed(SIGNATURE_SIZE))

Section = tuple[str, bytes]
"""A name and a body."""


@dataclass(frozen=True)
class Sealed:
    """The content of the file of a receipt.

    Attributes:
        sections: its sections, in order.
        signer: the public key of who signed it.
        digest: the digest that was signed, which the next receipt of the run holds.
        size: the bytes of the file.
    """

    sections: tuple[Section, ...]
    signer: bytes
    digest: bytes
    size: int


def write_sealed(path: Path, sections: list[Section], identity: bytes) -> bytes:
    """Write a receipt, all of it or nothing, and return its digest."""
    rows = tuple((name.encode(), len(body), section_digest(name, body)) for name, body in sections)
    table, signer = _TABLE.write(rows), identity_of(identity)
    digest = receipt_statement(signer, table)
    front = table + signer + sign(identity, digest)
    with replace_file(path) as file:
        file.write(MAGIC + U32.write(len(front)) + front)
        for _, body in sections:
            file.write(body)
    return digest


def read_sealed(path: Path) -> Sealed:
    """Read a receipt, and check that no byte of it was changed since it was signed.

    Raises:
        ReceiptError: naming what was changed, or why this is no receipt.
    """
    if path.is_dir():
        msg = "it is a folder: give the receipts in it"
        raise ReceiptError(msg)
    try:
        check_regular(path)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            front = _read_front(file, size)
            rows, signer, signature = _parse(_FRONT, front, "the table of its sections")
            _check_size(size, START + len(front), [row[1] for row in rows])
            bodies = file.read()
    except OSError as error:
        msg = f"it cannot be read: {error.strerror}"
        raise ReceiptError(msg) from None
    digest = receipt_statement(signer, _TABLE.write(rows))
    signed = is_signed(signer, digest, signature)
    sections = _cut(rows, bodies)
    changed = [
        name
        for (name, body), (_, _, promised) in zip(sections, rows, strict=True)
        if section_digest(name, body) != promised
    ]
    if changed:
        what = ", ".join(changed) if signed else f"{', '.join(changed)}, or its digest,"
        msg = f"{what} was changed after it was signed"
        raise ReceiptError(msg)
    if not signed:
        msg = f"the signature is not that of {signer.hex()}: it, the key or the table of sections "
        msg += "was changed"
        raise ReceiptError(msg)
    return Sealed(sections, signer, digest, size)


def parse_section(field: Field, body: bytes, name: str) -> Any:
    """Return the content of a section.

    Raises:
        ReceiptError: if it does not hold just that.
    """
    return _parse(field, body, name)


def _read_front(file: BinaryIO, size: int) -> bytes:
    """Return the front of a receipt; nothing more is read of a file that is none."""
    head = file.read(START)
    if not size:
        msg = "it is empty"
        raise ReceiptError(msg)
    if not head.startswith(FORMAT):
        msg = "it is no receipt of rfa"
        raise ReceiptError(msg)
    if not head.startswith(MAGIC) or len(head) < START:
        msg = "it is a receipt of another version, or cut off"
        raise ReceiptError(msg)
    length = int.from_bytes(head[len(MAGIC) :], "little")
    if length > min(LONGEST_FRONT, size - START):
        msg = f"the table of its sections is said to have {length} bytes: it is cut off, or changed"
        raise ReceiptError(msg)
    return file.read(length)


def _check_size(size: int, start: int, sizes: list[int]) -> None:
    wanted = start + sum(sizes)
    if size != wanted:
        wrong = f"{wanted - size} bytes are missing" if size < wanted else "bytes were added"
        msg = f"it has {size} bytes, and its table says {wanted}: {wrong}, or the table was changed"
        raise ReceiptError(msg)


def _cut(rows: tuple[tuple[bytes, int, bytes], ...], bodies: bytes) -> tuple[Section, ...]:
    ends = list(accumulate(size for _, size, _ in rows))
    starts = [0, *ends[:-1]]
    names = [name.decode(errors="replace") for name, _, _ in rows]
    return tuple(
        (name, bodies[start:end]) for name, start, end in zip(names, starts, ends, strict=True)
    )


def _parse(field: Field, data: bytes, what: str) -> Any:
    reader = Reader(data)
    try:
        value = field.read(reader)
    except MessageError as error:
        msg = f"{what} cannot be read: {error}"
        raise ReceiptError(msg) from None
    if reader.left:
        msg = f"{what} has {reader.left} bytes too many"
        raise ReceiptError(msg)
    return value
