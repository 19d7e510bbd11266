"""Keys of the round to come, with devices that keep what they must not forget."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.secagg.device.memory import read_memory
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.sent import read_sent
from rfa.secagg.device.store import FileStore, MemoryStore
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import NoKeysAheadError, SpentUpdateError, UnknownKindError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.opening import NO_BASIS
from rfa.secagg.messages.round import DeviceKeys, FirstInput, UnmaskShares
from rfa.secagg.noise import noisy_sum
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.server.machine import Server
from rfa.secagg.server.requests import Outbox
from rfa.secagg.unmasked import UnmaskedOracle
from tests.secagg.ahead_round import NU
from tests.secagg.party import LAX, Party, contributions, equals, party, same

SILENT = 5


class Restarting:
    """Devices that begin anew for each request, which comes twice; rounds of one run."""

    def __init__(self, folder: Path, count: int = 10, noise: float = 0.0) -> None:
        self.folder, self.count, self.noise = folder, count, noise
        self.keys: dict[int, DeviceKeys] = {}
        self.table = self.round(1)

    def round(self, number: int) -> Party:
        made = equals if self.noise else contributions
        parts = made(self.count, 3, seed=number)
        self.table = party(parts, fast=True, number=number, noise=self.noise)
        return self.table

    def device(self, name: int) -> DurableDevice:
        table = self.table
        return DurableDevice(
            self.folder / f"{name}",
            Profile(name, LAX),
            spent=self.folder / f"{name}.spent",
            sent=self.folder / f"{name}.sent",
            rounding=table.rounding[name],
            noise=table.noise[name],
        )

    def part(self, name: int) -> Contribution:
        part = self.table.parts[name]
        assert part is not None
        return part

    def __call__(self, outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        for name, request in outbox:
            if type(decode(request)).__name__ == "OpenFirstSum":
                with self.device(name) as device:
                    reply = device.begin(self.part(name), NO_BASIS, request, noisy=self.noise > 0)
                with self.device(name) as device:  # the same request once more, as a stage
                    assert device.receive(request) == reply
            else:
                with self.device(name) as device:
                    reply = device.receive(request)
                with self.device(name) as device:
                    assert device.receive(request) == reply
            yield name, reply

    def play(self) -> SecureOracle:
        """A round with one sum, and keys for the next."""
        table, ahead = self.table, self.keys or None
        if not ahead:
            for name in table.parts:
                with self.device(name) as device:
                    device.bring(self.part(name), noisy=self.noise > 0)
        ask = SecureOracle(
            table.opening, table.terms, table.parts, self, keys_ahead=ahead, ask_ahead=True
        )
        ask(np.zeros(3), NU)
        self.keys = dict(ask.server.keys_ahead)
        return ask

    def ideal(self) -> UnmaskedOracle:
        ask = self.table.unmasked()
        ask(np.zeros(3), NU)
        return ask


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_devices_that_restart_before_every_message_give_the_same_sums(
    tmp_path: Path, noise: float
) -> None:
    devices = Restarting(tmp_path, noise=noise)
    for number in (1, 2, 3):
        devices.round(number)
        assert same(devices.play().last, devices.ideal().last)


def test_what_a_device_sent_is_on_its_list_and_its_update_is_spent(tmp_path: Path) -> None:
    devices = Restarting(tmp_path)
    devices.play()
    devices.round(2)
    devices.play()
    (first, second) = read_sent(tmp_path / f"{SILENT}.sent")
    assert first.session != second.session
    assert second.session == devices.table.opening.session
    assert second.opened
    with devices.device(SILENT) as device, pytest.raises(SpentUpdateError):
        device.bring(devices.part(SILENT))


def test_the_charge_of_a_first_sum_is_that_of_one_sum(tmp_path: Path) -> None:
    devices = Restarting(tmp_path, noise=2.0)
    devices.play()
    charged = noisy_sum(devices.table.opening, devices.table.terms.parameters(10))
    assert charged is not None
    devices.round(2)
    server = Server(devices.table.opening, devices.table.terms)
    server.open_ahead(devices.keys.values())
    masked = dict(devices(server.first(np.zeros(3), NU)))  # and nothing is opened
    assert masked.keys() == devices.table.devices.keys()
    for name in devices.table.devices:
        with devices.device(name) as device:
            assert device.spent_rho == pytest.approx(2 * charged.rho, rel=1e-12)


def at_first_sum(folder: Path) -> tuple[Restarting, dict[int, bytes]]:
    """Devices that have sent their keys, and the first requests of the round after."""
    devices = Restarting(folder)
    devices.play()
    devices.round(2)
    server = Server(devices.table.opening, devices.table.terms)
    server.open_ahead(devices.keys.values())
    return devices, dict(server.first(np.zeros(3), NU))


def test_whatever_is_killed_before_the_end_of_the_transaction_nothing_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys are there, nothing is marked, and the same request gets an answer later."""
    devices, requests = at_first_sum(tmp_path)
    kept: list[str] = []
    real = FileStore.keep

    def killed_at(count: int) -> Any:
        def keep(self: FileStore, name: str, value: bytes, where: str = "main") -> None:
            kept.append(name)
            if len(kept) == count:
                raise KeyboardInterrupt
            real(self, name, value, where)

        return keep

    count = 0
    while True:
        count, kept[:] = count + 1, []
        monkeypatch.setattr(FileStore, "keep", killed_at(count))
        with devices.device(SILENT) as device:
            try:
                reply = device.begin(devices.part(SILENT), NO_BASIS, requests[SILENT])
                break
            except KeyboardInterrupt:
                pass
        monkeypatch.setattr(FileStore, "keep", real)
        with devices.device(SILENT) as device:
            assert device._kept.memory.ahead  # pyright: ignore[reportPrivateUsage]
    assert count > 3
    assert isinstance(decode(reply), FirstInput)


