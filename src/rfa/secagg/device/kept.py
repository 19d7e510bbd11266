"""The contents of a device's store: its state in the round, its input, and what lasts.

main:  device, memory, contribution, label, again
marks: salt, lasting (the last nu, and all charges), and the marks of updates (`Marks`)
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Generator
from pathlib import Path

from rfa.secagg.device.brought import read_brought, write_brought
from rfa.secagg.device.memory import Memory, guard, read_memory, unguard
from rfa.secagg.device.sharing import Entropy
from rfa.secagg.device.store import MAIN, FileStore, Store
from rfa.secagg.errors import MessageError, VaultError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.opening import NO_BASIS
from rfa.secagg.transcript import SIZE

_LASTING = "lasting"
"""The entry that outlives rounds and runs: the last nu, and all charges."""
_AGAIN = "again"
"""The entry that says that the input repeats a sum."""


class Kept:
    """The store of one device, with typed entries.

    Attributes:
        store: the store.
    """

    def __init__(
        self,
        path: Path | str | Store,
        device: int,
        *,
        spent: Path | str | None,
        entropy: Entropy,
        durable: bool,
    ) -> None:
        """Open or create the store.

        Args:
            path: the file, or a store.
            device: the number of the device.
            spent: the file for the entries that outlive this one, if any.
            entropy: the source of the salt of a new store.
            durable: False if nothing needs to survive a power failure.

        Raises:
            VaultError: if the file cannot be used, or belongs to another device.
        """
        self._device, self._entropy = device, entropy
        self._path, self._spent = str(path), str(spent or "")
        with self._translated():
            if isinstance(path, str | Path):
                path = FileStore(Path(path), Path(spent) if spent else None, durable=durable)
        self.store: Store = path
        self._path, self._spent, self._marks = path.name, path.lasting_name, path.where
        try:
            with self._translated(), path.transaction():
                self._check_owner()
        except BaseException:
            path.close()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Generator[None]:
        """Write all changes of the block to disk or none, and exclude other processes.

        Raises:
            VaultError: if the store cannot be used.
        """
        with self._translated(), self.store.transaction():
            self._own()
            yield

    @property
    def memory(self) -> Memory:
        """The state in the round, with the last nu and all charges of all runs."""
        stored, last = self._find("memory"), self._find(_LASTING, self._marks)
        try:
            memory = Memory() if stored is None else read_memory(stored)
        except (ValueError, MessageError) as error:
            raise self.damaged(str(error)) from None
        if last is None:
            return memory
        try:
            lasting = read_memory(last)
        except (ValueError, MessageError) as error:
            raise self.damaged_marks(str(error)) from None
        return dataclasses.replace(memory, nu=lasting.nu, rho=max(memory.rho, lasting.rho))

    @memory.setter
    def memory(self, memory: Memory) -> None:
        self.store.keep("memory", memory.encode())

    def let_last(self, memory: Memory) -> None:
        """Keep the nu and the charges of a memory beyond rounds and runs."""
        lasting = Memory(nu=memory.nu, rho=memory.rho)
        self.store.keep(_LASTING, lasting.encode(), self._marks)

    def bring(self, contribution: Contribution | None, label: bytes) -> None:
        """Keep the input to the next round; the last round is over."""
        self.memory = self.memory.between_rounds()
        self.store.keep("contribution", guard(write_brought(contribution)))
        self.store.keep("label", label)
        self.store.remove(_AGAIN)

    def brings_again(self, token: bytes) -> None:
        """Record that the input repeats a sum."""
        self.store.keep(_AGAIN, token)

    @property
    def again(self) -> bool:
        """Whether the input repeats a sum."""
        return self._find(_AGAIN) is not None

    @property
    def label(self) -> bytes:
        """The digest of what the metrics of the input mean."""
        return self._find("label") or NO_BASIS

    @property
    def contribution(self) -> Contribution | None:
        """The input; None to abstain.

        Raises:
            VaultError: if there is none, or it is damaged.
        """
        stored = self._find("contribution")
        if stored is None:
            msg = f"nothing was brought into the next round at {self._path}: bring an update first"
            raise VaultError(msg)
        try:
            return read_brought(unguard(stored))
        except (ValueError, MessageError) as error:
            raise self.damaged(str(error)) from None

    def forget_brought(self) -> None:
        """Remove the input."""
        for name in ("contribution", "label", _AGAIN):
            self.store.remove(name)

    def damaged(self, why: str) -> VaultError:
        """Return the error for a store that fails, with the remedy."""
        marks = f"; {self._spent} keeps which updates were in a sum, and what sums were charged"
        marks = marks if self._spent else "; what its sums were charged is forgotten with it"
        return VaultError(
            f"the store of device {self._device} at {self._path} fails: {why}. If it is "
            f"damaged, remove it, and the device starts over with its next round{marks}"
        )

    def damaged_marks(self, why: str) -> VaultError:
        """Return the error for the part of the store that outlives runs, if that fails."""
        if not self._spent:
            return self.damaged(why)
        return VaultError(
            f"the ledger of device {self._device} at {self._spent} fails: {why}. It keeps which "
            "updates were in a sum, and what sums were charged: if it is damaged, the device joins "
            "no round until you remove it, and then forgets both"
        )

    def _find(self, name: str, where: str = MAIN) -> bytes | None:
        value = self.store.find(name, where)
        if value is not None and not isinstance(value, bytes):
            fails = self.damaged if where == MAIN else self.damaged_marks
            msg = f"{name} is not bytes"
            raise fails(msg)
        return value

    @property
    def _owner(self) -> bytes:
        return self._device.to_bytes(8, "little")

    def _check_owner(self) -> None:
        if self._find("device") not in (None, self._owner):
            msg = f"the store at {self._path} is not that of device {self._device}"
            raise VaultError(msg)

    def _own(self) -> None:
        """Write the number of the device to a new store."""
        if self._find("device") is None:
            self.store.keep("device", self._owner)
        if self._find("salt", self._marks) is None:
            self.store.keep("salt", guard(self._entropy(SIZE)), self._marks)

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            fails = self.damaged_marks if error.filename == self._spent else self.damaged
            raise fails(error.strerror or str(error)) from None
        except (sqlite3.Error, UnicodeError) as error:
            raise self.damaged(str(error)) from None


def read_charges(path: Path) -> float:
    """Return the charges of all sums with noise, in zCDP, in a file that outlives runs.

    Raises:
        VaultError: if the file cannot be read.
    """
    try:
        with contextlib.closing(FileStore(path)) as ledger, ledger.transaction():
            found = ledger.find(_LASTING)
        if found is None:
            return 0.0
        return read_memory(found if isinstance(found, bytes) else b"").rho
    except (OSError, ValueError, MessageError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        msg = f"the charges at {path} cannot be read: {why}. They may be those of this device: if "
        msg += "they are damaged, it joins no round until you remove the file, and then forgets "
        raise VaultError(msg + "them") from None
