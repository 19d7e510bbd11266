"""A ledger that is damaged anywhere: a device forgets no charge and no mark without a word."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from rfa.secagg.device.kept import read_charges
from rfa.secagg.device.memory import Memory
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.store import LASTING, FileStore
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import VaultError
from tests.secagg.party import contributions

CHARGED = 1.25
UPDATE = contributions(1, 3)[5]


def opened(folder: Path, run: str = "run") -> DurableDevice:
    return DurableDevice(folder / run, Profile(5), spent=folder / "ledger", durable=False)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ledger with a charge, and the mark of an update."""
    folder = tmp_path_factory.mktemp("ledger")
    with opened(folder) as device:
        device.bring(UPDATE)
        kept, marks = device._kept, device._spends  # pyright: ignore[reportPrivateUsage]
        with kept.transaction():
            kept.let_last(Memory(rho=CHARGED))
            for mark in range(40):
                kept.store.keep(f"spent {mark:064x}", bytes(300), LASTING)
            name = marks._name(UPDATE)  # pyright: ignore[reportPrivateUsage]
            kept.store.keep(name, b"damaged", LASTING)
    return (folder / "ledger").read_bytes()


def forgets(folder: Path, content: bytes) -> list[str]:
    """What a device forgets with such a ledger, or whether it refuses by another name."""
    path = folder / "ledger"
    path.write_bytes(content)
    (folder / "run").unlink(missing_ok=True)
    found: list[str] = []
    try:
        found += ["charges that may be its own"] * (read_charges(path) != CHARGED)
    except VaultError as error:
        found += ["which file it is"] * (str(path) not in str(error))
    try:
        with opened(folder) as device:
            found += ["charges"] * (device.spent_rho != CHARGED)
            device.bring(UPDATE)  # which looks for its mark, and cannot read it
            found += ["a mark"]
    except VaultError as error:
        found += ["which file it is"] * (f"ledger of device 5 at {path}" not in str(error))
    return found


def test_a_byte_that_is_changed_hides_nothing(tmp_path: Path, ledger: bytes) -> None:
    rng = np.random.default_rng(5)
    places = np.flatnonzero(np.frombuffer(ledger, np.uint8))
    for at in [*rng.choice(places, 150, replace=False).tolist(), *range(100, 112)]:
        for byte in {0, ledger[at] ^ 1, ledger[at] ^ 0x80} - {ledger[at]}:
            content = ledger[:at] + bytes([byte]) + ledger[at + 1 :]
            assert not forgets(tmp_path, content), (at, byte)


def test_a_block_that_is_lost_hides_nothing(tmp_path: Path, ledger: bytes) -> None:
    rng = np.random.default_rng(6)
    for size in (16, 512, 4096):
        for at in rng.integers(len(ledger) - size, size=30).tolist():
            for block in (bytes(size), rng.bytes(size)):
                assert not forgets(tmp_path, ledger[:at] + block + ledger[at + size :]), (at, size)


def test_a_ledger_that_is_cut_hides_nothing(tmp_path: Path, ledger: bytes) -> None:
    """One that is empty is as one that is removed."""
    pages = range(4096, len(ledger), 4096)
    for length in (2, 15, 16, 99, 100, 511, 512, 1024, *pages, *range(700, len(ledger), 3001)):
        assert not forgets(tmp_path, ledger[:length]), length


def test_a_salt_that_is_changed_hides_no_mark(tmp_path: Path, ledger: bytes) -> None:
    (tmp_path / "ledger").write_bytes(ledger)
    with closing(sqlite3.connect(tmp_path / "ledger")) as store:
        ((salt,),) = store.execute("SELECT value FROM kept WHERE name = 'salt'")
    for byte in range(len(salt)):
        other = salt[:byte] + bytes([salt[byte] ^ 4]) + salt[byte + 1 :]
        assert not forgets(tmp_path, ledger.replace(salt, other)), byte


def test_a_table_that_is_gone_hides_nothing(tmp_path: Path, ledger: bytes) -> None:
    (tmp_path / "ledger").write_bytes(ledger)
    with closing(sqlite3.connect(tmp_path / "ledger")) as store:
        store.execute("ALTER TABLE kept RENAME TO kepr")
    assert not forgets(tmp_path, (tmp_path / "ledger").read_bytes())


def test_values_that_are_gone_are_missed(tmp_path: Path) -> None:
    with opened(tmp_path) as device:
        device.bring(None)
    store = FileStore(tmp_path / "ledger")
    store._files["main"]._run("UPDATE kept SET value = NULL")  # pyright: ignore[reportPrivateUsage]
    store.close()
    with pytest.raises(VaultError, match=r"ledger fails: .* has no value"), opened(tmp_path) as one:
        one.bring(None)


def test_a_ledger_that_is_damaged_is_named_and_not_the_store_of_the_run(tmp_path: Path) -> None:
    """Else its owner is told to remove the store, and that the ledger keeps everything."""
    opened(tmp_path).close()
    (tmp_path / "ledger").write_bytes(b"not a ledger" * 100)
    with pytest.raises(VaultError) as caught:
        opened(tmp_path)
    assert str(tmp_path / "ledger") in str(caught.value)
    assert str(tmp_path / "run") not in str(caught.value)
    assert "joins no round until you remove it, and then forgets both" in str(caught.value)


def test_a_new_ledger_of_which_only_the_settings_are_written_is_no_damage(tmp_path: Path) -> None:
    """A process may be killed before it has anything to keep."""
    FileStore(tmp_path / "ledger").close()
    with opened(tmp_path) as device:
        device.bring(None)
        assert device.spent_rho == 0
    assert read_charges(tmp_path / "ledger") == 0


def test_a_ledger_that_several_open_at_once_is_no_damage(tmp_path: Path) -> None:
    """While one of them makes it, others check it."""
    for turn in range(10):
        folder, start = tmp_path / str(turn), Barrier(4)

        def charge(run: str, folder: Path = folder, start: Barrier = start) -> None:
            start.wait()
            with opened(folder, run) as device:
                kept = device._kept  # pyright: ignore[reportPrivateUsage]
                with kept.transaction():
                    kept.let_last(Memory(rho=kept.memory.rho + CHARGED))
            read_charges(folder / "ledger")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(charge, "abcd"))
        assert read_charges(folder / "ledger") == 4 * CHARGED
