"""A device's own list of what it sent and opened, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.secagg.device import vault
from rfa.secagg.device.sent import note_sent, read_sent
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.messages.round import SumRequest
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.requests import Outbox
from rfa.secagg.transcript import input_digest
from tests.secagg.attack import altered, reach
from tests.secagg.party import MALICIOUS, SMALL, contributions, party
from tests.secagg.test_vault import NU, profile


@pytest.mark.parametrize("max_share", [0.0, 0.9])
@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])
def test_each_masked_sum_is_noted_once_when_sent_and_once_when_opened(
    terms: Terms, max_share: float, tmp_path: Path
) -> None:
    table = party(contributions(6, 3), terms, queries=2, max_share=max_share)
    logs = {device: tmp_path / f"{device}.sent" for device in table.devices}
    devices = {
        device: DurableDevice(tmp_path / f"{device}", profile(table, device), sent=log)
        for device, log in logs.items()
    }
    for device, one in devices.items():
        one.bring(table.parts[device])

    def twice(outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        for device, request in outbox:
            reply = devices[device].receive(request)
            assert devices[device].receive(request) == reply
            yield device, reply

    ask = SecureOracle(table.opening, table.terms, table.parts, twice, table.known)
    ask(np.zeros(3), NU)
    sums = 2 if max_share else 1
    for device, log in logs.items():
        fields = [len(line.split()) for line in log.read_text().splitlines()]
        assert fields == [5, 4] * sums
        noted = [(entry.device, entry.masked_sum, entry.opened) for entry in read_sent(log)]
        assert noted == [(device, index, True) for index in range(sums)]


@pytest.mark.parametrize("other", [False, True], ids=["the same again", "another request"])
def test_after_a_crash_the_list_has_what_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, other: bool
) -> None:
    """The device ends after the line is written and before its memory is: nothing has left."""
    table = party(contributions(6, 3))
    name, log = min(table.devices), tmp_path / "sent"
    device = DurableDevice(tmp_path / "store", profile(table, name), sent=log)
    device.bring(table.parts[name])
    table.devices[name] = device  # type: ignore[assignment]
    request = reach(table, SumRequest)[name]

    def killed(*given: Any) -> None:
        note_sent(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(vault, "note_sent", killed)
        with pytest.raises(KeyboardInterrupt):
            device.receive(request)
    device.close()
    again = DurableDevice(tmp_path / "store", profile(table, name), sent=log)
    reply = again.receive(altered(request, nu=2 * NU) if other else request)
    assert len(log.read_text().splitlines()) == 2
    (entry,) = read_sent(log)
    assert entry.digest == input_digest(reply)
    assert not entry.opened
