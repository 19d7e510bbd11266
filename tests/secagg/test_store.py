"""Where a device keeps what it must not forget: files and memory do the same."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.secagg.device import store
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.store import LASTING, MAIN, FileStore, MemoryStore, Store
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import SpentUpdateError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.round import SumRequest, Unmask
from rfa.secagg.messages.stages import Stage
from tests.secagg.attack import reach
from tests.secagg.party import contributions, party

ORDERS = st.lists(
    st.tuples(
        st.sampled_from(["keep", "remove"]),
        st.sampled_from("abc"),
        st.binary(max_size=4),
        st.sampled_from([MAIN, LASTING]),
    ),
    max_size=6,
)


class FailedError(Exception):
    """What ends a transaction."""


@contextlib.contextmanager
def ended(kept: Store, *, fails: bool) -> Generator[None]:
    """A transaction, at the end of which something may fail."""
    with contextlib.suppress(FailedError), kept.transaction():
        yield
        if fails:
            raise FailedError


@given(st.lists(st.tuples(ORDERS, st.booleans()), max_size=5))
def test_files_and_memory_keep_the_same(turns: list[tuple[list[Any], bool]]) -> None:
    """Whatever is kept and removed, in transactions of which some fail."""
    plain: dict[tuple[str, str], bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = FileStore(Path(folder) / "a", Path(folder) / "b", durable=False)
        stores: list[Store] = [files, MemoryStore({})]
        for orders, fails in turns:
            after = dict(plain)
            for order, name, value, where in orders:
                after.pop((where, name), None)
                after |= {(where, name): value} if order == "keep" else {}
            plain = plain if fails else after
            for store in stores:
                with ended(store, fails=fails):
                    for order, name, value, where in orders:
                        if order == "keep":
                            store.keep(name, value, where)
                        else:
                            store.remove(name, where)
                with store.transaction():
                    found = {(at, n): store.find(n, at) for at in (MAIN, LASTING) for n in "abc"}
                assert {key: value for key, value in found.items() if value is not None} == plain
        files.close()


class Watched(sqlite3.Connection):
    """A connection that notes the transactions that wrote something, by the name of its file."""

    commits: ClassVar[list[str]] = []

    def execute(self, sql: str, *given: Any) -> Any:  # type: ignore[override]
        if sql.startswith("BEGIN"):
            self.before = self.total_changes
        if sql == "COMMIT" and self.total_changes > self.before:
            (_, _, path), *_ = super().execute("PRAGMA database_list").fetchall()
            Watched.commits.append(Path(path).name)
        elif not sql.startswith(("SELECT", "PRAGMA", "BEGIN", "COMMIT")):
            assert self.in_transaction, "nothing is written but in a transaction"
        return super().execute(sql, *given)


def test_a_message_is_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one of what outlives runs, before it, where that changes; a retry is none.

    It changes where an update is masked, and where a sum is opened of which the device is told who
    is in it, by which it can be repeated.
    """
    connect = sqlite3.connect

    def watched(*given: Any, **named: Any) -> Any:
        return connect(*given, **named, factory=Watched)

    monkeypatch.setattr(sqlite3, "connect", watched)

    def commits() -> list[str]:
        found = list(Watched.commits)
        Watched.commits.clear()
        return found

    table = party(contributions(6, 3))

    class Anew:
        """A device that is opened for each message, as by the process that answers it."""

        def receive(self, request: bytes) -> bytes:
            commits()
            with DurableDevice(tmp_path / "run", Profile(5), spent=tmp_path / "marks") as device:
                whom = bytes(31) + b"1" if device.due.stage == Stage.UNMASK else b""
                reply = device.receive(request, whom)
                written.append(commits())
                assert device.receive(request) == reply
                assert not commits(), "a retry writes nothing"
            return reply

        @property
        def due(self) -> Any:
            with DurableDevice(tmp_path / "run", Profile(5), spent=tmp_path / "marks") as device:
                return device.due

    written: list[list[str]] = []
    with DurableDevice(tmp_path / "run", Profile(5), spent=tmp_path / "marks") as device:
        device.bring(table.parts[5])
    assert commits() == ["marks", "run"]
    table.devices[5] = Anew()  # type: ignore[assignment]
    assert table.oracle()(np.zeros(3), 1.5).count == 6
    assert written == [["run"], ["run"], ["marks", "run"], ["marks", "run"]]