def test_secrets_that_were_sent_ahead_are_used_once_whatever_is_brought(tmp_path: Path) -> None:
    devices, requests = at_first_sum(tmp_path)
    with devices.device(SILENT) as device:
        before = device._kept.memory  # pyright: ignore[reportPrivateUsage]
        assert len(before.ahead) == 1 + 2 * devices.table.opening.masked_sums
        device.begin(devices.part(SILENT), NO_BASIS, requests[SILENT])
        assert not device._kept.memory.ahead  # pyright: ignore[reportPrivateUsage]
        other = contributions(10, 3, seed=9)[SILENT]
        with pytest.raises(NoKeysAheadError):  # the message comes again, and training differs
            device.begin(other, NO_BASIS, requests[SILENT])
    stored = (tmp_path / f"{SILENT}").read_bytes()
    seed = before.ahead[1 + devices.table.opening.masked_sums]
    assert seed not in stored, "the seed of the first self-mask is gone with its use"


@pytest.mark.parametrize("how", ["bring", "abstain", "end"])
def test_keys_are_for_the_next_round_or_for_none(tmp_path: Path, how: str) -> None:
    devices, requests = at_first_sum(tmp_path)
    with devices.device(SILENT) as device:
        if how == "end":
            device.end()
        else:
            device.bring(None if how == "abstain" else devices.part(SILENT))
        assert not device._kept.memory.ahead  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(NoKeysAheadError):
            device.begin(devices.part(SILENT), NO_BASIS, requests[SILENT])


def test_a_first_sum_that_is_not_opened_is_taken_back_by_a_trusted_server(tmp_path: Path) -> None:
    devices, requests = at_first_sum(tmp_path)
    with devices.device(SILENT) as device:
        device.begin(devices.part(SILENT), NO_BASIS, requests[SILENT])
        with pytest.raises(SpentUpdateError):
            device.bring(devices.part(SILENT))
        device.end(2, opened=False)
        device.bring(devices.part(SILENT))


def test_a_spent_update_begins_no_round(tmp_path: Path) -> None:
    devices, requests = at_first_sum(tmp_path)
    old = contributions(10, 3, seed=1)[SILENT]
    with devices.device(SILENT) as device:
        with pytest.raises(SpentUpdateError):
            device.begin(old, NO_BASIS, requests[SILENT])
        assert device._kept.memory.ahead  # pyright: ignore[reportPrivateUsage]


def test_a_round_begins_with_its_first_sum_alone(tmp_path: Path) -> None:
    devices, _ = at_first_sum(tmp_path)
    with devices.device(SILENT) as device, pytest.raises(UnknownKindError):
        device.begin(devices.part(SILENT), NO_BASIS, devices.table.opening.encode())


def test_in_a_store_in_memory_keys_are_kept_from_round_to_round() -> None:
    kept: dict[str, bytes] = {}
    table = party(contributions(6, 3), fast=True)
    device = DurableDevice(MemoryStore(kept), Profile(SILENT, LAX))
    device.bring(table.parts[SILENT])
    table.devices[SILENT] = device  # type: ignore[assignment]
    ask = SecureOracle(table.opening, table.terms, table.parts, table.carry, ask_ahead=True)
    ask(np.zeros(3), NU)
    replies = [decode(reply) for name, _, reply in table.said if name == SILENT and reply]
    shown = next(reply for reply in replies if isinstance(reply, UnmaskShares))
    assert shown.keys == (ask.server.keys_ahead[SILENT],)
    assert read_memory(kept["main memory"]).ahead
