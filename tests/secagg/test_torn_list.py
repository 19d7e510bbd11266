"""A device's list of what it sent, if a process was killed in the middle of a line."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.secagg.device import sent as module
from rfa.secagg.device.sent import SentInput, note_opened, note_sent, read_sent
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import VaultError
from rfa.secagg.messages.round import MaskedInput, SumRequest, Unmask, UnmaskShares
from rfa.secagg.transcript import input_digest
from tests.secagg.attack import reach
from tests.secagg.party import contributions, party
from tests.secagg.test_vault import profile

DEVICE, SESSION, CONTEXT = (1 << 64) - 1, bytes(range(16)), bytes(range(32))


def masked(masked_sum: int) -> bytes:
    """The masked input of a device to a masked sum."""
    return MaskedInput(SESSION, masked_sum, (), np.arange(3, dtype="<u4")).encode()


def send(log: Path, masked_sum: int) -> None:
    note_sent(log, DEVICE, CONTEXT, masked(masked_sum))


def release(log: Path, masked_sum: int) -> None:
    note_opened(log, DEVICE, UnmaskShares(SESSION, masked_sum, ()).encode())


def entry(masked_sum: int, *, opened: bool) -> SentInput:
    digest = input_digest(masked(masked_sum))
    return SentInput(DEVICE, SESSION, masked_sum, CONTEXT, digest, opened)


FIRST, SECOND = entry(0, opened=True), entry(1, opened=False)
LAST: dict[str, tuple[Callable[[Path], None], list[SentInput]]] = {
    "sent": (lambda log: send(log, 1), [FIRST]),
    "opened": (lambda log: release(log, 1), [FIRST, SECOND]),
}
"""The line that is torn, and what the list has without it."""


def list_with(log: Path, last: str) -> tuple[bytes, bytes]:
    """The lines of a list before the one that is torn, and that line."""
    send(log, 0)
    release(log, 0)
    if last == "opened":
        send(log, 1)
    before = log.read_bytes()
    LAST[last][0](log)
    return before, log.read_bytes()[len(before) :]


@pytest.mark.parametrize("last", LAST)
def test_wherever_a_last_line_is_torn_the_list_can_be_read(tmp_path: Path, last: str) -> None:
    log = tmp_path / "list"
    before, line = list_with(log, last)
    for length in range(len(line) - 1):
        log.write_bytes(before + line[:length])
        assert read_sent(log) == LAST[last][1], f"{length} bytes of the line"
    whole = [FIRST, dataclasses.replace(SECOND, opened=last == "opened")]
    for ending in (line[:-1], line):
        log.write_bytes(before + ending)
        assert read_sent(log) == whole, "all of it but the end is there: it counts"


@pytest.mark.parametrize("last", LAST)
def test_wherever_a_last_line_is_torn_the_device_goes_on(tmp_path: Path, last: str) -> None:
    """It answers the same request again, and then others."""
    log = tmp_path / "list"
    before, line = list_with(log, last)
    for length in range(len(line) + 1):
        log.write_bytes(before + line[:length])
        LAST[last][0](log)
        written = log.read_bytes()
        assert written in (before + line, before + line * 2), f"{length} bytes of the line"
        release(log, 1)
        send(log, 2)
        assert read_sent(log) == [FIRST, entry(1, opened=True), entry(2, opened=False)]


@pytest.mark.parametrize("tail", [b"\0" * 90, b"\xff\xfe", b"5 0 00\0\0", b" ", b"\r"])
def test_bytes_that_a_power_failure_left_for_a_line_are_no_line(
    tmp_path: Path, tail: bytes
) -> None:
    log = tmp_path / "list"
    before, line = list_with(log, "sent")
    log.write_bytes(before + tail)
    assert read_sent(log) == [FIRST]
    send(log, 1)
    assert log.read_bytes() == before + line


def test_a_list_that_is_torn_in_its_first_line_has_none(tmp_path: Path) -> None:
    log = tmp_path / "list"
    send(log, 0)
    line = log.read_bytes()
    for length in range(len(line) - 1):
        log.write_bytes(line[:length])
        with pytest.raises(VaultError, match="it has no complete line"):
            read_sent(log)
        send(log, 0)
        assert log.read_bytes() == line


@pytest.mark.parametrize("last", LAST)
def test_a_line_that_is_damaged_before_the_last_is_named(tmp_path: Path, last: str) -> None:
    """Also one that is torn, and has the next one glued to it."""
    log = tmp_path / "list"
    before, line = list_with(log, last)
    damaged = before.count(b"\n") + 1
    for length in range(1, len(line) - 1):
        for broken in (line[:length] + b"\n", line[:length] + line, line[:length] + b"\n" + line):
            log.write_bytes(before + broken)
            with pytest.raises(VaultError, match=rf"line {damaged} is damaged"):
                read_sent(log)


def test_what_is_opened_was_sent_before(tmp_path: Path) -> None:
    log = tmp_path / "list"
    send(log, 0)
    release(log, 1)
    with pytest.raises(VaultError, match="line 2 is damaged"):
        read_sent(log)


def test_a_file_of_something_else_is_not_cut(tmp_path: Path) -> None:
    log = tmp_path / "list"
    for content in (b"x" * 5000, b"whatever\n" + b"x" * 5000):
        log.write_bytes(content)
        with pytest.raises(VaultError, match=re.escape(str(log))):
            send(log, 0)
        assert log.read_bytes() == content


@pytest.mark.parametrize("stage", [SumRequest, Unmask])
def test_a_device_whose_disk_fills_up_in_a_line_answers_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: type[Any]
) -> None:
    """It refuses by name, has sent nothing, and answers when there is room."""
    table = party(contributions(6, 3))
    name, log = min(table.devices), tmp_path / "list"
    device = DurableDevice(tmp_path / "store", profile(table, name), sent=log)
    device.bring(table.parts[name])
    table.devices[name] = device  # type: ignore[assignment]
    request = reach(table, stage)[name]

    def full(handle: int) -> None:
        os.truncate(handle, os.fstat(handle).st_size - 30)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", full)
        with pytest.raises(VaultError, match="No space left on device"):
            device.receive(request)
    assert log.read_bytes()[-1:] != b"\n"
    device.receive(request)
    (noted,) = read_sent(log)
    assert noted.opened == (stage is Unmask)
    assert log.read_bytes().count(b"\n") == (2 if stage is Unmask else 1)
