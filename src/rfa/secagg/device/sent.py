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

A crash in the middle of a write leaves a part of a line at the end, without its newline. The answer
to which it belongs has not left. So it is not read, and the device removes it before it writes the
next line. The transaction around an answer excludes other processes of the device.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rfa._checks import check_regular
from rfa.errors import InvalidValueError
from rfa.secagg.errors import VaultError
from rfa.secagg.messages.decoding import decode, decode_as
from rfa.secagg.messages.round import MaskedInput, UnmaskShares
from rfa.secagg.transcript import input_digest

OPENED = "opened"
LONGEST = 256
"""A number of bytes that no line reaches."""
_LINE = re.compile(
    rb"(\d{1,20}) (\d{1,10}) ([0-9a-f]{32}) (?:opened|([0-9a-f]{64}) ([0-9a-f]{64}))\r?"
)


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
        VaultError: if the file is not such a list, or a line before its end is damaged; the message
            names the line.
    """
    try:
        check_regular(path)
        sent = _read_lines(_complete_lines(path.read_bytes()))
    except (OSError, InvalidValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise _no_list(path, str(why)) from None
    if not sent:
        raise _no_list(path, "it has no complete line")
    return sent


def _no_list(path: Path, why: str) -> VaultError:
    return VaultError(f"{path} is not a list of masked inputs that a device sent: {why}")


def _add(path: Path, line: str) -> None:
    """Write a line to the disk.

    Raises:
        VaultError: if that is not possible.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab+") as file:
            _mend(path, file)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        msg = f"the list of masked inputs at {path} cannot be written: {error.strerror}"
        raise VaultError(msg) from None


def _mend(path: Path, file: BinaryIO) -> None:
    """Remove a part of a line at the end; a line that lacks only its newline gets it.

    Raises:
        VaultError: if the last line is longer than any line of a list.
    """
    size = file.seek(0, os.SEEK_END)
    start = file.seek(max(0, size - LONGEST))
    *before, last = file.read().split(b"\n")
    if start and not before:
        raise _no_list(path, "its last line is too long")
    if _LINE.fullmatch(last):
        file.write(b"\n")
    elif last:
        file.truncate(size - len(last))


def _complete_lines(content: bytes) -> list[bytes]:
    """Return the lines of a list, without a part of a line at its end."""
    *lines, last = content.split(b"\n")
    return [*lines, last] if _LINE.fullmatch(last) else lines


def _read_lines(lines: Iterable[bytes]) -> list[SentInput]:
    """Return the entries of lines; a server may give two rounds one session.

    A crash leaves an input that was not sent, and so not opened: the next one replaces it.

    Raises:
        InvalidValueError: if a line is damaged, or opens what no line before it sent.
    """
    sent: list[SentInput] = []
    last: dict[tuple[int, bytes, int], int] = {}
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line)
        if not found:
            raise _damaged(number)
        device, masked_sum, session, *digests = found.groups()
        key = int(device), _unhex(session), int(masked_sum)
        before = sent[last[key]] if key in last else None
        if None in digests:
            if before is None:
                raise _damaged(number)
            sent[last[key]] = dataclasses.replace(before, opened=True)
            continue
        context, digest = map(_unhex, digests)
        entry = SentInput(*key, context, digest)
        if before is None or (before.opened and before.context != context):
            last[key] = len(sent)
            sent.append(entry)
        else:
            sent[last[key]] = dataclasses.replace(entry, opened=before.opened)
    return sent


def _damaged(number: int) -> InvalidValueError:
    return InvalidValueError(f"line {number} is damaged")


def _unhex(digits: bytes) -> bytes:
    return bytes.fromhex(digits.decode("ascii"))
