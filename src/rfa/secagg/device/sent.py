"""A device's own list of the masked inputs that it sent, and of the sums that it helped to open.

With it a device finds out whether a receipt claims that it sent something else, was asked something
else, or was absent, and whether it opened a sum that no receipt shows. Each masked input has a line
of digests, and one more line when the device releases its shares of that sum:

    device, masked sum, session, context, digest
    device, masked sum, session, "opened"

A line is on the disk before the answer leaves. A crash in between leaves a line for an input that
was never sent. The device then answers the request again, so the last line of a masked sum is the
right one. An input that was opened is not replaced: what comes after it is of another round, to
which the server gave the same session.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rfa._checks import check_regular
from rfa.secagg.errors import VaultError
from rfa.secagg.messages.decoding import decode, decode_as
from rfa.secagg.messages.round import MaskedInput, UnmaskShares
from rfa.secagg.transcript import input_digest

OPENED = "opened"


@dataclass(frozen=True)
class SentInput:
    """A masked input that a device sent.

    Attributes:
        device: its number in the round.
        session: the session of the round.
        masked_sum: the masked sum.
        context: the digest of the cohort and of the request.
        digest: the digest of the masked input.
        opened: whether the device released its shares of the masked sum.
    """

    device: int
    session: bytes
    masked_sum: int
    context: bytes
    digest: bytes
    opened: bool = False


def note_sent(path: Path, device: int, context: bytes, reply: bytes) -> None:
    """Add a masked input to the list, before it is sent."""
    message = decode(reply)
    number = message.masked_sum if isinstance(message, MaskedInput) else 0  # with the roster
    hexed = (message.session.hex(), context.hex(), input_digest(reply).hex())
    _add(path, f"{device} {number} {' '.join(hexed)}\n")


def note_opened(path: Path, device: int, reply: bytes) -> None:
    """Add to the list that the device opens a masked sum, before it sends its shares."""
    message = decode_as(UnmaskShares, reply)
    _add(path, f"{device} {message.masked_sum} {message.session.hex()} {OPENED}\n")


def read_sent(path: Path) -> list[SentInput]:
    """Read the list of a device: one entry for each masked sum of each round.

    Raises:
        VaultError: if the file is not such a list.
    """
    try:
        check_regular(path)
        sent = _read_lines(path.read_text("ascii").splitlines())
    except (OSError, ValueError, KeyError) as error:
        why = error.strerror if isinstance(error, OSError) else "it has other lines"
        msg = f"{path} is not a list of masked inputs that a device sent: {why}"
        raise VaultError(msg) from None
    if not sent:
        msg = f"{path} is not a list of masked inputs that a device sent: it is empty"
        raise VaultError(msg)
    return sent


def _add(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "ab") as file:
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def _read_lines(lines: Iterable[str]) -> list[SentInput]:
    """Return the entries of lines; a server may give two rounds one session.

    A crash leaves an input that was not sent, and so not opened: the next one replaces it.
    """
    sent: list[SentInput] = []
    last: dict[tuple[int, bytes, int], int] = {}
    for line in lines:
        device, masked_sum, session, *rest = line.split()
        key = int(device), bytes.fromhex(session), int(masked_sum)
        if rest == [OPENED]:
            sent[last[key]] = dataclasses.replace(sent[last[key]], opened=True)
            continue
        context, digest = map(bytes.fromhex, rest)
        entry = SentInput(*key, context, digest)
        before = sent[last[key]] if key in last else None
        if before is None or (before.opened and before.context != context):
            last[key] = len(sent)
            sent.append(entry)
        else:
            sent[last[key]] = dataclasses.replace(entry, opened=before.opened)
    return sent
