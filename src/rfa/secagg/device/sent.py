"""A device's own list of the masked inputs that it sent: one line each, of digests alone.

With it a device finds out whether a receipt claims that it sent something else, was asked something
else, or was not there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rfa.secagg.errors import VaultError
from rfa.secagg.messages.round import MaskedInput, decode_as
from rfa.secagg.transcript import input_digest


@dataclass(frozen=True)
class SentInput:
    """A masked input that a device sent.

    Attributes:
        device: its number in the round.
        session: the session of the round.
        masked_sum: the masked sum.
        context: the digest of the cohort and of what it was asked.
        digest: the digest of what it sent.
    """

    device: int
    session: bytes
    masked_sum: int
    context: bytes
    digest: bytes


def note_sent(path: Path, device: int, context: bytes, reply: bytes) -> None:
    """Add a masked input to the list, before it leaves."""
    message = decode_as(MaskedInput, reply)
    hexed = (message.session.hex(), context.hex(), input_digest(reply).hex())
    line = f"{device} {message.masked_sum} {' '.join(hexed)}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "ab") as file:
        file.write(line.encode())


def read_sent(path: Path) -> list[SentInput]:
    """What a device sent, from its list.

    Raises:
        VaultError: if the file is no such list.
    """
    try:
        sent = [_read_line(line) for line in path.read_text("ascii").splitlines()]
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it has other lines"
        msg = f"{path} is no list of masked inputs that a device sent: {why}"
        raise VaultError(msg) from None
    if not sent:
        msg = f"{path} is no list of masked inputs that a device sent: it is empty"
        raise VaultError(msg)
    return sent


def _read_line(line: str) -> SentInput:
    device, masked_sum, *hexed = line.split()
    session, context, digest = map(bytes.fromhex, hexed)
    return SentInput(int(device), session, int(masked_sum), context, digest)