def test_when_a_round_is_over_the_file_is_small(tmp_path: Path) -> None:
    """Update and masked input, 8 bytes a number, stayed there for a day."""
    dim = 20_000
    parts = {11 * n + 5: Contribution(np.full(dim, 0.5 + n, np.float32)) for n in range(6)}
    table = party(parts)
    with DurableDevice(tmp_path / "5", Profile(5), spent=tmp_path / "spent") as device:
        device.bring(table.parts[5])
        table.devices[5] = device  # type: ignore[assignment]
        request = reach(table, Unmask)[5]
        assert (tmp_path / "5").stat().st_size > 8 * dim
        device.receive(request)
    assert (tmp_path / "5").stat().st_size < 32_000
    assert (tmp_path / "spent").stat().st_size < 32_000


def test_a_store_that_need_not_last_is_not_waited_for(tmp_path: Path) -> None:
    with closing(FileStore(tmp_path / "one", durable=False)) as store:
        with store.transaction():
            store.keep("a", b"1")
        base = store._files["main"]._base  # pyright: ignore[reportPrivateUsage]
        assert base.execute("PRAGMA synchronous").fetchone() == (0,)
        assert base.execute("PRAGMA journal_mode").fetchone() == ("memory",)
    with closing(FileStore(tmp_path / "one")) as store, store.transaction():
        assert store.find("a") == b"1"
        base = store._files["main"]._base  # pyright: ignore[reportPrivateUsage]
        assert base.execute("PRAGMA synchronous").fetchone() == (3,)


def test_a_device_in_memory_answers_as_one_on_the_disk(tmp_path: Path) -> None:
    """A new one for each message, as in a simulation, over the same mapping."""
    table, kept = party(contributions(6, 3)), dict[str, bytes]()
    with DurableDevice(MemoryStore(kept, "train "), Profile(5)) as device:
        device.bring(table.parts[5])

    class Anew:
        """A device that is made for each message."""

        def receive(self, request: bytes) -> bytes:
            return DurableDevice(MemoryStore(kept, "train "), Profile(5)).receive(request)

        @property
        def due(self) -> Any:
            return DurableDevice(MemoryStore(kept, "train "), Profile(5)).due

    table.devices[5] = Anew()  # type: ignore[assignment]
    total = table.oracle()(np.zeros(3), 1.5)
    assert total.count == 6
    assert not [name for name in kept if "contribution" in name]
    assert all(name.startswith("train ") for name in kept)


def test_a_device_that_is_killed_between_its_two_files_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is there, and the answer is not: a retry is answered, another run is refused."""
    table = party(contributions(6, 3), number=4)

    def opened(run: str) -> DurableDevice:
        return DurableDevice(tmp_path / run, Profile(5), spent=tmp_path / "marks")

    with opened("a") as device:
        device.bring(table.parts[5])
        table.devices[5] = device  # type: ignore[assignment]
        request = reach(table, SumRequest)[5]
        commit = store._File.commit  # pyright: ignore[reportPrivateUsage]
        done: list[int] = []

        def killed(file: Any) -> None:
            if done:
                raise KeyboardInterrupt
            done.append(1)
            commit(file)

        with monkeypatch.context() as patch:
            patch.setattr(store._File, "commit", killed)  # pyright: ignore[reportPrivateUsage]
            with pytest.raises(KeyboardInterrupt):
                device.receive(request)
    with opened("b") as other, pytest.raises(SpentUpdateError):
        other.bring(table.parts[5])
    with opened("a") as device:
        reply = device.receive(request)
        assert device.receive(request) == reply
