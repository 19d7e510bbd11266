"""The files of a device's store: whose they are, and what becomes of damaged ones."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from rfa.secagg.device.profile import Profile
from rfa.secagg.device.store import FileStore
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import VaultError
from tests.secagg.party import contributions, party
from tests.secagg.test_vault import profile


@pytest.mark.parametrize("name", ["memory", "contribution", "salt", "device"])
@pytest.mark.parametrize("value", ["text", 7, 0.5, "", b"", b"x" * 31, b"x" * 200])
def test_whatever_is_in_a_store_it_is_named(tmp_path: Path, name: str, value: object) -> None:
    table = party(contributions(6, 3))
    path = tmp_path / "5"
    with DurableDevice(path, profile(table, 5)) as device:
        device.bring(table.parts[5])
    store = sqlite3.connect(path)
    store.execute("UPDATE kept SET value = ? WHERE name = ?", (value, name))
    store.commit()
    store.close()
    with pytest.raises(VaultError) as caught:  # noqa: PT012 whichever comes first
        device = DurableDevice(path, profile(table, 5))
        device.receive(table.opening.encode())
        device.bring(table.parts[5])
    assert str(path) in str(caught.value)


def test_a_name_that_is_no_text_in_a_store_is_named(tmp_path: Path) -> None:
    """What sqlite says of it is no text either."""
    path = tmp_path / "5"
    with DurableDevice(path, Profile(5)) as device:
        device.bring(None)
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE kept", b"CREATE TABLE\xff\xfe\xfdpt"))
    with pytest.raises(VaultError, match="remove it, and the device starts over"):
        DurableDevice(path, Profile(5))


def nothing(*_: object) -> None:
    """What a chmod does that is never reached."""


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
@pytest.mark.parametrize("umask", [0, 0o777])
def test_a_store_is_its_owners_from_the_first_byte_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    """Also the journals that it has for a moment, and if nobody gets to change a mode after."""
    if umask == 0:
        monkeypatch.setattr(Path, "chmod", nothing)
    modes: dict[str, int] = {}
    keep = FileStore.keep

    def watch(store: FileStore, *arguments: Any) -> None:
        keep(store, *arguments)
        modes.update({one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()})

    monkeypatch.setattr(FileStore, "keep", watch)
    before = os.umask(umask)
    try:
        with DurableDevice(tmp_path / "one", Profile(5), spent=tmp_path / "two") as device:
            device.bring(contributions(1, 5000)[5])
    finally:
        os.umask(before)
    assert {"one", "two", "one-journal"} <= set(modes)
    assert set(modes.values()) == {0o600}
