"""A device whose secrets and progress in the round are in a file of its own, and survive restarts.

Each request is one transaction: the memory is read, the answer is made, the new memory is on the
disk, and only then the answer is returned. Whatever is killed in between, the device goes on from
before the request, of which nothing has left, or from after it, and a retry gets the stored bytes.
Two processes cannot answer at once. What is no longer needed is overwritten in the file; a file
system may keep older blocks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import threading
from collections.abc import Generator
from pathlib import Path

from rfa.secagg.device.brought import read_brought, write_brought
from rfa.secagg.device.machine import Device
from rfa.secagg.device.memory import GONE, Memory, guard, read_memory, unguard
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.sent import note_opened, note_sent
from rfa.secagg.device.sharing import Entropy
from rfa.secagg.errors import (
    MessageError,
    ShareLimitError,
    SpentUpdateError,
    VaultError,
)
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.round import OpenRound, decode_as
from rfa.secagg.messages.stages import LEFT, START, Moment, Stage
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.transcript import (
    SIZE,
    mark_digest,
    own_round_digest,
    request_digest,
    update_digest,
)

_WAIT = 30.0
"""Seconds to wait for another process of the same device."""
_PRAGMAS = ("journal_mode = DELETE", "synchronous = EXTRA", "secure_delete = ON")


class DurableDevice:
    """A device that keeps what it must not forget in a file, which only its owner may read."""

    def __init__(  # noqa: PLR0913
        self,
        path: Path | str,
        profile: Profile,
        *,
        spent: Path | str | None = None,
        sent: Path | None = None,
        rounding: bytes | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        """Open the store, or make it.

        Args:
            path: the file.
            profile: what the device is.
            spent: the file that keeps what updates were in a sum, and the last nu, if they are to
                outlive this one.
            sent: the file that lists the digests of the masked inputs that it sends, if any.
            rounding: the key of the random choices in rounding, fresh in each round by default.
            entropy: where its secrets come from.

        Raises:
            VaultError: if the file cannot be used.
        """
        self._profile = profile
        self._rounding, self._entropy = rounding, entropy
        self._path, self._sent = Path(path), sent
        path = self._path
        self._spent, self._marks = Path(spent) if spent else None, "spent" if spent else "main"
        self._lock = threading.RLock()
        with self._translated():
            create_private(path)
            self._store = sqlite3.connect(
                path, timeout=_WAIT, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare()
        except BaseException:
            self._store.close()
            raise

    def _prepare(self) -> None:
        """Make the table, see whose store it is, and keep others out of it."""
        with self._translated():
            if self._spent:
                create_private(self._spent)
                self._store.execute("ATTACH DATABASE ? AS spent", (str(self._spent),))
            for name in {"main", self._marks}:
                for pragma in _PRAGMAS:
                    self._store.execute(f"PRAGMA {name}.{pragma}")
                self._store.execute(
                    f"CREATE TABLE IF NOT EXISTS {name}.kept (name TEXT PRIMARY KEY, value BLOB)"
                )
            for path in filter(None, (self._path, self._spent)):
                path.chmod(0o600)
        with self._transaction():
            owner = int(self._profile.device).to_bytes(8, "little")
            if self._find("device") not in (None, owner):
                msg = f"the store at {self._path} is not that of device {self._profile.device}"
                raise VaultError(msg)
            self._keep("device", owner)
            if self._find("salt", self._marks) is None:
                self._keep("salt", self._entropy(SIZE), self._marks)

    def __enter__(self) -> DurableDevice:
        """Begin to use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its use."""
        self.close()

    @property
    def due(self) -> Moment:
        """The moment of the request that the device waits for."""
        with self._transaction():
            return self._memory().due

    def bring(self, contribution: Contribution | None) -> None:
        """Bring something into the next round; None to abstain from it. The last round is over.

        Raises:
            SpentUpdateError: if the update, or what has the same mark, was masked in an earlier
                round. The difference of two sums about the same updates can tell on one device, so
                it takes a new one.
        """
        with self._transaction():
            if contribution:
                self._check_unspent(contribution)
            self._keep("memory", self._memory().between_rounds().encode())
            self._keep("contribution", guard(write_brought(contribution)))

    def receive(self, request: bytes) -> bytes:
        """Answer a request, and remember it first. After the last one the update is forgotten.

        Raises:
            RefusalError, MessageError: if it is refused, as `Device.receive` does.
            SpentUpdateError: if the update was masked in another run since it was brought; the
                device has left the round then.
            VaultError: if the store cannot be used, or nothing was brought.
        """
        with self._transaction():
            memory = self._memory()
            if memory.request == request_digest(request):
                return memory.reply
            contribution = self._contribution()
            device = Device(
                contribution,
                self._profile,
                rounding=self._rounding,
                entropy=self._entropy,
                memory=memory,
            )
            refused, reply = None, b""
            try:
                reply = device.receive(request)
                if contribution and device.memory.context not in (GONE, memory.context):
                    self._spend(contribution, device.memory)
            except ShareLimitError as error:  # which ends the round for the device
                refused = error
            except SpentUpdateError as error:
                refused, device.memory = error, memory.left()
            if device.memory is not memory:
                self._keep("memory", device.memory.encode())
            if refused is None:
                self._note(memory, device.memory, reply)
            if device.over and refused is None:
                self._store.execute("DELETE FROM kept WHERE name = 'contribution'")
        if refused is not None:
            raise refused
        return reply

    def end(self, number: int | None = None, *, opened: bool = True) -> None:
        """Forget the round but for its number, and a salted digest of the update.

        Args:
            number: forget this round only, and what was brought for it; by default any.
            opened: False where the server says that it has asked nobody to open a sum of this very
                round. If it is trusted to follow the protocol, the update may be brought again.
        """
        with self._transaction():
            memory = self._memory()
            later = number is not None and memory.round > number
            if later or (memory.round == number and memory.due == START):  # a new update is there
                return
            if not opened and memory.round == number and _may_take_back(memory):
                self._take_back(memory)
            self._keep("memory", memory.between_rounds().encode())
            self._store.execute("DELETE FROM kept WHERE name = 'contribution'")

    def _check_unspent(self, contribution: Contribution, own: bytes | None = None) -> None:
        """Refuse what is marked, unless by the device's own round."""
        if self._find(self._mark(contribution), self._marks) in (None, own):
            return
        what = "this very update before: train anew, with randomness"
        if contribution.mark is not None:
            what = "the very same before, and another would tell on it"
        msg = f"device {self._profile.device} was in a sum with {what}"
        raise SpentUpdateError(msg)

    def _spend(self, contribution: Contribution, memory: Memory) -> None:
        """Mark what a masked input is about, in the transaction in which it is made.

        From now on others may open a sum about it, whether or not this device is asked. Another run
        may have masked it since it was brought: one transaction locks both files.
        """
        own = own_round_digest(memory.advert)
        self._check_unspent(contribution, own)
        self._keep(self._mark(contribution), own, self._marks)
        self._keep("nu", Memory(nu=memory.nu).encode(), self._marks)

    def _note(self, before: Memory, after: Memory, reply: bytes) -> None:
        """Add to the device's own list what is about to leave."""
        if not self._sent or after is before:
            return
        if after.context not in {before.context, GONE}:
            note_sent(self._sent, self._profile.device, after.context, reply)
        elif before.due.stage == Stage.UNMASK:
            note_opened(self._sent, self._profile.device, reply)

    def _take_back(self, memory: Memory) -> None:
        """Forget that what was brought was asked about in this round."""
        contribution = self._contribution()
        if contribution:
            own = own_round_digest(memory.advert)
            where = f"{self._marks}.kept WHERE name = ? AND value = ?"
            order = f"DELETE FROM {where}"  # noqa: S608 one of two names
            self._store.execute(order, (self._mark(contribution), own))

    def close(self) -> None:
        """Close the store; everything is on the disk already."""
        self._store.close()

    def _mark(self, contribution: Contribution) -> str:
        """Under what it is kept that an update was asked about."""
        salt = self._find("salt", self._marks) or b""
        if len(salt) != SIZE:
            msg = "its salt is no longer there"
            raise self._damaged(msg)
        own = contribution.mark
        mark = update_digest(salt, contribution.update) if own is None else mark_digest(salt, own)
        return "spent " + mark.hex()

    def _memory(self) -> Memory:
        """What is kept of the round, and of the last nu in whatever run."""
        stored, last = self._find("memory"), self._find("nu", self._marks)
        try:
            memory = Memory() if stored is None else read_memory(stored)
            if last is None:
                return memory
            return dataclasses.replace(memory, nu=read_memory(last).nu)
        except (ValueError, MessageError) as error:
            raise self._damaged(str(error)) from None

    def _contribution(self) -> Contribution | None:
        stored = self._find("contribution")
        if stored is None:
            msg = f"nothing was brought into the next round at {self._path}: bring an update first"
            raise VaultError(msg)
        try:
            return read_brought(unguard(stored))
        except (ValueError, MessageError) as error:
            raise self._damaged(str(error)) from None

    def _find(self, name: str, where: str = "main") -> bytes | None:
        query = f"SELECT value FROM {where}.kept WHERE name = ?"  # noqa: S608 one of two names
        row = self._store.execute(query, (name,)).fetchone()
        if row and type(row[0]) is not bytes:
            msg = f"{name} is no bytes"
            raise self._damaged(msg)
        return row[0] if row else None

    def _keep(self, name: str, value: bytes, where: str = "main") -> None:
        order = f"INSERT OR REPLACE INTO {where}.kept VALUES (?, ?)"  # noqa: S608 one of two names
        self._store.execute(order, (name, value))

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        """All or nothing, on the disk, and no other process meanwhile."""
        with self._lock, self._translated():
            self._store.execute("BEGIN EXCLUSIVE")
            try:
                yield
                self._store.execute("COMMIT")
            finally:
                if self._store.in_transaction:
                    self._store.execute("ROLLBACK")

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, UnicodeError) as error:  # sqlite's texts may be damaged
            raise self._damaged(str(error)) from None

    def _damaged(self, why: str) -> VaultError:
        marks = f"; {self._spent} keeps which updates were in a sum" if self._spent else ""
        return VaultError(
            f"the store of device {self._profile.device} at {self._path} fails: {why}. If it is "
            f"damaged, remove it, and the device begins anew with its next round{marks}"
        )


def create_private(path: Path) -> None:
    """Make an empty file, unless it is there, which only its owner may read from the start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        path.chmod(0o600)  # what the umask took away


def _may_take_back(memory: Memory) -> bool:
    """Whether a server may say of a round that no sum of it was opened.

    Not one that may lie; and a device that opened a sum itself, or has left since, knows better.
    """
    if not memory.opening or memory.due == LEFT or memory.survivors:
        return False
    return decode_as(OpenRound, memory.opening).server_model == ServerModel.SEMI_HONEST
